"""PathNet: does a second task make the network forget the first, and does it learn faster along frozen modules?

Fernando et al. 2017 (arXiv 1701.08734) evolve paths through layers of modules: two paths are drawn from a population,
both are trained for 50 batches of 16, and the one that was right less often is replaced by a mutated copy of the other.
When the first task is learnt its best path is frozen, everything else starts anew, and a second population evolves for
the second task; it may run through frozen modules. The paper's first experiment has pairs of binary MNIST tasks under
50 % salt-and-pepper noise. The population of 20 is the one its first author gave later (the paper's text says 64).

Beside it: a new network for the second task ("from scratch"), and going on along the first task's path ("fine-tuning").

The claims to look at: task A is not forgotten (its logits stay equal to the bit), and task B needs fewer generations
than from scratch.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsnet import create_model, data
from capsnet.data import keyed
from capsnet.drawing.animation import render, save_gif
from capsnet.drawing.style import BLUE, FAINT, INK, MUTED, VERMILLION, figure, heading, text
from capsnet.experiments._registry import register
from capsnet.experiments._report import Measure, Report, Table
from capsnet.experiments.lab import Lab
from capsnet.models import PathNet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POPULATION, BATCHES, BATCH, LR = 20, 50, 16, 0.05
LAYERS, MODULES, ACTIVE = 3, 10, 3
NOISE = 0.5  # share of the pixels that become black or white
PAIRS = [((6, 7), (4, 5)), ((5, 6), (1, 9)), ((2, 3), (0, 8)), ((1, 7), (3, 5)), ((0, 6), (8, 9))]
PAIRS += [((4, 9), (2, 7)), ((3, 8), (5, 6)), ((0, 1), (6, 9)), ((2, 8), (1, 4)), ((7, 9), (0, 3))]


class Task(NamedTuple):
    """Two digits to tell apart: noisy training and test images with labels 0 and 1."""

    digits: tuple[int, int]
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


class Evolved(NamedTuple):
    """What a population came to: the best path, generations, and each generation's accuracy and population."""

    path: list[list[int]]
    generations: int
    accuracy: list[float]
    populations: list[np.ndarray]  # (POPULATION, LAYERS, ACTIVE) each


def load_task(digits: tuple[int, int]) -> Task:
    def split(name: str) -> tuple[Tensor, Tensor]:
        batch = next(data.batches(source := data.load("mnist", name), len(source)))
        chosen = torch.isin(batch.targets, torch.tensor(digits))
        images, labels = batch.images[chosen], (batch.targets[chosen] == digits[1]).long()
        u = keyed.uniform(digits[0], digits[1], np.arange(len(images)), 2 * images[0].numel(), f"pathnet-{name}")
        where, value = (torch.from_numpy(part).float().reshape(images.shape) for part in np.split(u, 2, axis=1))
        return torch.where(where < NOISE, (value < 0.5).float(), images), labels

    return Task(digits, split("train"), split("test"))


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
    for _ in range(most):
        rows = torch.from_numpy(rng.integers(0, len(task.train[1]), (2, BATCHES, BATCH)))
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
        if scores[-1] >= target:
            break
    model.choose(winner.tolist())
    return Evolved(winner.tolist(), len(scores), scores, populations)


