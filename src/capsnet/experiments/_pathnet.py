"""The machinery of ``pathnet``: tasks, training along a path, tournaments in a population of paths."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsnet import create_model, data
from capsnet.data import keyed
from capsnet.models import PathNet

POPULATION, BATCHES, BATCH, LR = 20, 50, 16, 0.05
LAYERS, MODULES, ACTIVE = 3, 10, 3
NOISE = 0.5  # share of the pixels that become black or white
SETTINGS = {"population": POPULATION, "batches": BATCHES, "batch": BATCH, "lr": LR, "noise": NOISE}
SETTINGS |= {"layers": LAYERS, "modules": MODULES, "active": ACTIVE}


class Task(NamedTuple):
    """What to tell apart: training and test images with their labels."""

    name: str
    classes: int
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


class Evolved(NamedTuple):
    """What a population came to: the best path, each generation's accuracy, and its population."""

    path: list[list[int]]
    accuracy: list[float]
    populations: list[np.ndarray]  # (POPULATION, LAYERS, ACTIVE) each

    @property
    def generations(self) -> int:
        return len(self.accuracy)


def whole(spec: str, split: str) -> tuple[Tensor, Tensor]:
    batch = next(data.batches(source := data.load(spec, split), len(source)))
    return batch.images, batch.targets


def digits_task(digits: tuple[int, int]) -> Task:
    """Two digits under salt and pepper, drawn once for each image."""

    def part(split: str) -> tuple[Tensor, Tensor]:
        images, labels = whole("mnist", split)
        chosen = torch.isin(labels, torch.tensor(digits))
        images, labels = images[chosen], (labels[chosen] == digits[1]).long()
        u = keyed.uniform(digits[0], digits[1], np.arange(len(images)), 2 * images[0].numel(), f"pathnet-{split}")
        where, value = (torch.from_numpy(half).float().reshape(images.shape) for half in np.split(u, 2, axis=1))
        return torch.where(where < NOISE, (value < 0.5).float(), images), labels

    return Task(f"{digits[0]} or {digits[1]}", 2, part("train"), part("test"))


def whole_task(spec: str) -> Task:
    """All classes of a data set, as it is."""
    train = whole(spec, "train")
    return Task(spec, int(train[1].max()) + 1, train, whole(spec, "test"))


def build(classes: int, seed: int) -> PathNet:
    torch.manual_seed(seed)
    model = create_model("pathnet", num_classes=classes, layers=LAYERS, modules=MODULES, active=ACTIVE)
    assert isinstance(model, PathNet)
    return model


def practise(model: PathNet, task: Task, rows: Tensor) -> float:
    """Train along the current path on the images of ``rows`` (batches, size); the share that was right before."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    images, labels = task.train
    right = 0
    for row in rows:
        output = model(images[row])
        assert output.logits is not None
        right += int((output.logits.argmax(dim=1) == labels[row]).sum())
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(output.logits, labels[row]).backward()
        optimizer.step()
    return right / rows.numel()


def accuracy(model: PathNet, task: Task) -> float:
    images, labels = task.test
    with torch.no_grad():
        return float((model(images).lengths.argmax(dim=1) == labels).float().mean())


def draw_rows(task: Task, rng: np.random.Generator) -> Tensor:
    """The images that the two paths of a generation practise on: (2, BATCHES, BATCH)."""
    return torch.from_numpy(rng.integers(0, len(task.train[1]), (2, BATCHES, BATCH)))


def mutate(path: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each gene moves by up to 2 modules with probability 1 / (layers x active)."""
    moved = rng.random(path.shape) < 1 / path.size
    return np.where(moved, (path + rng.integers(-2, 3, path.shape)) % MODULES, path)


def evolve(model: PathNet, task: Task, most: int, target: float, seed: int) -> Evolved:
    """Tournaments of two until the winner was right for ``target`` of the images it practised on, or ``most`` times."""
    rng = np.random.default_rng(seed)
    population = rng.integers(0, MODULES, (POPULATION, LAYERS, ACTIVE))
    scores, populations = [], []
    winner = population[0]
    while len(scores) < most and (not scores or scores[-1] < target):
        rows = draw_rows(task, rng)
        pair = rng.choice(POPULATION, 2, replace=False)
        fitness = []
        for k, own in zip(pair, rows, strict=True):
            model.choose(population[k].tolist())
            fitness.append(practise(model, task, own))
        best, worst = (pair[0], pair[1]) if fitness[0] >= fitness[1] else (pair[1], pair[0])
        winner = population[best].copy()
        population[worst] = mutate(winner, rng)
        scores.append(max(fitness))
        populations.append(population.copy())
    model.choose(winner.tolist())
    return Evolved(winner.tolist(), scores, populations)


def tune(model: PathNet, task: Task, most: int, target: float, seed: int) -> list[float]:
    """Go on along the current path, as much training in a generation as two paths have; each generation's accuracy."""
    rng = np.random.default_rng(seed)
    scores: list[float] = []
    while len(scores) < most and (not scores or scores[-1] < target):
        scores.append(max(practise(model, task, own) for own in draw_rows(task, rng)))
    return scores


def reuse(path: Sequence[Sequence[int]], frozen: np.ndarray) -> tuple[list[list[int]], float]:
    """The frozen modules on a path, layer by layer, and how many a random path with as many modules would have."""
    shared = [sorted(gene for gene in set(genes) if frozen[layer, gene]) for layer, genes in enumerate(path)]
    chance = sum(len(set(genes)) * float(frozen[layer].mean()) for layer, genes in enumerate(path))
    return shared, chance
