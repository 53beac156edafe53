"""``predict``: the classes of pictures or texts by a trained model."""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset as TorchDataset
from tqdm import tqdm

from capsnet._files import expanded, write_atomically
from capsnet.data import Preprocess, Words, images_in, preprocess_for
from capsnet.data.labelled import as_picture, described, images_of, is_columns
from capsnet.models import Model, Output
from capsnet.weights import load

PRESENT = 0.5  # a class is present if its capsule is at least this long
KINDS = (
    "files, folders, Pillow images, arrays or tensors, one or many, a torch Dataset of (image, label) or a Hugging "
    "Face data set"
)
EDGE = 1e-3  # how far interpolated pixels may lie outside [0, 1]
Picture: TypeAlias = str | Path | Image.Image | np.ndarray | Tensor | bytes


class Prediction(NamedTuple):
    """The answer for one picture or text: the longest capsule's class, and every class's length."""

    label: str
    length: float
    lengths: dict[str, float]
    image: Tensor  # (C, H, W): the network's input; of a text the numbers of its words, (L,)
    reconstruction: Tensor | None  # (C, H, W), decoded from the longest capsule
    labels: tuple[str, ...] = ()  # the classes that reach the threshold, longest first; empty: none of them
    source: str = ""  # the file, or the text
    how: str = ""  # how the picture was read: "dark ink on light paper, ..."; empty for tensors and texts

    def __str__(self) -> str:
        source = f"{self.source}: " if self.source else ""
        others = f", present: {', '.join(self.labels) or 'none'}" if self.labels != (self.label,) else ""
        return f"{source}{self.label} (length {self.length:.2f}){others}"

    def __repr__(self) -> str:
        return f"<Prediction: {self}>"


class Skipped(NamedTuple):
    """A picture that could not be read, and why."""

    source: str
    error: Exception


class _Given(NamedTuple):
    picture: Picture | Skipped
    where: str  # what errors say of a picture that has no name


class _Prepared(NamedTuple):
    source: str
    image: Tensor
    how: str = ""


def predict(
    pictures: Iterable[Picture] | Picture,
    model: Model | str | Path,
    *,
    batch_size: int = 64,
    threshold: float = PRESENT,
    progress: bool = False,
) -> list[Prediction]:
    """Classify pictures of any size and colours, or texts.

    Pictures are preprocessed as stored with the weights. Tensors are not: they are the model's inputs.

    Args:
        pictures: files, folders (all images below them), bytes of image files, Pillow images or arrays (uint8, or float
            in [0, 1]), one or many, (N, H, W, C) or (N, C, H, W) as well; tensors (C, H, W) or (N, C, H, W) of the
            model's own size, float in [0, 1] or uint8; a torch ``Dataset`` of (image, label) or a Hugging Face data
            set, whose labels are not looked at; or texts.
        model: a model, or what ``load`` takes: a bundled name, a file of weights or of ONNX, a run folder, or
            ``hf:user/name``.
        batch_size: how many are computed at a time; it does not change the answers.
        threshold: a class is present if its capsule is at least this long: see ``Prediction.labels``.
        progress: show a bar on a terminal.
    """
    answers = predictions(pictures, model, batch_size=batch_size, threshold=threshold, progress=progress)
    return [answer for answer in answers if isinstance(answer, Prediction)]


