"""PathNet: does a second task make the network forget the first, and does it learn faster along frozen modules?

Fernando et al. 2017 (arXiv 1701.08734) evolve paths through layers of modules: two paths are drawn from a population,
both are trained for 50 batches of 16, and the one that was right less often is replaced by a mutated copy of the other.
When the first task is learnt its best path is frozen, everything else starts anew, and a second population evolves for
the second task; it may run through frozen modules. The paper's first experiment has pairs of binary MNIST tasks under
50 % salt-and-pepper noise. The population of 20 (the paper's text says 64) and the mean in the last aggregation are
those that its first author gave later.

Beside it: a new network for the second task ("from scratch"), and going on along the first task's path with the first
task's weights ("fine-tuning"), each until the second task has reached the same accuracy. A last pair has all of MNIST,
then all of Fashion-MNIST, without noise, where the files are.

The claims to look at: task A is not forgotten (its logits stay equal to the bit), and task B needs fewer generations
than from scratch.
"""

import logging
import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from capsnet.drawing.animation import render, save_gif
from capsnet.drawing.style import BLUE, FAINT, INK, MUTED, VERMILLION, figure, heading, text
from capsnet.experiments._claims import Claim, past
from capsnet.experiments._pathnet import (
    LAYERS,
    LR,
    MODULES,
    SETTINGS,
    Evolved,
    Task,
    accuracy,
    build,
    digits_task,
    evolve,
    reuse,
    tune,
    whole_task,
)
from capsnet.experiments._registry import register
from capsnet.experiments._report import Measure, Report, Table
from capsnet.experiments.lab import Lab
from capsnet.metrics import mean_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger("capsnet")
PAIRS = [((6, 7), (4, 5)), ((5, 6), (1, 9)), ((2, 3), (0, 8)), ((1, 7), (3, 5)), ((0, 6), (8, 9))]
PAIRS += [((4, 9), (2, 7)), ((3, 8), (5, 6)), ((0, 1), (6, 9)), ((2, 8), (1, 4)), ((7, 9), (0, 3))]
WAYS = ("frozen path", "fine-tuning", "from scratch")  # to learn task B


class Goal(NamedTuple):
    """When a population stops: the share that must be right, and the largest number of generations."""

    first: float
    second: float
    most: int


def goals(lab: Lab) -> tuple[Goal, Goal]:
    """Of the binary pairs, and of the pair of whole data sets."""
    return lab.pick(
        (Goal(0.9, 0.9, 4), Goal(0.9, 0.8, 4)),
        (Goal(0.96, 0.96, 150), Goal(0.92, 0.82, 150)),
        (Goal(0.998, 0.998, 500), Goal(0.95, 0.85, 500)),
    )


def one_pair(first: Task, second: Task, goal: Goal, number: int) -> dict[str, Any]:
    """Both tasks of a pair, three ways, as plain numbers; with the populations, which the animation needs."""
    model = build(first.classes, number)
    a = evolve(model, first, goal.most, goal.first, 2 * number)
    before = accuracy(model, first)
    probe = first.test[0][:200]
    with torch.no_grad():
        logits = model(probe).logits
    head = {name: tensor.clone() for name, tensor in model.head.state_dict().items()}
    learnt = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    model.freeze()
    frozen = model.frozen.numpy().copy()
    b = evolve(model, second, goal.most, goal.second, 2 * number + 1)
    after_b = accuracy(model, second)
    shared, chance = reuse(b.path, frozen)
    model.choose(a.path)
    model.head.load_state_dict(head)
    with torch.no_grad():
        again = model(probe).logits
    assert logits is not None
    assert again is not None

    tuned = build(first.classes, number)
    tuned.load_state_dict(learnt)
    scores = tune(tuned, second, goal.most, goal.second, 2 * number + 1)
    tuned_b = accuracy(tuned, second)
    tuned.head.load_state_dict(head)

    fresh = build(first.classes, 1000 + number)
    c = evolve(fresh, second, goal.most, goal.second, 2 * number + 1)
    last = {"A": a.accuracy[-1] >= goal.first, "frozen path": b.accuracy[-1] >= goal.second}
    last |= {"fine-tuning": scores[-1] >= goal.second, "from scratch": c.accuracy[-1] >= goal.second}
    return {
        "task A": first.name,
        "task B": second.name,
        "A": before,
        "A after B, frozen path": accuracy(model, first),
        "logits equal to the bit": bool(torch.equal(logits, again)),
        "A after B, fine-tuning": accuracy(tuned, first),
        "B, frozen path": after_b,
        "B, fine-tuning": tuned_b,
        "B, from scratch": accuracy(fresh, second),
        "generations of A": a.generations,
        "generations of B, frozen path": b.generations,
        "generations of B, fine-tuning": len(scores),
        "generations of B, from scratch": c.generations,
        "reused modules by layer": shared,
        "reused by a random path": chance,
        "modules of B": sum(len(set(genes)) for genes in b.path),
        "reached": last,
        "evolution": {"A": plain(a), "B": plain(b), "frozen": frozen.tolist()},
    }


