"""Using a trained model: ``evaluate`` it on a data set, ``predict`` what is on a picture or in a text."""

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

from capsnet import data
from capsnet.data import Dataset, Preprocess, Words
from capsnet.metrics import Proportion, summarise
from capsnet.models import Model, Output, TextModel
from capsnet.weights import load

PRESENT = 0.5  # a capsule at least this long says that its class is there
OFFSETS = tuple(round(-0.25 + 0.05 * k, 2) for k in range(11))  # the paper's sweep: -0.25 ... +0.25
Picture: TypeAlias = str | Path | Image.Image | np.ndarray


class Evaluation(NamedTuple):
    """``metrics`` is ready for JSON; ``lengths`` (N, J) and ``targets`` are what it was computed from."""

    metrics: dict[str, Any]
    lengths: np.ndarray
    targets: np.ndarray

    @property
    def accuracy(self) -> Proportion:
        """The share of examples that are entirely right, with its interval; with several labels, of exact matches."""
        share = self.metrics.get("accuracy") or self.metrics["exact_match"]
        if share is None:
            raise ValueError("no example has a label, so there is no accuracy")
        return Proportion(**share)


class Prediction(NamedTuple):
    """What a model says of one picture or text: the longest capsule's class, and every class's length."""

    label: str
    length: float
    lengths: dict[str, float]
    image: Tensor  # (C, H, W): what the network saw; of a text the numbers of its words, (L,)
    reconstruction: Tensor | None  # (C, H, W): what the longest capsule draws


def evaluate(
    model: Model | str | Path,
    dataset: Dataset | str | None = None,
    *,
    split: str = "test",
    batch_size: int = 250,
    device: str | torch.device | None = None,
    progress: bool = False,
) -> Evaluation:
    """Run a model over a whole data set and measure it.

    ``dataset`` is a data set or a name; None takes what the model was trained on, as its card says, else MNIST.
    The reconstruction error (summed squared difference per image) decodes the *longest* capsule, never the true one.

    Several labels per image: where every picture is made of a known number of objects (MultiMNIST), the longest
    capsules are the answer; else all that reach ``PRESENT``, and an image without any label is right if none does.
    """
    model = model if isinstance(model, Model) else load(model)
    if not isinstance(dataset, Dataset):
        dataset = data.load(dataset or model.card.get("data", "mnist"), split)
    check_fit(model, dataset)
    device = torch.device(device) if device is not None else next(model.parameters()).device
    lengths, targets, squared, counted = [], [], 0.0, False
    with evaluating(model.to(device)):
        total = data.num_batches(dataset, batch_size)
        for batch in tqdm(data.batches(dataset, batch_size), total=total, disable=not progress or None, leave=False):
            images = batch.images.to(device)
            output: Output = model(images)
            lengths.append(output.lengths.float().cpu())
            targets.append(batch.targets)
            counted = counted or batch.sources is not None
            if output.reconstruction is not None and batch.sources is None:  # of several objects, which one?
                squared += float((output.reconstruction.float() - images).square().sum())
    scores, truth = torch.cat(lengths).numpy(), torch.cat(targets).numpy()
    result = summarise(scores, truth, class_names=model.class_names, threshold=None if counted else PRESENT)
    if squared:
        result["reconstruction_error"] = squared / len(dataset)
    return Evaluation(result, scores, truth)


def predict(
    pictures: Iterable[Picture] | Picture, model: Model | str | Path, *, batch_size: int = 64
) -> list[Prediction]:
    """Say what is on each picture, whatever its size and colours; to a model of texts, give texts.

    The pictures go through the preprocessing that is stored with the weights, the same everywhere.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    model = model if isinstance(model, Model) else load(model)
    if isinstance(pictures, Picture):
        pictures = [pictures]
    prepare = preprocessing_of(model)
    prepared = [torch.as_tensor(prepare(picture)) for picture in pictures]
    return [
        answer
        for chunk in _chunks(prepared, batch_size)
        for answer in _predict_batch(pad_sequence(chunk, batch_first=True), model)  # only texts differ in length
    ]


def preprocessing_of(model: Model) -> Callable[[Any], Tensor]:
    """How a picture or text becomes this model's input: as stored with its weights, else a plain resize."""
    if isinstance(model, TextModel):
        return _words_of(model)
    height, width = model.image_size
    if model.preprocessing:
        return Preprocess(**model.preprocessing)
    if model.in_channels not in (1, 3):
        raise ValueError(f"the model takes {model.in_channels} channels: no picture file has that many")
    return Preprocess(style="plain", height=height, width=width, channels=model.in_channels)