def predictions(
    pictures: Iterable[Picture | Skipped] | Picture,
    model: Model | str | Path,
    *,
    batch_size: int = 64,
    threshold: float = PRESENT,
    progress: bool = False,
    skip: bool = False,
) -> Iterator[Prediction | Skipped]:
    """``predict`` as an iterator, for more pictures than fit into memory.

    With ``skip`` a picture that cannot be read gives a ``Skipped`` in its place instead of an error. Otherwise the
    error names the file, or the picture's index.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold must lie between 0 and 1, as lengths do, got {threshold}")
    model = model if isinstance(model, Model) else load(model)
    if isinstance(pictures, Picture):
        pictures = list(pictures) if isinstance(pictures, np.ndarray | Tensor) and pictures.ndim == 4 else [pictures]
    given = texts_of(pictures) if model.takes_texts else without_labels(pictures)
    items: list[_Given] = []
    for index, picture in enumerate(given):
        where = f"pictures[{index}]" if len(given) > 1 else ""
        files = [picture] if model.takes_texts else unfold([picture], skip=skip)
        items += [_Given(file, "" if isinstance(file, str | Path) else where) for file in files]
    preprocess = None if all(isinstance(item.picture, Tensor) for item in items) else preprocessing_of(model)
    return _answered(items, model, preprocess, batch_size, threshold, progress, skip)


def _answered(
    items: Sequence[_Given],
    model: Model,
    preprocess: Callable[[Any], Tensor] | None,
    batch_size: int,
    threshold: float,
    progress: bool,
    skip: bool,
) -> Iterator[Prediction | Skipped]:
    hidden = None if progress and len(items) > batch_size else True  # None: shown on a terminal only
    with tqdm(total=len(items), unit="text" if model.takes_texts else "image", disable=hidden, leave=False) as bar:
        for start in range(0, len(items), batch_size):
            chunk = [_prepared(item, model, preprocess, skip) for item in items[start : start + batch_size]]
            ready = [item for item in chunk if isinstance(item, _Prepared)]
            answers = iter(_predict_batch(ready, model, threshold) if ready else ())
            bar.update(len(chunk))
            for item in chunk:
                yield item if isinstance(item, Skipped) else next(answers)


def texts_of(texts: Any) -> list[Any]:
    """Many texts, as a list."""
    if isinstance(texts, Mapping) or not isinstance(texts, Iterable):
        raise ValueError(f"expected a text or several, got {described(texts)}")
    return list(texts)


def without_labels(pictures: Any) -> list[Picture | Skipped]:
    """The images of a torch or a Hugging Face data set, or of pairs (image, label); other pictures as they are."""
    items: list[Any] = []
    several = is_columns(pictures) or isinstance(pictures, TorchDataset)
    if isinstance(pictures, Mapping) or not (several or isinstance(pictures, Iterable)):
        raise ValueError(f"expected {KINDS}, got {described(pictures)}")
    if not several:
        items += [item[0] if type(item) is tuple and len(item) == 2 else item for item in pictures]
        return items
    images = images_of(pictures)
    try:
        for image in images:
            items.append(as_picture(image))
    except (ValueError, OSError) as error:  # of a file that the data set opens
        raise ValueError(f"pictures[{len(items)}]: {error}") from error
    return items


def unfold(pictures: Iterable[Picture | Skipped], *, skip: bool = False) -> list[Picture | Skipped]:
    """The pictures, with each folder replaced by all images below it."""
    unfolded: list[Picture | Skipped] = []
    for picture in pictures:
        try:
            if isinstance(picture, str) and not picture:
                raise ValueError("the name of a picture is empty: name a file, or a folder (the current one is .)")
            is_folder = isinstance(picture, str | Path) and expanded(picture).is_dir()
            unfolded += images_in(picture) if is_folder and isinstance(picture, str | Path) else [picture]
        except (ValueError, OSError) as error:
            if not skip:
                raise
            unfolded.append(Skipped(str(picture), error))
    return unfolded


def preprocessing_of(model: Model) -> Callable[[Any], Tensor]:
    """The function from a picture or text to the model's input: as stored with its weights, else a resize."""
    if model.takes_texts:
        return words_of(model)
    if model.preprocessing:
        return Preprocess(**model.preprocessing)
    if (resize := preprocess_for(model.image_size, model.in_channels)) is None:
        shape = " x ".join(map(str, (model.in_channels, *model.image_size)))
        raise ValueError(f"no picture file can become an input of this model, {shape}: give tensors")
    return resize


def words_of(model: Model) -> Words:
    """The words that a model of texts knows."""
    if not model.preprocessing:
        raise ValueError("the model does not know its words: set model.preprocessing = dataset.preprocess.model_dump()")
    return Words(**model.preprocessing)


def as_inputs(model: Model, images: Tensor) -> Tensor:
    """A batch of tensors as the model's input: uint8 is scaled to [0, 1], a missing axis of one channel is added."""
    if model.takes_texts:
        return images
    if images.dtype == torch.uint8:
        images = images / 255
    if not images.is_floating_point():
        raise ValueError(f"images must be float in [0, 1] or uint8, got {images.dtype}")
    low, high = (float(end) for end in images.aminmax()) if images.numel() else (0.0, 1.0)
    if not -EDGE <= low <= high <= 1 + EDGE:
        raise ValueError(f"images must lie in [0, 1], got {low:g} to {high:g}: divide by 255, or leave out Normalize")
    images = images.unsqueeze(1) if images.ndim == 3 and model.in_channels == 1 else images
    images = images.to(next(model.parameters()).dtype)
    model.check_images(images)
    return images


