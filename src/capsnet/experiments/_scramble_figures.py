"""The figures of `scramble`: pairs of pictures with both answers, ROC curves, histograms of the scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capsnet.drawing.plots import COLOURS, LABEL, TICK, tidy
from capsnet.drawing.style import (
    BLUE,
    FAINT,
    INK,
    MUTED,
    VERMILLION,
    canvas,
    figure,
    heading,
    picture,
    pixels,
    save,
    text,
    tile,
)
from capsnet.experiments._scrambling import THRESHOLD, roc, separation

DASHES = ("-", (0, (6, 2)), (0, (1.5, 1.5)))
ANSWER = 10  # points


class Shown(NamedTuple):
    """One picture of the gallery: what is seen, what the CapsNet draws, and each network's (class, score)."""

    image: np.ndarray  # (C, H, W)
    drawn: np.ndarray  # (C, H, W)
    said: dict[str, tuple[str, float]]
    scrambled: bool


class Curve(NamedTuple):
    """A score to tell intact from scrambled, with one pair of lists per seed."""

    name: str
    runs: list[tuple[list[float], list[float]]]


def gallery(path: str | Path, shown: Sequence[Shown], title: str) -> Path:
    """Pairs side by side, intact left and scrambled right, three pairs to a line."""
    H, W = shown[0].image.shape[1:]
    w, h = tile(W, H, 160)
    nets = list(shown[0].said)
    left, head, gap, between, line = 190, 128, 6, 40, 28
    cell = 2 * (h + gap) + line * len(nets) + 44
    pair = 2 * w + gap + between
    note = f"left: as it was; right: parts rearranged  ·  ✗: at {THRESHOLD} or above, though it is none"
    fig, ax = canvas(left + 3 * pair, head + cell * -(-len(shown) // 6), title, note)
    for n, one in enumerate(shown):
        x = left + n // 2 % 3 * pair + n % 2 * (w + gap)
        y = head + n // 6 * cell
        picture(ax, pixels(one.image[None], 4)[0], x, y, w, h)
        picture(ax, pixels(one.drawn[None], 4)[0], x, y + h + gap, w, h)
        for k, net in enumerate(nets):
            name, score = one.said[net]
            fooled = one.scrambled and score >= THRESHOLD
            faint = MUTED if score < THRESHOLD else INK
            words, style = f"{name}: {score:.2f}{' ✗' if fooled else ''}", "bold" if fooled else "normal"
            below = y + 2 * (h + gap) + 6 + k * line
            text(
                ax,
                x + w / 2,
                below,
                words,
                ANSWER,
                VERMILLION if fooled else faint,
                ha="center",
                va="top",
                weight=style,
            )
    for row in range(-(-len(shown) // 6)):
        y = head + row * cell
        for words, where in (("picture", y + h / 2), ("what the\nCapsNet draws", y + 1.5 * h + gap)):
            text(ax, left - 14, where, words, ANSWER, MUTED, ha="right", va="center")
        for k, net in enumerate(nets):
            text(ax, left - 14, y + 2 * (h + gap) + 6 + k * line, net, ANSWER, MUTED, ha="right", va="top")
    return save(fig, path)


def roc_panels(path: str | Path, panels: Mapping[str, Sequence[Curve]]) -> Path:
    """One square per kind of pictures, a curve per score, a thin one per seed where there are several."""
    fig = figure(4.9 * len(panels), 5.0)
    for n, (name, curves) in enumerate(panels.items()):
        ax = fig.add_axes(((n + 0.12) / len(panels), 0.12, 0.8 / len(panels), 0.7))
        ax.plot([0, 1], [0, 1], color=FAINT, linewidth=1.5)
        for k, curve in enumerate(curves):
            area = float(np.mean([separation(*run) for run in curve.runs]))
            for seed, run in enumerate(curve.runs):
                label = f"{curve.name}, AUC {area:.3f}" if seed == 0 else None
                ax.plot(
                    *roc(*run), color=COLOURS[k], linestyle=DASHES[k], linewidth=2.4 if seed == 0 else 1, label=label
                )
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
        tidy(ax, "scrambled pictures taken for intact", "intact pictures taken for intact" if n == 0 else "")
        ax.grid(axis="x", color=FAINT, linewidth=0.8)
        ax.legend(fontsize=TICK, frameon=False, labelcolor=INK, loc="lower right", handlelength=2.6)
        heading(ax, "Is it really one?" if n == 0 else "", name)
    return save(fig, path, plot=True)


def histograms(path: str | Path, scores: Mapping[tuple[str, str], tuple[list[float], list[float]]]) -> Path:
    """A row per network, a column per kind of pictures: where the scores of intact and scrambled pictures lie."""
    nets, kinds = (list(dict.fromkeys(key[i] for key in scores)) for i in (0, 1))
    fig = figure(5.4 * len(kinds), 3.1 * len(nets) + 0.6)
    edges = np.linspace(0, 1, 21)
    for (net, kind), (intact, scrambled) in scores.items():
        row, column = nets.index(net), kinds.index(kind)
        box = ((column + 0.1) / len(kinds), (len(nets) - row - 0.82) / len(nets), 0.84 / len(kinds), 0.58 / len(nets))
        ax = fig.add_axes(box)
        for values, colour, hatch, label in ((intact, BLUE, "", "intact"), (scrambled, VERMILLION, "///", "scrambled")):
            share = 100 * np.histogram(np.clip(values, 0, 1), edges)[0] / len(values)
            face = "none" if hatch else colour
            ax.stairs(
                share,
                edges,
                fill=True,
                facecolor=face,
                edgecolor=colour,
                alpha=1 if hatch else 0.35,
                hatch=hatch,
                linewidth=0,
            )
            ax.stairs(share, edges, color=colour, linewidth=1.8, label=label)
        ax.axvline(THRESHOLD, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
        above = 100 * np.mean(np.array(scrambled) >= THRESHOLD)
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1.12 * ax.get_ylim()[1])
        tidy(
            ax, "longest capsule" if net == "CapsNet" else "highest probability", "% of pictures" if column == 0 else ""
        )
        if row == column == 0:
            ax.legend(fontsize=LABEL, frameon=False, labelcolor=INK, loc="upper left")
        heading(ax, f"{net}, {kind}", f"{above:.1f} % of the scrambled ones are at {THRESHOLD} or above")
    return save(fig, path, plot=True)
