"""``pathnet``: paths, reuse and ratios worked out by hand."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from capsnet.experiments import _pathnet, pathnet
from capsnet.experiments._pathnet import ACTIVE, BATCH, BATCHES, LAYERS, MODULES, POPULATION, Task
from tests.reference.pathnet import Chance, mutated_path, tournaments

Fitness = Callable[[list[list[int]], list[list[int]]], float]


def task(name: str, seed: int) -> Task:
    """Two easy classes: bright above, bright below."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(200) % 2
    images = 0.2 * torch.rand(200, 1, 28, 28, generator=generator)
    images[labels == seed % 2, :, :14] += 0.7
    images[labels != seed % 2, :, 14:] += 0.7
    return Task(name, 2, (images[:100], labels[:100]), (images[100:], labels[100:]))


def test_reused_modules_are_counted_once_and_beside_chance() -> None:
    frozen = np.zeros((2, MODULES), dtype=bool)
    frozen[0, [1, 4, 7]] = True
    frozen[1, [0]] = True
    shared, chance = _pathnet.reuse([[1, 4, 4], [2, 3, 5]], frozen)
    assert shared == [[1, 4], []]
    assert chance == pytest.approx(2 * 0.3 + 3 * 0.1)


def test_mutation_moves_genes_by_two_at_most() -> None:
    rng = np.random.default_rng(0)
    path = np.full((3, 3), 9)
    moved = np.stack([_pathnet.mutate(path, rng) for _ in range(2000)])
    assert set(np.unique(moved)) == {7, 8, 9, 0, 1}, "modules are in a ring"
    assert (moved != 9).mean() == pytest.approx(1 / 9 * 4 / 5, rel=0.1)


def test_mutation_equals_loop_over_genes() -> None:
    path = np.random.default_rng(1).integers(0, MODULES, (3, 3))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        draws, moves = rng.random((3, 3)).tolist(), rng.integers(-2, 3, (3, 3)).tolist()
        expected = mutated_path(path.tolist(), draws, moves, MODULES)
        assert _pathnet.mutate(path, np.random.default_rng(seed)).tolist() == expected


def chances(rng: np.random.Generator, count: int, images: int) -> Iterator[Chance]:
    """The draws of ``evolve``, in its order."""
    for _ in range(count):
        first, second = rng.integers(0, images, (2, BATCHES, BATCH)).tolist()
        a, b = rng.choice(POPULATION, 2, replace=False).tolist()
        draws, moves = rng.random((LAYERS, ACTIVE)).tolist(), rng.integers(-2, 3, (LAYERS, ACTIVE)).tolist()
        yield Chance((a, b), (first, second), draws, moves)


def by_both(path: list[list[int]], batches: list[list[int]]) -> float:
    """A fitness that any gene and any image may decide."""
    genes = sum((7 * i + 3 * j + 1) * gene for i, layer in enumerate(path) for j, gene in enumerate(layer))
    return (genes + sum(sum(row) for row in batches)) % 101 / 100


def by_path(path: list[list[int]], batches: list[list[int]]) -> float:
    return by_both(path, [])


def tied(path: list[list[int]], batches: list[list[int]]) -> float:
    return 0.5


@pytest.mark.parametrize("fitness", [by_both, by_path, tied])
@pytest.mark.parametrize("target", [0.95, 2.0])
def test_tournaments_equal_loop_over_paths(fitness: Fitness, target: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step by step: who meets, what each sees, who wins, and who is replaced by whose mutated copy."""
    model, some, most = _pathnet.build(2, 0), task("A", 0), 40
    monkeypatch.setattr(_pathnet, "practise", lambda model, _, rows: fitness(model.path.tolist(), rows.tolist()))
    done = _pathnet.evolve(model, some, most, target, seed=3)
    rng = np.random.default_rng(3)
    begin = rng.integers(0, MODULES, (POPULATION, LAYERS, ACTIVE)).tolist()
    expected = tournaments(begin, chances(rng, most, len(some.train[1])), fitness, MODULES, target)
    assert done.accuracy == [one.fitness for one in expected]
    for population, one in zip(done.populations, expected, strict=True):
        assert population.tolist() == one.population
    assert done.path == model.path.tolist() == expected[-1].winner


def test_evolution_stops_at_the_target_and_keeps_the_winner() -> None:
    model = _pathnet.build(2, 0)
    done = _pathnet.evolve(model, task("A", 0), most=6, target=0.5, seed=0)
    assert done.accuracy[-1] >= 0.5
    assert all(score < 0.5 for score in done.accuracy[:-1])
    assert model.path.tolist() == done.path
    assert _pathnet.evolve(_pathnet.build(2, 0), task("A", 0), 1, 2.0, seed=0).generations == 1


def test_pair_keeps_the_first_task_and_its_result_is_plain() -> None:
    goal = pathnet.Goal(0.9, 0.9, 2)
    result = pathnet.one_pair(task("A", 0), task("B", 1), goal, 0)
    assert result["logits equal to the bit"]
    assert result["A after B, frozen path"] == result["A"]
    assert 1 <= result["generations of B, fine-tuning"] <= 2
    assert len(result["evolution"]["B"]["populations"]) == result["generations of B, frozen path"]
    assert len(pathnet.row(result)) == 8


def pair(frozen: int, tuned: int, scratch: int, reached: bool = True) -> dict[str, Any]:
    return {
        "A": 0.95,
        "A after B, fine-tuning": 0.5,
        "logits equal to the bit": True,
        "generations of B, frozen path": frozen,
        "generations of B, fine-tuning": tuned,
        "generations of B, from scratch": scratch,
        "reused modules by layer": [[1], [], [2, 3]],
        "reused by a random path": 2.0,
        "modules of B": 8,
        "reached": {"A": True, "frozen path": reached, "fine-tuning": True, "from scratch": True},
    }


def test_speed_is_a_verdict_of_the_interval() -> None:
    faster = [pair(10, 20, 20), pair(10, 20, 22), pair(10, 20, 18)]
    mean, low, high = pathnet.ratio(faster, "frozen path")
    assert mean == pytest.approx((2 * 2.2 * 1.8) ** (1 / 3))
    assert 1 < low < mean < high
    assert pathnet.speed(faster, "frozen path").endswith("a speed-up)")
    mixed = [pair(10, 20, 20), pair(20, 20, 10), pair(10, 20, 11)]
    assert pathnet.speed(mixed, "frozen path").endswith("no difference that so many pairs can show)")
    assert pathnet.speed(faster[:1], "frozen path").endswith("(one pair decides nothing)")
    assert math.isinf(pathnet.ratio(faster[:1], "frozen path")[2])


def test_findings_name_what_did_not_reach_its_accuracy() -> None:
    sentences = pathnet.findings([pair(10, 20, 20), pair(150, 20, 18, reached=False)], "pairs")
    assert "equal to the bit in 2 of 2" in sentences[0]
    assert "costs 45.0 to 45.0 points" in sentences[0]
    assert (
        "of the 16 modules on the paths of task B 6 are frozen ones of task A; random paths would have 4"
        in sentences[2]
    )
    assert "in 1 of 2 a task did not reach its accuracy" in sentences[3]
