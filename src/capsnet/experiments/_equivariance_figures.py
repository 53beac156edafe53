"""The figures of `equivariance`: the steps, what they change, what is read off, couplings over crowded pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from capsnet.drawing.plots import COLOURS, GREEN, LABEL, MARKERS, TICK, tidy
from capsnet.drawing.style import (
    BLUE,
    FAINT,
    INK,
    MUTED,
    VERMILLION,
    canvas,
    figure,
    frame,
    heading,
    picture,
    pixels,
    save,
    text,
    tile,
)
from capsnet.experiments._crowded import Routed, centres, coupling_map
from capsnet.experiments._equivariance import TRANSFORMATIONS, transform

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WHOLE_COLOURS = (BLUE, GREEN, VERMILLION)


def steps_picture(path: str | Path, digit: Tensor) -> Path:
    """One digit (1, C, H, W) at every step of every transformation."""
    w, h = tile(digit.shape[3], digit.shape[2], 112)
    left, head, gap = 190, 104, 8
    count = max(len(how.amounts) for how in TRANSFORMATIONS.values())
    height = head + len(TRANSFORMATIONS) * (h + 44) + 8
    fig, ax = canvas(
        left + count * (w + gap) + 28, height, "One digit, moved in steps", "framed: as it is in the test split"
    )
    for row, (name, how) in enumerate(TRANSFORMATIONS.items()):
        y = head + row * (h + 44)
        text(ax, left - 16, y + h / 2, f"{name}\n({how.unit})", 10, MUTED, ha="right", va="center")
        for column, amount in enumerate(how.amounts):
            x = left + column * (w + gap)
            picture(ax, pixels(transform(digit, name, amount), 4)[0], x, y, w, h)
            text(ax, x + w / 2, y + h + 4, f"{amount:+.3g}" if amount else "0", 10, ha="center", va="top")
            if not amount:
                frame(ax, x, y, w, h, VERMILLION, 2)
    return save(fig, path)


def change_panels(path: str | Path, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Path:
    """A column per transformation: change of length above, of direction below; a curve with its band per network."""
    wide = len(TRANSFORMATIONS)
    fig = figure(2.4 * wide, 5.6)
    rows = (("length", 100, "change of length, %"), ("angle", 1, "change of direction, °"))
    for r, (what, factor, label) in enumerate(rows):
        top = (
            1.08
            * factor
            * max(max(m[n][what]["high"] + m[n][what]["mean"]) for runs in found.values() for m in runs for n in m)
        )
        for c, (name, how) in enumerate(TRANSFORMATIONS.items()):
            ax = fig.add_axes(((c + 0.16) / wide, 0.5 - 0.41 * r, 0.83 / wide, 0.33))
            for k, (net, runs) in enumerate(found.items()):
                mean, low, high = (
                    factor * np.mean([m[name][what][key] for m in runs], axis=0) for key in ("mean", "low", "high")
                )
                ax.fill_between(how.amounts, low, high, color=COLOURS[k], alpha=0.18, linewidth=0)
                ax.plot(how.amounts, mean, color=COLOURS[k], marker=MARKERS[k], markersize=6, linewidth=2, label=net)
            ax.set_ylim(0, top)
            tidy(ax, f"{name}, {how.unit}" if r else "", label if c == 0 else "")
            ends = (how.amounts[0], 0, how.amounts[-1])
            ax.set_xticks(ends, [f"{value:g}" for value in ends])
            if c:
                ax.set_yticklabels([])
            if r == c == 0:
                note = "above: the capsule's length, the norm of the CNN's last hidden layer; below: their directions"
                heading(ax, "What changes when a digit is moved", f"{note}; bands: quartiles of the test digits")
                ax.legend(fontsize=LABEL, frameon=False, labelcolor=INK, loc="upper center")
    return save(fig, path, plot=True)


def read_out_dots(path: str | Path, rows: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> Path:
    """A line per transformation, a dot with its interval per kind of vector."""
    fig = figure(7.6, 4.6)
    ax = fig.add_axes((0.16, 0.13, 0.8, 0.6))
    readers = list(next(iter(rows.values())))
    worst = 0.0
    for y, row in enumerate(rows.values()):
        for k, reader in enumerate(readers):
            r2, low, high = (float(np.mean([r[key] for r in row[reader]])) for key in ("r2", "low", "high"))
            worst = min(worst, low)
            style = {"color": COLOURS[k], "marker": MARKERS[k], "markersize": 9, "linestyle": "none", "capsize": 4}
            at = y + 0.2 * (k - (len(readers) - 1) / 2)
            ax.errorbar([r2], [at], xerr=[[r2 - low], [high - r2]], label=reader if y == 0 else None, **style)
    tidy(ax, "R² of a linear read-out, on test digits (1: the movement is recovered entirely)", "")
    ax.grid(axis="x", color=FAINT, linewidth=0.8)
    ax.grid(visible=False, axis="y")
    ax.set_yticks(range(len(rows)), list(rows), fontsize=LABEL, color=INK)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(max(-1.0, min(0.0, worst)), 1)
    ax.legend(
        fontsize=TICK,
        frameon=False,
        labelcolor=INK,
        ncols=3,
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        handletextpad=0.2,
    )
    box: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "color": INK}
    ax.annotate(
        "How far was it moved? Read linearly off the network", (0, 1), (0, 36), fontsize=12, weight="bold", **box
    )
    return save(fig, path, plot=True)


def coupling_pictures(path: str | Path, routed: Routed, names: Sequence[str]) -> Path:
    """A row per class, a column per picture: dots where its children are, over the faint picture."""
    H, W = routed.images.shape[2:]
    count, J = len(routed.images), routed.couplings.shape[-1]
    maps = [coupling_map(routed.couplings[-1, n], routed.presence[n], routed.grid) for n in range(count)]
    most = max(float(shares.max()) for shares, _ in maps) - 1 / J
    w, h = tile(W, H, 240)
    left, head, gap = 130, 104, 12
    title, size = "Which parts go to which whole", (left + count * (w + gap) + 20, head + (J + 1) * (h + gap) + 16)
    note = f"dots: coupling above an even split, last iteration (full colour: {100 * most:.0f} points above it); "
    fig, ax = canvas(*size, title, f"{note}larger where children are longer; number: the capsule's length")
    rows, columns = centres(routed.grid)
    y0, x0 = (axis.reshape(routed.grid)[..., 0] for axis in (rows, columns))
    for n, (shares, here) in enumerate(maps):
        x = left + n * (w + gap)
        rgb = pixels(routed.images[n : n + 1], 4)[0]
        picture(ax, rgb, x, head, w, h)
        for j in range(J):
            y, colour, there = head + (j + 1) * (h + gap), WHOLE_COLOURS[j % 3], j in routed.classes[n]
            picture(ax, 1 - 0.28 * rgb, x, y, w, h)
            inside = x + (x0 + 0.5) * w / W, y + (y0 + 0.5) * h / H
            _dots(ax, *inside, (shares[..., j] - 1 / J) / most, here, colour)
            frame(ax, x, y, w, h, colour if there else FAINT, 2.5 if there else 1)
            words = f"{routed.lengths[n, j]:.2f}" if there else f"absent, {routed.lengths[n, j]:.2f}"
            text(ax, x + 8, y + 6, words, 10, INK if there else MUTED, va="top", weight="bold" if there else "normal")
    for j in range(J):
        where = head + (j + 1) * (h + gap) + h / 2
        text(
            ax,
            left - 16,
            where,
            f"to the\n{names[j]}",
            11,
            WHOLE_COLOURS[j % 3],
            ha="right",
            va="center",
            weight="bold",
        )
    text(ax, left - 16, head + h / 2, "picture", 11, MUTED, ha="right", va="center")
    return save(fig, path)


def _dots(ax: "Axes", x: np.ndarray, y: np.ndarray, strength: np.ndarray, here: np.ndarray, colour: str) -> None:
    """Discs of the area of the children's presence, as opaque as they are strong."""
    from matplotlib.colors import to_rgba

    opaque = np.clip(strength, 0, 1).reshape(-1)
    rgba = np.tile(to_rgba(colour), (opaque.size, 1))
    rgba[:, 3] = opaque
    ax.scatter(x.reshape(-1), y.reshape(-1), s=46 * here.reshape(-1) / here.max(), c=rgba, linewidths=0)


