"""``evaluate``: run a trained model over a data set and measure it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from tqdm import tqdm

from capsnet import data
from capsnet.data import Batch, Dataset
from capsnet.inference._torch_data import torch_batches
from capsnet.inference.prediction import PRESENT, evaluating, placed, words_of
from capsnet.metrics import Proportion, summarise
from capsnet.models import Model, Output
from capsnet.weights import load

OFFSETS = tuple(round(-0.25 + 0.05 * k, 2) for k in range(11))  # the paper's sweep: -0.25 ... +0.25


class Evaluation(NamedTuple):
    """``metrics`` is ready for JSON; ``lengths`` (N, J) and ``targets`` are what it was computed from."""

    metrics: dict[str, Any]
    lengths: np.ndarray
    targets: np.ndarray

    @property
    def accuracy(self) -> Proportion:
        """The proportion of examples that are entirely right; with several labels, of exact matches."""
        proportion = self.metrics.get("accuracy") or self.metrics["exact_match"]
        if proportion is None:
            raise ValueError("no example has a label, so there is no accuracy")
        return Proportion(**proportion)

    @property
    def half_credit(self) -> Proportion | None:
        """For pictures of a known number of objects: see ``metrics.half_credit``. Else None."""
        proportion = self.metrics.get("half_credit")
        return None if proportion is None else Proportion(**proportion)

    def __str__(self) -> str:
        if self.metrics.get("accuracy") is None and self.metrics.get("exact_match") is None:
            return f"{self.metrics['n']:,} examples, none of them with a label"
        right = "right" if "accuracy" in self.metrics else "with exactly the true classes"
        parts = [(self.accuracy, f" of {self.accuracy.n:,} {right}"), (self.half_credit, " with half credit")]
        return "; ".join(f"{p.value:.2%}{what} (95 %: {p.low:.2%} to {p.high:.2%})" for p, what in parts if p)

    def __repr__(self) -> str:
        return f"<Evaluation: {self}>"


def evaluate(
    model: Model | str | Path,
    dataset: Dataset | TorchDataset | DataLoader | Sequence[Any] | str | Any | None = None,
    *,
    split: str = "test",
    batch_size: int = 250,
    device: str | torch.device | None = None,
    progress: bool = False,
) -> Evaluation:
    """Run a model over a data set and measure it.

    Args:
        model: a model, or what ``load`` takes: a bundled name, a file of weights or of ONNX, a run folder, or
            ``hf:user/name``.
        dataset: a data set of this package or its name, a torch ``DataLoader``, or what ``data.adapt`` takes: a pair
            of arrays, a torch ``Dataset`` or a sequence of (image, label), a Hugging Face data set; images float in
            [0, 1] or uint8, labels class numbers, names of classes or multi-hot. None takes what the model was
            trained on, as its card says, else MNIST.
        split: which split of a named data set.
        batch_size: how many are computed at a time; a ``DataLoader`` has its own.
        device: where to compute; None leaves the model where it is.
        progress: show a bar on a terminal.

    The reconstruction error (summed squared difference per image) decodes the *longest* capsule, never the true one.

    Several labels per image: where every picture is made of a known number of objects (MultiMNIST), the longest
    capsules are the answer; else all that reach ``PRESENT``, and an image without any label is right if none does.
    """
    model = model if isinstance(model, Model) else load(model)
    if dataset is None or isinstance(dataset, str):
        dataset = data.load(dataset or model.card.get("data", "mnist"), split)
    if device is not None:
        model.to(device)
    originals = None
    if isinstance(dataset, Dataset):
        check_fit(model, dataset)
        originals = dataset.originals()
        batches, total = data.batches(dataset, batch_size), data.num_batches(dataset, batch_size)
    else:
        batches, total = torch_batches(model, dataset, batch_size)
    return measure(model, answers(model, batches, total=total, progress=progress), originals)


class Answers(NamedTuple):
    """A model's lengths for one batch, and the targets."""

    lengths: Tensor  # (B, J)
    targets: Tensor  # (B,) or (B, J)
    squared: float  # the summed squared error of the reconstruction
    counted: bool  # whether each picture is made of a known number of objects


