"""What is on a picture or in a text: ``predict`` and what it needs."""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from capsnet._files import expanded, write_atomically
from capsnet.data import Preprocess, Words, images_in
from capsnet.models import Model, Output
from capsnet.weights import load

PRESENT = 0.5  # a capsule at least this long says that its class is there
Picture: TypeAlias = str | Path | Image.Image | np.ndarray | bytes


class Prediction(NamedTuple):
    """What a model says of one picture or text: the longest capsule's class, and every class's length."""

    label: str
    length: float
    lengths: dict[str, float]
    image: Tensor  # (C, H, W): what the network saw; of a text the numbers of its words, (L,)
    reconstruction: Tensor | None  # (C, H, W): what the longest capsule draws
    labels: tuple[str, ...] = ()  # the classes that reach the threshold, longest first; empty: none of them
    source: str = ""  # the file, or the text


class Skipped(NamedTuple):
    """A picture that could not be read, and why."""

    source: str
    error: Exception


class _Prepared(NamedTuple):
    source: str
    image: Tensor


def predict(
    pictures: Iterable[Picture] | Picture,
    model: Model | str | Path,
    *,
    batch_size: int = 64,
    threshold: float = PRESENT,
    progress: bool = False,
) -> list[Prediction]:
    """Say what is on each picture, whatever its size and colours; to a model of texts, give texts.

    The pictures go through the preprocessing that is stored with the weights, the same everywhere.

    Args:
        pictures: files, folders (all images below them), bytes of image files, Pillow images or arrays; or texts.
        model: a model, a shipped name, a file of weights or of ONNX, or a run folder.
        batch_size: how many are computed at a time. The answers do not depend on it.
        threshold: a class is there if its capsule is at least this long: see ``Prediction.labels``.
        progress: show a bar on a terminal.
    """
    found = predictions(pictures, model, batch_size=batch_size, threshold=threshold, progress=progress)
    return [answer for answer in found if isinstance(answer, Prediction)]


def predictions(
    pictures: Iterable[Picture | Skipped] | Picture,
    model: Model | str | Path,
    *,
    batch_size: int = 64,
    threshold: float = PRESENT,
    progress: bool = False,
    skip: bool = False,
) -> Iterator[Prediction | Skipped]:
    """``predict`` one batch after the other, so that nothing piles up in memory.

    With ``skip`` a picture that cannot be read gives a ``Skipped`` in its place instead of an error.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold must lie between 0 and 1, as lengths do, got {threshold}")
    model = model if isinstance(model, Model) else load(model)
    prepare = preprocessing_of(model)
    given = [pictures] if isinstance(pictures, Picture) else pictures
    items = list(given) if model.takes_texts else unfold(given, skip=skip)
    return _answered(items, model, prepare, batch_size, threshold, progress, skip)


def _answered(
    items: Sequence[Picture | Skipped],
    model: Model,
    prepare: Callable[[Any], Tensor],
    batch_size: int,
    threshold: float,
    progress: bool,
    skip: bool,
) -> Iterator[Prediction | Skipped]:
    hidden = None if progress and len(items) > batch_size else True  # None: shown on a terminal only
    with tqdm(total=len(items), unit="text" if model.takes_texts else "image", disable=hidden, leave=False) as bar:
        for start in range(0, len(items), batch_size):
            chunk = [_prepared(item, prepare, skip) for item in items[start : start + batch_size]]
            ready = [item for item in chunk if isinstance(item, _Prepared)]
            answers = iter(_predict_batch(ready, model, threshold) if ready else ())
            bar.update(len(chunk))
            for item in chunk:
                yield item if isinstance(item, Skipped) else next(answers)


def unfold(pictures: Iterable[Picture | Skipped], *, skip: bool = False) -> list[Picture | Skipped]:
    """The pictures, with all those below a folder in its place."""
    found: list[Picture | Skipped] = []
    for picture in pictures:
        try:
            folder = isinstance(picture, str | Path) and expanded(picture).is_dir()
            found += images_in(picture) if folder and isinstance(picture, str | Path) else [picture]
        except (ValueError, OSError) as error:
            if not skip:
                raise
            found.append(Skipped(str(picture), error))
    return found


def preprocessing_of(model: Model) -> Callable[[Any], Tensor]:
    """How a picture or text becomes this model's input: as stored with its weights, else a plain resize."""
    if model.takes_texts:
        return words_of(model)
    height, width = model.image_size
    if model.preprocessing:
        return Preprocess(**model.preprocessing)
    if model.in_channels not in (1, 3):
        raise ValueError(f"the model takes {model.in_channels} channels: no picture file has that many")
    return Preprocess(style="plain", height=height, width=width, channels=model.in_channels)


def words_of(model: Model) -> Words:
    """The words that a model of texts knows."""
    if not model.preprocessing:
        raise ValueError("the model does not know its words: set model.preprocessing = dataset.preprocess.model_dump()")
    return Words(**model.preprocessing)


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients for a while; the training mode comes back afterwards."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


class Album:
    """A folder of reconstructions: one PNG per picture, under a name of its own that says where it comes from."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._taken: set[str] = set()

    def add(self, answer: Prediction) -> Path:
        """Write what the longest capsule draws of one picture."""
        if answer.reconstruction is None:
            raise ValueError("the model draws no reconstructions: it has no decoder")
        pixels = answer.reconstruction.mul(255).round().clamp(0, 255).byte().movedim(0, -1).numpy()
        if pixels.shape[2] not in (1, 3):
            raise ValueError(f"a reconstruction of {pixels.shape[2]} channels is no picture")
        png = io.BytesIO()
        Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(png, "PNG")
        return write_atomically(self.folder / self._name(answer.source), png.getvalue())

    def _name(self, source: str) -> str:
        """Letters, digits and ``._-`` of the file's name; the ending keeps a picture beside it from being lost."""
        base = re.sub(r"[^\w.-]+", "_", Path(source).stem)
        base = base.encode()[:150].decode(errors="ignore").strip("._-") or "picture"  # file systems count bytes
        number, name = 1, f"{base}-reconstruction.png"
        while name.casefold() in self._taken:
            number += 1
            name = f"{base}-{number}-reconstruction.png"
        self._taken.add(name.casefold())
        return name


def _prepared(picture: Picture | Skipped, prepare: Callable[[Any], Tensor], skip: bool) -> _Prepared | Skipped:
    if isinstance(picture, Skipped):
        return picture
    source = str(picture) if isinstance(picture, str | Path) else ""
    try:
        return _Prepared(source, torch.as_tensor(prepare(picture)))
    except (ValueError, OSError) as error:
        if not skip:
            raise
        return Skipped(source, error)


def _predict_batch(items: Sequence[_Prepared], model: Model, threshold: float) -> list[Prediction]:
    images = pad_sequence([item.image for item in items], batch_first=True)  # only texts differ in length
    with evaluating(model):
        output: Output = model(images.to(next(model.parameters()).device))
    lengths = output.lengths.float().cpu()
    nothing: list[Tensor | None] = [None] * len(images)
    drawn = nothing if output.reconstruction is None else list(output.reconstruction.cpu())
    names = model.class_names
    answers: list[Prediction] = []
    for item, image, row, picture in zip(items, images, lengths, drawn, strict=True):
        order = row.argsort(descending=True, stable=True).tolist()
        there = tuple(names[k] for k in order if row[k] >= threshold)
        named = dict(zip(names, row.tolist(), strict=True))
        best = order[0]
        answers.append(Prediction(names[best], float(row[best]), named, image, picture, there, item.source))
    return answers