def one_pair(lab: Lab, number: int) -> tuple[dict[str, Any], list[tuple[str, Evolved, np.ndarray]]]:
    """Both tasks of a pair, three ways. Also what the animation needs: title, evolution, frozen modules."""
    most, target = lab.pick((4, 0.9), (150, 0.96), (500, 0.998))
    first, second = (load_task(digits) for digits in PAIRS[number])
    torch.manual_seed(number)
    model = create_model("pathnet", num_classes=2, layers=LAYERS, modules=MODULES, active=ACTIVE)
    assert isinstance(model, PathNet)
    a = evolve(model, first, most, target, 2 * number)
    before = accuracy(model, first)
    probe = first.test[0][:200]
    with torch.no_grad():
        logits = model(probe).logits
    head = {name: tensor.clone() for name, tensor in model.head.state_dict().items()}
    learnt = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    model.freeze()
    frozen = model.frozen.numpy().copy()
    b = evolve(model, second, most, target, 2 * number + 1)
    after_b = accuracy(model, second)
    reused = sum(int(frozen[layer, gene]) for layer, genes in enumerate(b.path) for gene in set(genes))
    model.choose(a.path)
    model.head.load_state_dict(head)
    with torch.no_grad():
        again = model(probe).logits
    assert logits is not None
    assert again is not None

    tuned = create_model("pathnet", num_classes=2, layers=LAYERS, modules=MODULES, active=ACTIVE)
    assert isinstance(tuned, PathNet)
    tuned.load_state_dict(learnt)
    rows = np.random.default_rng(number).integers(0, len(second.train[1]), (2 * BATCHES * b.generations, BATCH))
    practise(tuned, second, torch.from_numpy(rows))
    tuned_b = accuracy(tuned, second)
    tuned.head.load_state_dict(head)

    torch.manual_seed(1000 + number)
    fresh = create_model("pathnet", num_classes=2, layers=LAYERS, modules=MODULES, active=ACTIVE)
    assert isinstance(fresh, PathNet)
    c = evolve(fresh, second, most, target, 2 * number + 1)
    result = {
        "task A": list(first.digits),
        "task B": list(second.digits),
        "A": before,
        "A after B, frozen path": accuracy(model, first),
        "logits equal to the bit": bool(torch.equal(logits, again)),
        "A after B, fine-tuning": accuracy(tuned, first),
        "B, frozen path": after_b,
        "B, fine-tuning": tuned_b,
        "B, from scratch": accuracy(fresh, second),
        "generations of A": a.generations,
        "generations of B, frozen path": b.generations,
        "generations of B, from scratch": c.generations,
        "frozen modules of B": reused,
        "modules of B": sum(len(set(genes)) for genes in b.path),
        "reached": {"A": a.accuracy[-1] >= target, "B": b.accuracy[-1] >= target, "scratch": c.accuracy[-1] >= target},
    }
    names = [f"task A: {first.digits[0]} or {first.digits[1]}", f"task B: {second.digits[0]} or {second.digits[1]}"]
    return result, [(names[0], a, np.zeros_like(frozen)), (names[1], b, frozen)]


@register("pathnet", "PathNet: forgetting and transfer between pairs of noisy binary MNIST tasks")
def run(lab: Lab) -> Report:
    most, target = lab.pick((4, 0.9), (150, 0.96), (500, 0.998))
    count = lab.pick(1, 3, len(PAIRS))
    report = Report(
        differs=[
            f"Until {100 * target:g} % of the images practised on are right, or for {most} generations; the paper's "
            "99.8 % takes hours here.",
            f"Plain gradient descent with learning rate {LR}; the paper's is not given.",
            "Noise is drawn once for each image.",
        ]
    )
    results, scenes = [], []
    for number in range(count):
        result, evolved = one_pair(lab, number)
        results.append(result)
        scenes = scenes or evolved
    report.raw = {"pairs": results}
    columns = ["A", "A after B, frozen path", "A after B, fine-tuning", "B, frozen path", "B, fine-tuning"]
    columns += ["B, from scratch"]
    report.measures = [Measure(f"accuracy on {name}", [100 * r[name] for r in results]) for name in columns]
    for way in ("frozen path", "from scratch"):
        key = f"generations of B, {way}"
        report.measures.append(Measure(key, [float(r[key]) for r in results], ""))
    heads = [
        "A",
        "B",
        "A alone",
        "A after B, frozen",
        "A after B, fine-tuned",
        "B frozen / scratch",
        "generations",
        "reused",
    ]
    report.tables = [Table("Each pair of tasks, test accuracy in percent", heads, [row(r) for r in results])]
    report.findings = findings(results)
    path = draw_animation(lab, scenes, lab.pick(4, 40, 40))
    report.draw(path, "The population of the first pair: how many of its paths use each module; frozen ones in blue.")
    return report


