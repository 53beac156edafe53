"""The trainings of ``small-data``: sets of few real images, the networks that are compared on them, their answers."""

import functools
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsnet import data, recipes
from capsnet._files import expanded
from capsnet.data import FolderDataset
from capsnet.experiments import _calibrated, _linear, _nets, _routed
from capsnet.experiments._faces import faces_spec
from capsnet.experiments._paired import Answers
from capsnet.experiments.lab import Lab, Trained
from capsnet.inference import evaluate, pick_device
from capsnet.kernels import has_bf16
from capsnet.training import TrainConfig

FACES = "faces"
STAND_IN = "shapes:kind=wholes,count=120"  # of the smoke budget: generated, so that it needs no files
PAIRS = {"capsnet-image": "cnn-image", "residual-capsnet": "residual-cnn"}  # capsules, and their plain twins
LINEAR = "linear"


class Task(NamedTuple):
    """A set of images; without folds it has a test split of its own."""

    name: str
    spec: str
    folds: int


def tasks(lab: Lab) -> list[Task]:
    """What the caller named, else the faces."""
    sources = lab.options.get("data") or lab.pick([STAND_IN], [FACES], [FACES])
    found = [task(source, lab.pick(2, 5, 5)) for source in ([sources] if isinstance(sources, str) else sources)]
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise ValueError(f"each set needs a name of its own, got {', '.join(names)}: rename a folder")
    return found


def task(source: str, folds: int) -> Task:
    """A folder (or a CSV file of labels), ``faces``, or the spec of a data set."""
    if source == FACES:
        return Task(FACES, faces_spec(), folds)
    spec = f"folder:{source}" if expanded(source).exists() else source
    path = data.path_of(spec)
    name = spec.partition(":")[0] if path is None else path.parent.name if path.is_file() else path.name
    test = data.load(spec, "test")
    if test.vocabulary or test.batch([0]).targets.ndim > 1:
        raise ValueError(f"{source}: small-data compares networks on images of one class each")
    foldable = isinstance(test, FolderDataset) and not test.has_own_splits
    return Task(name, spec, folds if foldable else 0)


def networks(lab: Lab) -> dict[str, str]:
    """The capsule networks and their twins: both pairs with the budget ``day``, else the recipe's own."""
    return {name: twin for name, twin in PAIRS.items() if name == "capsnet-image" or lab.budget == "day"}


def config(lab: Lab, task: Task, net: str, seed: int, fold: int = 0, routing: str | None = None) -> TrainConfig:
    """The recipe `images` with this network; quick at half width, for 20 epochs. Each seed draws its own folds.

    ``routing`` replaces the network's own.
    """
    spec = data.with_options(task.spec, folds=task.folds, fold=fold, seed=seed) if task.folds else task.spec
    options: dict[str, Any] = {}
    if net == "residual-cnn":
        options = {"widths": [_nets.twin_width(spec, whole=True)]}
    elif net.endswith("-image"):
        options = lab.pick({"width": 8}, {"width": 64}, {})
    length: dict[str, Any] = lab.pick({"epochs": 1, "batch_size": 32}, {"epochs": 20}, {})
    fast = lab.budget != "smoke" and has_bf16() and pick_device(lab.device).type == "cpu"
    changes = {"seed": seed, "precision": "bf16" if fast else "fp32", "tensorboard": False} | length
    if routing is not None:
        exchanged = _routed.exchanged(routing)
        changes["routing"] = exchanged.pop("routing")
        options = options | exchanged
    return recipes.get("images", data=spec, model=net, model_options=options, **changes)


def trainings(lab: Lab, task: Task, net: str, seed: int, routing: str | None = None) -> list[TrainConfig]:
    """One for each fold."""
    return [config(lab, task, net, seed, fold, routing) for fold in range(task.folds or 1)]


class Outcome(NamedTuple):
    """The answers of a kind of network to a set, and what its trainings took."""

    answers: Answers
    calibrated: Answers  # the same, with probabilities that were corrected on the validation split
    parameters: int
    seconds: float  # of processor time for one training, the median