def check_fit(model: Model, dataset: Dataset) -> None:
    """Refuse a data set that the model cannot take, before anything runs."""
    check_kind("the model", isinstance(model, TextModel), dataset)
    if isinstance(model, TextModel) and _words_of(model).vocabulary != dataset.vocabulary:
        raise ValueError(f"the model was trained with other words than those of {dataset.name}")
    takes = (model.in_channels, *model.image_size, model.num_classes)
    gives = (dataset.channels, *dataset.image_size, dataset.num_classes)
    if takes != gives:
        words = "{}x{}x{} images and {} classes"
        raise ValueError(f"the model takes {words.format(*takes)}, {dataset.name} has {words.format(*gives)}")


def check_kind(model: str, takes_texts: bool, dataset: Dataset) -> None:
    """Refuse texts where a model takes pictures, and the other way round."""
    if takes_texts != bool(dataset.vocabulary):
        kinds = ("pictures", "texts") if takes_texts else ("texts", "pictures")
        raise ValueError(f"{dataset.name} has {kinds[0]}, but {model} takes {kinds[1]}: choose another")


def _words_of(model: TextModel) -> Words:
    if not model.preprocessing:
        raise ValueError("the model does not know its words: set model.preprocessing = dataset.preprocess.model_dump()")
    return Words(**model.preprocessing)


def pick_device(name: str = "auto") -> torch.device:
    """The device to compute on; "auto" takes CUDA, then Apple's MPS, then the CPU."""
    known = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next(device for device in ("cuda", "mps", "cpu") if known[device]))
    if not known.get(name.partition(":")[0], False):
        here = ", ".join(device for device, there in known.items() if there)
        raise ValueError(f"device {name!r} is not available here: choose auto or one of {here}")
    return torch.device(name)


def sweep_dimensions(model: Model, poses: Tensor, label: int, offsets: Sequence[float] = OFFSETS) -> Tensor:
    """Move one dimension of one capsule at a time and decode: what does the dimension mean? [Figure 4]

    Shapes: ``poses`` (J, D) of one example, ``label`` the capsule's class -> pictures (D, S, C, H, W).
    """
    D, S = poses.shape[-1], len(offsets)
    moves = torch.eye(D, device=poses.device)[:, None, :] * torch.tensor(offsets, device=poses.device)[None, :, None]
    moved = poses.expand(D * S, -1, -1).clone()
    moved[:, label] += moves.reshape(D * S, D)
    with evaluating(model):
        return model.decode(moved, torch.full((D * S,), label, device=poses.device)).unflatten(0, (D, S))


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


def _predict_batch(images: Tensor, model: Model) -> list[Prediction]:
    with evaluating(model):
        output: Output = model(images.to(next(model.parameters()).device))
    lengths = output.lengths.float().cpu()
    nothing: list[Tensor | None] = [None] * len(images)
    drawn = nothing if output.reconstruction is None else list(output.reconstruction.cpu())
    answers: list[Prediction] = []
    for image, row, picture in zip(images, lengths, drawn, strict=True):
        best = int(row.argmax())
        named = dict(zip(model.class_names, row.tolist(), strict=True))
        answers.append(Prediction(model.class_names[best], float(row[best]), named, image, picture))
    return answers


def _chunks(items: Sequence[Tensor], size: int) -> Iterator[list[Tensor]]:
    return (list(items[start : start + size]) for start in range(0, len(items), size))