def plain(evolved: Evolved) -> dict[str, Any]:
    return evolved._asdict() | {"populations": [one.tolist() for one in evolved.populations]}


def whole_pair() -> tuple[Task, Task] | None:
    """MNIST, then Fashion-MNIST; None where its files are not at hand."""
    try:
        return whole_task("mnist"), whole_task("fashion-mnist")
    except OSError as error:
        log.warning("%s; continuing without Fashion-MNIST", error)
        return None


def pairs(lab: Lab) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return PAIRS[: lab.pick(1, len(PAIRS), len(PAIRS))]


def settings(lab: Lab) -> dict[str, Any]:
    """What decides the numbers: its networks are not trained by ``lab.train``, which would record it."""
    return SETTINGS | {"pairs": pairs(lab), "goals": [goal._asdict() for goal in goals(lab)]}


TITLE = "PathNet: forgetting and transfer between pairs of tasks, noisy binary MNIST and Fashion-MNIST"


def claims(report: Report) -> list[Claim]:
    """That the first task is not forgotten, and that its frozen path makes the second one faster."""
    pairs = report.raw["pairs"]
    same = sum(pair["logits equal to the bit"] for pair in pairs)
    kept = Claim(
        "With a frozen path the first task is not forgotten",
        "Fernando et al. 2017",
        "holds" if same == len(pairs) else "does not hold",
        f"The logits of the first task stay equal to the bit in {same} of {len(pairs)} pairs of tasks.",
    )
    binary = [pair for pair in pairs if pair["task A"] != "mnist"]
    mean, low, high = ratio(binary, "frozen path")
    faster = past(
        "A frozen path makes the second task faster",
        "Fernando et al. 2017",
        [(Measure("", [mean], "", interval=(low, high)), 1.0, True)],
        f"From scratch the second task takes {speed(binary, 'frozen path')} as many generations.",
    )
    return [kept, faster]


@register("pathnet", TITLE, settings=settings, claims=claims)
def run(lab: Lab) -> Report:
    binary, whole = goals(lab)
    results = []
    for number, (a, b) in enumerate(pairs(lab)):
        inputs = {"tasks": [a, b], "goal": binary._asdict(), "number": number} | SETTINGS
        results.append(
            lab.remember(
                "pair", lambda a=a, b=b, n=number: one_pair(digits_task(a), digits_task(b), binary, n), **inputs
            )
        )
    pair = whole_pair() if lab.budget != "smoke" else None
    inputs = {"tasks": "mnist, fashion-mnist", "goal": whole._asdict()} | SETTINGS
    fashion = []
    if pair is not None:
        first, second = pair
        fashion = [lab.remember("pair", lambda: one_pair(first, second, whole, len(PAIRS)), **inputs)]
    report = Report(differs=differences(binary, whole, bool(fashion)))
    report.raw = {"pairs": [{k: v for k, v in r.items() if k != "evolution"} for r in results + fashion]}
    columns = ["A", "A after B, frozen path", "A after B, fine-tuning", *(f"B, {way}" for way in WAYS)]
    words = "noisy binary pairs, test accuracy on"
    report.measures = [Measure(f"{words} {name}", [100 * r[name] for r in results]) for name in columns]
    report.measures += [
        Measure(f"noisy binary pairs, {key}", [float(r[key]) for r in results], "")
        for key in (f"generations of B, {way}" for way in WAYS)
    ]
    heads = ["A", "B", "A alone", "A after B, frozen", "A after B, fine-tuned", "B frozen / tuned / scratch"]
    heads += ["generations", "reused by layer"]
    report.tables = [Table("Each pair of tasks, test accuracy in percent", heads, [row(r) for r in results + fashion])]
    report.findings = findings(results, "Noisy binary pairs")
    report.findings += findings(fashion, "MNIST, then Fashion-MNIST") if fashion else []
    path = draw_animation(lab, results[0], lab.pick(4, 40, 40))
    report.draw(path, "The population of the first pair: how many of its paths use each module; frozen ones in blue.")
    return report


