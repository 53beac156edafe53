"""The figures of ``scramble``: pictures with answers and drawings, ROC curves, histograms of the scores."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from capsnet.drawing.pictures import Cell, Row, Words
from capsnet.drawing.plots import COLOURS, LABEL, TICK, panels, tidy
from capsnet.drawing.style import BLUE, FAINT, INK, MUTED, VERMILLION, heading, save
from capsnet.experiments._scramble import THRESHOLD, roc
from capsnet.experiments.lab import device_of
from capsnet.inference import evaluating
from capsnet.models import Model

Measured = dict[tuple[str, str], list[dict[str, Any]]]  # of a family and a network: what each seed's answered
AXES = {"length": "longest capsule", "presence": "highest presence", "probability": "highest probability"}


def gallery(
    models: dict[str, Model],
    runs: dict[str, dict[str, Any]],
    pictures: dict[str, Tensor],
    classes: list[int],
    names: Sequence[str],
) -> list[Row]:
    """The first test pictures, classes in turn, intact and scrambled; below, what each network draws and answers.

    The answers of networks that draw nothing are below the pictures themselves.
    """
    turn = [classes[:n].count(label) for n, label in enumerate(classes[:200])]
    chosen = sorted(range(len(turn)), key=lambda n: (turn[n], n))[:6]
    silent = [net for net, model in models.items() if not model.draws]
    rows = []
    for three in (chosen[:3], chosen[3:]):
        shown = list(product(three, pictures))
        inputs = [
            Cell(pictures[kind][n].numpy(), [answer(runs[net], kind, n, names) for net in silent]) for n, kind in shown
        ]
        rows.append(Row(inputs, "picture", lines=silent))
        for net, model in models.items():
            if net in silent:
                continue
            cells = [Cell(drawn(model, pictures[kind][n]), [answer(runs[net], kind, n, names)]) for n, kind in shown]
            rows.append(Row(cells, f"drawing\nof the {net}"))
    return rows


def drawn(model: Model, image: Tensor) -> np.ndarray:
    """What the longest or most present capsule draws. Shapes: (C, H, W) -> (C, H, W)"""
    with evaluating(model):
        return model(image[None].to(device_of(model))).reconstruction[0].cpu().numpy()


def answer(run: dict[str, Any], kind: str, n: int, names: Sequence[str]) -> Words:
    """A class with its score, marked where a scrambled picture is accepted."""
    name, score = names[run[kind]["label"][n]], run[kind]["score"][n]
    wrong = kind == "scrambled" and score >= THRESHOLD
    colour = VERMILLION if wrong else MUTED if score < THRESHOLD else INK
    return Words(f"{name}: {score:.2f}{' ✗' * wrong}", colour, wrong)


def draw_roc(path: Path, measured: Measured, families: dict[str, str], scores: dict[str, str]) -> Path:
    """ROC curves, a panel per family: a colour per network, solid by its score, dotted by its drawing."""
    fig, [row] = panels(1, len(families), 4.9, 5.0)
    for ax, (family, words) in zip(row, families.items(), strict=True):
        ax.plot([0, 1], [0, 1], color=FAINT, linewidth=1.5)
        for (net, score), colour in zip(scores.items(), COLOURS, strict=False):
            runs = measured[family, net]
            curves = [("rank", "auc", score, "-"), ("drawing", "auc of drawing", "drawing", ":")]
            for key, area, what, dash in curves if "drawing" in runs[0]["intact"] else curves[:1]:
                name = f"{net}: {what}, AUC {np.mean([run['summary'][area] for run in runs]):.3f}"
                for seed, run in enumerate(runs):
                    false, true = roc(run["intact"][key], run["scrambled"][key])
                    style: dict[str, Any] = {"linewidth": 1} if seed else {"linewidth": 2.4, "label": name}
                    ax.plot(false, true, color=colour, linestyle=dash, **style)
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
        tidy(ax, "scrambled pictures taken for intact", "intact pictures taken for intact")
        ax.grid(axis="x", color=FAINT, linewidth=0.8)
        ax.legend(fontsize=TICK, frameon=False, labelcolor=INK, loc="lower right", handlelength=2.6)
        heading(ax, "Intact or scrambled?", words)
    return save(fig, path, plot=True)


def draw_scores(path: Path, measured: Measured, families: dict[str, str], scores: dict[str, str]) -> Path:
    """Histograms of the scores of the first seed: a row per network, a column per family."""
    (fig, axes), edges = panels(len(scores), len(families), 5.4, 3.4), np.linspace(0, 1, 21)
    fills = {"intact": (BLUE, {"facecolor": BLUE, "alpha": 0.35}),
             "scrambled": (VERMILLION, {"facecolor": "none", "hatch": "///"})}  # fmt: skip
    for ax, (net, family) in zip([ax for row in axes for ax in row], product(scores, families), strict=True):
        first = measured[family, net][0]
        for kind, (colour, fill) in fills.items():
            share = 100 * np.histogram(np.clip(first[kind]["score"], 0, 1), edges)[0] / len(first[kind]["score"])
            ax.stairs(share, edges, fill=True, edgecolor=colour, linewidth=0, **fill)
            ax.stairs(share, edges, color=colour, linewidth=1.8, label=kind)
        ax.axvline(THRESHOLD, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
        ax.set(xlim=(0, 1), ylim=(0, 1.12 * ax.get_ylim()[1]))
        tidy(ax, AXES[scores[net]], "% of pictures")
        note = f"{100 * first['summary']['scrambled']:.1f} % of the scrambled ones are at {THRESHOLD} or above"
        heading(ax, f"{net}, {families[family]}", note)
    axes[0][0].legend(fontsize=LABEL, frameon=False, labelcolor=INK, loc="upper left")
    return save(fig, path, plot=True)