def row(r: dict[str, Any]) -> list[str]:
    percent = {name: f"{100 * r[name]:.1f}" for name in r if isinstance(r[name], float)}
    return [
        "/".join(map(str, r["task A"])),
        "/".join(map(str, r["task B"])),
        percent["A"],
        percent["A after B, frozen path"],
        percent["A after B, fine-tuning"],
        f"{percent['B, frozen path']} / {percent['B, from scratch']}",
        f"{r['generations of B, frozen path']} / {r['generations of B, from scratch']}",
        f"{r['frozen modules of B']} of {r['modules of B']}",
    ]


def findings(results: list[dict[str, Any]]) -> list[str]:
    same = sum(r["logits equal to the bit"] for r in results)
    lost = [100 * (r["A"] - r["A after B, fine-tuning"]) for r in results]
    faster = sum(r["generations of B, frozen path"] < r["generations of B, from scratch"] for r in results)
    slower = sum(r["generations of B, frozen path"] > r["generations of B, from scratch"] for r in results)
    missed = sum(not all(r["reached"].values()) for r in results)
    words = [
        f"With a frozen path the logits of task A stay equal to the bit in {same} of {len(results)} pairs.",
        f"Fine-tuning on task B costs {min(lost):.1f} to {max(lost):.1f} points of accuracy on task A.",
        f"Task B needs fewer generations with frozen modules than from scratch in {faster} of {len(results)} pairs and "
        f"more in {slower}: "
        + ("a speed-up." if faster == len(results) > 2 else "no speed-up can be claimed from these."),
    ]
    if missed:
        words.append(f"In {missed} pairs a task did not reach the target; its number of generations is the limit.")
    return words


def draw_animation(lab: Lab, scenes: list[tuple[str, Evolved, np.ndarray]], frames: int) -> Any:
    pictures, times = [], []
    for title, evolved, frozen in scenes:
        shown = np.unique(np.linspace(0, evolved.generations - 1, frames).round().astype(int))
        for g in shown:
            pictures.append(render(draw_frame(title, evolved, int(g), frozen)))
            times.append(100)
        times[-1] = 2000
    return save_gif(lab.figure("pathnet.gif"), pictures, times)


def draw_frame(title: str, evolved: Evolved, generation: int, frozen: np.ndarray) -> "Figure":
    fig = figure(7.2, 3.9)
    ax = fig.add_axes((0.03, 0.05, 0.6, 0.74))
    ax.set(xlim=(-0.7, MODULES - 0.3), ylim=(-0.6, LAYERS - 0.4))
    ax.set_axis_off()
    population = evolved.populations[generation]
    for layer in range(LAYERS):
        used = np.array([(population[:, layer] == k).any(axis=1).mean() for k in range(MODULES)])
        for k in range(MODULES):
            colour = BLUE if frozen[layer, k] else VERMILLION
            ax.plot([k], [layer], "o", color=FAINT, markersize=23)
            ax.plot([k], [layer], "o", color=colour, markersize=2 + 21 * float(np.sqrt(used[k])))
        text(ax, -0.68, layer + 0.42, f"layer {layer + 1}", 9, MUTED)
    heading(ax, title, "Each dot is a module: the larger, the more paths of the population use it. Blue: frozen.")
    right = fig.add_axes((0.7, 0.17, 0.27, 0.56))
    right.plot(100 * np.array(evolved.accuracy[: generation + 1]), color=INK, linewidth=1.6)
    right.set(xlim=(0, max(2, evolved.generations)), ylim=(45, 101))
    right.set_xlabel("generation", fontsize=9, color=MUTED)
    right.set_title("right while practising, %", fontsize=9, color=MUTED)
    right.spines[["top", "right"]].set_visible(False)
    right.tick_params(labelsize=8, colors=MUTED)
    return fig