def differences(binary: Goal, whole: Goal, fashion: bool) -> list[str]:
    words = [
        f"Binary pairs: until {100 * binary.first:g} % of the images practised on are right, or for {binary.most} "
        "generations. The paper goes on to 99.8 %.",
        f"Plain gradient descent with learning rate {LR}; the paper's is 0.0001, as other implementations note.",
        "Noise is drawn once for each image.",
        "A generation of fine-tuning has as many steps as one of evolution, where two paths share them.",
    ]
    if fashion:
        words.append(
            f"MNIST, then Fashion-MNIST: until {100 * whole.first:g} % and {100 * whole.second:g} %; the paper's own "
            "second pair is CIFAR-10 and SVHN."
        )
    return words


def row(r: dict[str, Any]) -> list[str]:
    percent = {name: f"{100 * r[name]:.1f}" for name in r if isinstance(r[name], float)}
    most = [f"{r[f'generations of B, {way}']}{'' if r['reached'][way] else '+'}" for way in WAYS]
    return [
        r["task A"],
        r["task B"],
        percent["A"],
        percent["A after B, frozen path"],
        percent["A after B, fine-tuning"],
        " / ".join(percent[f"B, {way}"] for way in WAYS),
        " / ".join(most),
        f"{', '.join(str(len(layer)) for layer in r['reused modules by layer'])} of {r['modules of B']}",
    ]


def ratio(results: list[dict[str, Any]], way: str) -> tuple[float, float, float]:
    """Generations from scratch over those of a way, geometric mean with its 95 % interval over the pairs."""
    logs = [math.log(r["generations of B, from scratch"] / r[f"generations of B, {way}"]) for r in results]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), 0.0, math.inf
    low, high = mean_interval(logs)
    return math.exp(mean), math.exp(low), math.exp(high)


def speed(results: list[dict[str, Any]], way: str) -> str:
    """How many times as many generations a new network takes, and whether that is more than chance."""
    mean, low, high = ratio(results, way)
    if len(results) < 2:
        return f"{mean:.2f} times (one pair decides nothing)"
    verdict = "a speed-up" if low > 1 else "a slow-down" if high < 1 else "no difference that so many pairs can show"
    return f"{mean:.2f} times (95 %: {low:.2f} to {high:.2f}, {verdict})"


def findings(results: list[dict[str, Any]], name: str) -> list[str]:
    count = len(results)
    same = sum(r["logits equal to the bit"] for r in results)
    lost = [100 * (r["A"] - r["A after B, fine-tuning"]) for r in results]
    reused = sum(len(layer) for r in results for layer in r["reused modules by layer"])
    chance = sum(r["reused by a random path"] for r in results)
    used = sum(r["modules of B"] for r in results)
    costs = f"{min(lost):.1f} to {max(lost):.1f}" if count > 1 else f"{lost[0]:.1f}"
    words = [
        f"{name}: with a frozen path the logits of task A stay equal to the bit in {same} of {count}; fine-tuning on "
        f"task B costs {costs} points of accuracy on task A.",
        f"{name}: from scratch task B takes {speed(results, 'frozen path')} as many generations as with frozen "
        f"modules, and {speed(results, 'fine-tuning')} as many as with fine-tuning.",
        f"{name}: of the {used} modules on the paths of task B {reused} are frozen ones of task A; random paths would "
        f"have {chance:.0f}.",
    ]
    missed = sum(not all(r["reached"].values()) for r in results)
    if missed:
        words.append(
            f"{name}: in {missed} of {count} a task did not reach its accuracy; its number of generations (+) is the "
            "limit, and the ratios above are too close to 1."
        )
    return words


def draw_animation(lab: Lab, result: dict[str, Any], frames: int) -> Path:
    stored = result["evolution"]
    frozen = np.array(stored["frozen"])
    pictures, times = [], []
    for key, fixed in (("A", np.zeros_like(frozen)), ("B", frozen)):
        evolved = Evolved(**stored[key])
        shown = np.unique(np.linspace(0, evolved.generations - 1, frames).round().astype(int))
        for g in shown:
            title = f"task {key}: {result[f'task {key}']}"
            pictures.append(render(draw_frame(title, evolved, int(g), fixed)))
            times.append(100)
        times[-1] = 2000
    return save_gif(lab.figure("pathnet.gif"), pictures, times)


def draw_frame(title: str, evolved: Evolved, generation: int, frozen: np.ndarray) -> "Figure":
    fig = figure(7.2, 3.9)
    ax = fig.add_axes((0.03, 0.05, 0.6, 0.74))
    ax.set(xlim=(-0.7, MODULES - 0.3), ylim=(-0.6, LAYERS - 0.4))
    ax.set_axis_off()
    population = np.array(evolved.populations[generation])
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