def trained_answers(lab: Lab, task: Task, net: str) -> Outcome:
    parts, seconds, parameters = [], [], 0
    for seed in lab.seeds:
        for one in trainings(lab, task, net, seed):
            done = lab.train(one, figures=False)
            parts.append(lab.remember("calibrated", functools.partial(answer, done, one.data), run=done.folder))
            seconds.append(done.processor or 0.0)
            parameters = done.model.num_parameters() - sum(
                weight.numel() for name, weight in done.model.named_parameters() if name.startswith("decoder.")
            )
    return Outcome(*gathered(parts, len(lab.seeds), task), parameters, float(np.median(seconds)))


def answer(trained: Trained, spec: str) -> dict[str, Any]:
    """The lengths of the test pictures' class capsules as shares of their sum: of a CNN, its probabilities."""

    def shares(part: data.Dataset) -> NDArray:
        lengths = evaluate(trained.model, part).lengths.astype(np.float64)
        return lengths / lengths.sum(axis=1, keepdims=True)

    validation, test = data.load(spec, "validation"), data.load(spec, "test")
    return described(test, shares(test), validation, shares(validation))


def linear_answers(lab: Lab, task: Task) -> Outcome:
    """The linear model has no seed: seeds differ in their folds."""

    def make(spec: str) -> dict[str, Any]:
        parts = [data.load(spec, split) for split in ("train", "validation", "test")]
        start = time.process_time()
        sure, probabilities, strength = _linear.answer(*parts)
        seconds = time.process_time() - start
        height, width = parts[0].image_size
        weights = (parts[0].channels * height * width + 1) * parts[0].num_classes
        facts = {"strength": strength, "parameters": weights, "seconds": seconds}
        return described(parts[2], probabilities, parts[1], sure) | facts

    parts = []
    for seed in lab.seeds:
        for one in trainings(lab, task, "capsnet-image", seed):
            make_one = functools.partial(make, one.data)
            parts.append(lab.remember("linear, calibrated", make_one, spec=data.canonical(one.data)))
    seconds = float(np.median([part["seconds"] for part in parts]))
    return Outcome(*gathered(parts, len(lab.seeds), task), parts[0]["parameters"], seconds)


def described(test: data.Dataset, probabilities: NDArray, validation: data.Dataset, sure: NDArray) -> dict[str, Any]:
    """Answers with the names and groups of the pictures, which are in another order in each fold, before and after they
    are calibrated by ``sure``, the probabilities of the validation split."""
    known = validation.batch(range(len(validation))).targets.numpy()
    calibrated = _calibrated.apply(_calibrated.fit(sure, known), probabilities)
    files = test.files if isinstance(test, FolderDataset) else [str(n) for n in range(len(test))]
    groups = test.groups if isinstance(test, FolderDataset) else [""] * len(files)
    targets = test.batch(range(len(test))).targets.tolist()
    named = zip(files, groups, targets, probabilities.tolist(), calibrated.tolist(), strict=True)
    return {"answers": {file: [group or file, *rest] for file, group, *rest in named}}


def gathered(parts: list[dict[str, Any]], seeds: int, task: Task) -> tuple[Answers, Answers]:
    """All pictures in one order, for each seed, as answered and calibrated."""
    folds, rows = max(task.folds, 1), []
    for seed in range(seeds):
        mine = [part["answers"] for part in parts[seed * folds : (seed + 1) * folds]]
        rows.append({file: (fold, *row) for fold, part in enumerate(mine) for file, row in part.items()})
    files = sorted(rows[0])
    _, groups = np.unique([rows[0][file][1] for file in files], return_inverse=True)
    targets = np.array([rows[0][file][2] for file in files])
    networks = np.array([[row[file][0] for file in files] for row in rows])
    answered, calibrated = (np.array([[row[file][k] for file in files] for row in rows]) for k in (3, 4))
    return Answers(answered, targets, networks, groups), Answers(calibrated, targets, networks, groups)