def coupling_lines(path: str | Path, shares: Sequence[Mapping[str, Any]]) -> Path:
    """Per iteration, the coupling to the own, the other present and the absent capsule, less an even split's."""
    fig = figure(6.4, 4.4)
    ax = fig.add_axes((0.13, 0.14, 0.62, 0.68))
    even = 100 * shares[0]["chance"]
    ends: list[tuple[float, str, str]] = []
    for k, (key, name) in enumerate(
        (("own", "its own"), ("others", "the other whole's"), ("absent", "the absent one's"))
    ):
        mean, reach = (100 * np.mean([s[what] for s in shares], axis=0) for what in (key, f"{key} interval"))
        steps = range(1, len(mean) + 1)
        ax.fill_between(steps, mean - even - reach, mean - even + reach, color=COLOURS[k], alpha=0.18, linewidth=0)
        ax.plot(steps, mean - even, color=COLOURS[k], marker=MARKERS[k], markersize=8, linewidth=2)
        ends.append((float(mean[-1] - even), f"to {name}: {mean[-1]:.1f} %", COLOURS[k]))
    ax.axhline(0, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    tidy(ax, "routing iteration", f"points above an even split ({even:.1f} %)")
    ax.set_xticks(range(1, len(shares[0]["own"]) + 1))
    low, high = ax.get_ylim()
    above = -np.inf
    for value, words, colour in sorted(ends):
        above = max(value, above + 0.07 * (high - low))
        box: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "color": colour, "weight": "bold"}
        ax.annotate(
            words, (1.0, above), (6, 0), textcoords="offset points", fontsize=LABEL, annotation_clip=False, **box
        )
    note = "coupling to a capsule, mean over children that lie on one of two overlapping wholes; bands: 95 % interval"
    heading(ax, "Which capsule does a part route itself to?", note)
    return save(fig, path, plot=True)