def placed(model: Model, images: Tensor) -> Tensor:
    """Inputs on the model's device; pictures in its precision."""
    weight = next(model.parameters())
    return images.to(weight.device, None if model.takes_texts else weight.dtype)


@contextmanager
def evaluating(model: torch.nn.Module, gradients: bool = False) -> Iterator[None]:
    """Evaluation mode with or without gradients; the training mode is restored afterwards."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(not gradients), torch.set_grad_enabled(gradients):
            yield
    finally:
        model.train(was_training)


class Album:
    """A folder of what networks see or draw: one PNG per picture, named after the picture's file.

    ``what`` is "reconstruction", what the longest capsule draws, or "prepared", the network's input.
    """

    def __init__(self, folder: str | Path, what: Literal["reconstruction", "prepared"] = "reconstruction") -> None:
        self.folder, self.what = Path(folder), what
        self.folder.mkdir(parents=True, exist_ok=True)
        self._taken: set[str] = set()

    def add(self, answer: Prediction) -> Path:
        """Write the PNG of one picture."""
        drawn = answer.image if self.what == "prepared" else answer.reconstruction
        if drawn is None:
            raise ValueError("the model draws no reconstructions: it has no decoder")
        if drawn.ndim != 3 or drawn.shape[0] not in (1, 3):
            raise ValueError(f"what is {self.what} is no picture: its shape is {tuple(drawn.shape)}")
        pixels = drawn.cpu().mul(255).round().clamp(0, 255).byte().movedim(0, -1).numpy()
        png = io.BytesIO()
        Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(png, "PNG")
        return write_atomically(self.folder / self._name(answer.source), png.getvalue())

    def _name(self, source: str) -> str:
        name = png_name(source, self.what, lambda name: name.casefold() in self._taken)
        self._taken.add(name.casefold())
        return name


def png_name(source: str, what: str, taken: Callable[[str], bool]) -> str:
    """Letters, digits and ``._-`` of the picture's file name, then ``what``, with a number if that name is taken."""
    base = re.sub(r"[^\w.-]+", "_", Path(source).stem)
    base = base.encode()[:150].decode(errors="ignore").strip("._-") or "picture"  # file systems count bytes
    number, name = 1, f"{base}-{what}.png"
    while taken(name):
        number += 1
        name = f"{base}-{number}-{what}.png"
    return name


def _prepared(
    item: _Given, model: Model, preprocess: Callable[[Any], Tensor] | None, skip: bool
) -> _Prepared | Skipped:
    picture = item.picture
    if isinstance(picture, Skipped):
        return picture
    source = str(picture) if isinstance(picture, str | Path) else ""
    try:
        if isinstance(picture, Tensor) or preprocess is None:
            return _Prepared(source, as_inputs(model, torch.as_tensor(picture)[None])[0])
        if isinstance(preprocess, Preprocess):
            return _Prepared(source, *preprocess.read(picture))
        return _Prepared(source, torch.as_tensor(preprocess(picture)))
    except (ValueError, OSError) as error:
        if skip:
            return Skipped(source, error)
        if item.where:
            raise ValueError(f"{item.where}: {error}") from error
        raise


def _predict_batch(items: Sequence[_Prepared], model: Model, threshold: float) -> list[Prediction]:
    images = pad_sequence([item.image for item in items], batch_first=True)  # only texts differ in length
    with evaluating(model):
        output: Output = model(placed(model, images))
    lengths = output.lengths.float().cpu()
    none: list[Tensor | None] = [None] * len(images)
    drawn = none if output.reconstruction is None else list(output.reconstruction.cpu())
    names = model.class_names
    answers: list[Prediction] = []
    for item, image, row, picture in zip(items, images, lengths, drawn, strict=True):
        order = row.argsort(descending=True, stable=True).tolist()
        present = tuple(names[k] for k in order if row[k] >= threshold)
        named = dict(zip(names, row.tolist(), strict=True))
        best = order[0]
        answer = Prediction(names[best], float(row[best]), named, image, picture, present, item.source, item.how)
        answers.append(answer)
    return answers