def answers(model: Model, batches: Iterable[Batch], *, total: int | None, progress: bool = False) -> list[Answers]:
    """Run a model over batches."""
    results = []
    with evaluating(model):
        for batch in tqdm(batches, total=total, disable=not progress or None, leave=False):
            images, squared, counted = placed(model, batch.images), 0.0, batch.sources is not None
            output: Output = model(images)
            if output.reconstruction is not None and not counted:  # one capsule cannot draw several objects
                squared = float((output.reconstruction.float() - images).square().sum())
            results.append(Answers(output.lengths.float().cpu(), batch.targets, squared, counted))
    return results


def measure(model: Model, results: Sequence[Answers], originals: np.ndarray | None = None) -> Evaluation:
    """The metrics of a model's answers to a data set; ``originals``: see ``Dataset.originals``."""
    scores = torch.cat([answer.lengths for answer in results]).numpy()
    truth = torch.cat([answer.targets for answer in results]).numpy()
    counted, squared = any(answer.counted for answer in results), sum(answer.squared for answer in results)
    threshold = None if counted else PRESENT
    result = summarise(scores, truth, class_names=model.class_names, threshold=threshold, originals=originals)
    if squared:
        result["reconstruction_error"] = squared / len(scores)
    return Evaluation(result, scores, truth)


def check_fit(model: Model, dataset: Dataset) -> None:
    """Refuse a data set that the model cannot take, before anything runs."""
    check_kind("the model", model.takes_texts, dataset)
    if model.takes_texts and words_of(model).vocabulary != dataset.vocabulary:
        raise ValueError(f"the model was trained with other words than those of {dataset.name}")
    takes = (model.in_channels, *model.image_size, model.num_classes)
    gives = (dataset.channels, *dataset.image_size, dataset.num_classes)
    if takes != gives:
        words = "{}x{}x{} images and {} classes"
        raise ValueError(f"the model takes {words.format(*takes)}, {dataset.name} has {words.format(*gives)}")


def check_kind(model: str, takes_texts: bool, dataset: Dataset) -> None:
    """Refuse texts for a model of pictures, and pictures for a model of texts."""
    if takes_texts != bool(dataset.vocabulary):
        kinds = ("pictures", "texts") if takes_texts else ("texts", "pictures")
        raise ValueError(f"{dataset.name} has {kinds[0]}, but {model} takes {kinds[1]}: choose another")


def pick_device(name: str = "auto") -> torch.device:
    """The device to compute on; "auto" takes CUDA, then Apple's MPS, then the CPU."""
    known = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next(device for device in ("cuda", "mps", "cpu") if known[device]))
    if not known.get(name.partition(":")[0], False):
        names = ", ".join(device for device, available in known.items() if available)
        raise ValueError(f"device {name!r} is not available here: choose auto or one of {names}")
    return torch.device(name)


def sweep_dimensions(model: Model, poses: Tensor, label: int, offsets: Sequence[float] = OFFSETS) -> Tensor:
    """Move one dimension of one capsule at a time and decode the result [Figure 4].

    Shapes: ``poses`` (J, D) of one example, ``label`` the capsule's class -> pictures (D, S, C, H, W).
    """
    D, S = poses.shape[-1], len(offsets)
    moves = torch.eye(D, device=poses.device)[:, None, :] * torch.tensor(offsets, device=poses.device)[None, :, None]
    moved = poses.expand(D * S, -1, -1).clone()
    moved[:, label] += moves.reshape(D * S, D)
    with evaluating(model):
        return model.decode(moved, torch.full((D * S,), label, device=poses.device)).unflatten(0, (D, S))
