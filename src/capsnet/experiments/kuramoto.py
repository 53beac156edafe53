"""The Kuramoto model: oscillators with frequencies of their own, and the coupling at which they lock.

Kuramoto (1975) solved the mean-field model: below K_c = 2 / (pi g(0)), for frequencies distributed as g, there is no
common rhythm; above it a part of the oscillators locks, and the order r follows from one equation. Two things that the
mean field does not show: on a ring with nearest neighbours oscillators on the *circle* may wind around it and stay
twisted, while on a *sphere* they can slip off, which is why networks of oscillators use more than two dimensions; and
identical oscillators with identical couplings can split into a part in step and a part that drifts, a chimera (Abrams,
Strogatz 2004, Phys. Rev. Lett. 93, 174102). Nothing is trained here.

The claims to look at: the order of a simulation is that of the theory, twisted states exist for n = 2 only, and the
chimera appears from several starts.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from capsnet import oscillators
from capsnet.drawing.animation import render, save_gif
from capsnet.drawing.plots import Line, draw_line, panels, tidy
from capsnet.drawing.style import BLUE, FAINT, INK, MUTED, VERMILLION, figure, heading, save, text
from capsnet.experiments._registry import register
from capsnet.experiments._report import Measure, Report, Table
from capsnet.experiments.lab import Lab
from capsnet.oscillators import Distribution, critical_coupling, locked_order, lorentz, normal, order_parameter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DISTRIBUTIONS = (lorentz(), normal())  # of the natural frequencies
RING = 24  # oscillators; the more, the more states are twisted
CHIMERA = {"A": 0.995, "beta": 0.18, "count": 128, "time": 150.0}  # Abrams and Strogatz's, N = 128 instead of 256
WINDOW = 5  # neighbours on each side in the local order


@register("kuramoto", "The Kuramoto model: order against coupling beside the theory, twisted states, a chimera")
def run(lab: Lab) -> Report:
    report = Report(
        differs=[
            "Frequencies are the quantiles of their distribution, not drawn at random: finite samples would blur r.",
            "The chimera has 128 oscillators and runs for 150 units of time; the paper's has 256.",
        ]
    )
    curves = [transition(lab, distribution) for distribution in DISTRIBUTIONS]
    rings = {n: settled(n, lab.pick(20, 200, 1000)) for n in (2, 3, 4)}
    twisted = {n: float(is_twisted(end).double().mean()) for n, (_, end) in rings.items()}
    chimeras = [chimera(seed) for seed in range(lab.pick(1, 3, 10))]
    report.raw = {
        "order": curves,
        "share of random starts that end twisted": twisted,
        "local order of the chimeras": [local.tolist() for _, local in chimeras],
    }
    worst = [
        max(abs(r - t) for r, t, K in zip(c["order"], c["theory"], c["ratio"], strict=True) if K >= 1.1) for c in curves
    ]
    report.measures = [
        *(
            Measure(f"order, largest distance from the theory from 1.1 K_c on, {c['name']}", [w], "", "0 for N → ∞")
            for c, w in zip(curves, worst, strict=True)
        ),
        *(Measure(f"ring of {RING}, random starts that end twisted, n = {n}", [100 * s]) for n, s in twisted.items()),
    ]
    rows = [
        [f"{K:.2f}", *(f"{value:.3f}" for c in curves for value in (c["order"][k], c["theory"][k]))]
        for k, K in enumerate(curves[0]["ratio"])
    ]
    heads = [f"{c['name']}, {what}" for c in curves for what in ("simulated", "theory")]
    report.tables = [Table("Order r against the coupling K / K_c", ["K / K_c", *heads], rows)]
    report.findings = findings(curves, worst, twisted, chimeras)
    draw(lab, report, curves, min(chimeras, key=lambda one: float(one[1].min())))
    first = int(is_twisted(rings[2][1]).double().argmax())
    report.draw(
        draw_rings(lab, {n: (start[first], end[first]) for n, (start, end) in rings.items() if n < 4}),
        f"A ring of {RING} oscillators, each at its place, coloured by its phase: the first random start that stays "
        "twisted on the circle, and the start of the same number on the sphere.",
    )
    return report


def transition(lab: Lab, distribution: Distribution) -> dict[str, Any]:
    """Order against coupling: simulated, and by the theory."""
    ratios = lab.pick([0.5, 1.25, 2.0], *2 * ([0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0],))
    count, time = lab.pick((100, 20.0), (500, 60.0), (2000, 120.0))
    critical = critical_coupling(distribution)
    couplings = critical * torch.tensor(ratios, dtype=torch.float64)
    done = oscillators.simulate(distribution.frequencies(count), couplings, time=time, every=10)
    order = done.order[-len(done.order) // 4 :].mean(dim=0)  # the last quarter of the time
    return {
        "name": distribution.name,
        "critical coupling": critical,
        "oscillators": count,
        "ratio": ratios,
        "order": order.tolist(),
        "theory": [locked_order(float(K), distribution) for K in couplings],
    }


def settled(n: int, starts: int) -> tuple[Tensor, Tensor]:
    """Random starts of a ring with nearest neighbours, and where they end: each (starts, RING, n)."""
    x = start = oscillators.random_phases(starts, RING, n, seed=0, dtype=torch.float64)
    for _ in range(4000):
        x = oscillators.step(x, x.roll(1, dims=1) + x.roll(-1, dims=1), 0.3)
    return start, x


def is_twisted(end: Tensor) -> Tensor:
    """Whether a ring did not come into phase. Shapes: (starts, N, n) -> (starts,)"""
    return order_parameter(end) < 0.99


def chimera(seed: int) -> tuple[Tensor, Tensor]:
    """Phases (N,) at the end, and the order of each oscillator's neighbourhood (N,)."""
    N = int(CHIMERA["count"])
    x = (torch.arange(N, dtype=torch.float64) + 0.5) / N * 2 * math.pi - math.pi
    matrix = (1 + CHIMERA["A"] * torch.cos(x[:, None] - x)) / N
    u = torch.rand(N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    start = 6 * (u - 0.5) * torch.exp(-0.76 * x.square())
    lag = math.pi / 2 - CHIMERA["beta"]
    end = oscillators.simulate(torch.zeros(N), matrix, time=CHIMERA["time"], lag=lag, start=start, every=10**6).phases[
        -1
    ]
    points = torch.stack([end.cos(), end.sin()], dim=-1)
    around = sum(points.roll(shift, dims=0) for shift in range(-WINDOW, WINDOW + 1))
    assert isinstance(around, Tensor)
    return end, around.norm(dim=-1) / (2 * WINDOW + 1)


def findings(
    curves: list[dict[str, Any]], worst: list[float], twisted: dict[int, float], chimeras: list[tuple[Tensor, Tensor]]
) -> list[str]:
    far = ", ".join(f"{w:.3f} ({c['name']})" for c, w in zip(curves, worst, strict=True))
    shares = ", ".join(f"{100 * share:.0f} % for n = {n}" for n, share in twisted.items())
    split = sum(bool(local.min() < 0.6 and local.max() > 0.99) for _, local in chimeras)
    range_ = ", ".join(f"{float(local.min()):.2f} to {float(local.max()):.2f}" for _, local in chimeras[:3])
    return [
        f"From 1.1 K_c on the simulated order differs from the theory by at most {far}.",
        f"On a ring of {RING} oscillators with nearest neighbours, random starts end twisted in {shares}.",
        f"Identical oscillators with identical couplings split into a part in step and a part that drifts from {split} "
        f"of {len(chimeras)} starts (local order {range_}).",
    ]


def draw(lab: Lab, report: Report, curves: list[dict[str, Any]], split: tuple[Tensor, Tensor]) -> None:
    fig, [[ax]] = panels(1, 1, 7.2, 4.6)
    for n, curve in enumerate(curves):
        colour = (BLUE, VERMILLION)[n]
        fine = np.linspace(1.0, max(curve["ratio"]), 120)
        theory = [locked_order(K * curve["critical coupling"], DISTRIBUTIONS[n]) for K in fine]
        ax.plot([0, 1, *fine], [0, 0, *theory], color=colour, linewidth=1.6)
        marker = "os"[n]
        label = f"{curve['name']} frequencies, K_c = {curve['critical coupling']:.2f}"
        ax.plot(curve["ratio"], curve["order"], marker, color=colour, markersize=7, label=label)
    ax.axvline(1, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    text(ax, 0.97, 0.95, "critical coupling K_c", 10, MUTED, ha="right", va="top")
    ax.set_ylim(0, 1)
    tidy(ax, "coupling K / K_c", "order r")
    ax.legend(fontsize=10, frameon=False, labelcolor=INK, loc="lower right")
    note = f"Marks: {curves[0]['oscillators']} oscillators, simulated. Lines: Kuramoto's theory for infinitely many."
    heading(ax, "A common rhythm begins at the critical coupling", note)
    report.draw(save(fig, lab.figure("kuramoto-order.png"), plot=True), "Order against coupling, and the exact theory.")
    report.draw(
        draw_chimera(lab, *split),
        "A chimera: identical oscillators, a part in step, a part adrift (the clearest of the starts).",
    )
    path = draw_animation(lab, lab.pick(4, 60, 60))
    report.draw(
        path, "The coupling grows: dots are oscillators, coloured by their own frequency; the arrow is their mean."
    )


def draw_rings(lab: Lab, rings: dict[int, tuple[Tensor, Tensor]]) -> Path:
    """For each number of components a ring at its start and at its end."""
    fig = figure(8.6, 3.0)
    words = {2: "circle", 3: "sphere"}
    shown = [(n, x, name) for n, both in rings.items() for x, name in zip(both, ("start", "end"), strict=True)]
    for k, (n, x, name) in enumerate(shown):
        ax = fig.add_axes((0.25 * k, 0.0, 0.24, 0.72))
        draw_ring(ax, flattened(x, rings[n][1]))
        text(ax, 0, 0, f"{words[n]},\n{name}", 10, ha="center", va="center")
        text(ax, 0, -1.45, f"order {float(order_parameter(x)):.2f}", 9, MUTED, ha="center", va="top")
        if k == 0:
            note = "Each is pulled by its two neighbours. Arrow and colour: its phase (paler: out of the drawn plane)."
            heading(ax, "Twisted on the circle, in phase on the sphere", note)
    return save(fig, lab.figure("kuramoto-twisted.png"), plot=True)


def flattened(x: Tensor, end: Tensor) -> Tensor:
    """Phases (N, n) in the plane of colours, (N, 2): that of the circle, or of a sphere one with the mean of the end.

    The dynamics knows no direction, so a sphere may be looked at from any side.
    """
    if x.shape[-1] == 2:
        return x
    mean = oscillators.unit(end.mean(dim=0))
    across = oscillators.unit(oscillators.tangent(mean, end.new_tensor([0.0, 0.0, 1.0])))
    return torch.stack([x @ mean, x @ across], dim=-1)


def draw_ring(ax: Any, phases: Tensor) -> None:
    """Oscillators on a ring as arrows, in the hues of their phases (N, 2)."""
    place = torch.arange(len(phases)) * 2 * math.pi / len(phases)
    x, y = place.sin().numpy(), place.cos().numpy()
    length = phases.norm(dim=-1, keepdim=True)
    colours = 1 - length * (1 - oscillators.phase_colours(phases))
    ax.scatter(x, y, s=90, c=colours.clamp(0, 1).numpy(), edgecolors=MUTED, linewidths=0.6, zorder=2)
    along = 0.24 * phases.numpy()
    ax.quiver(x, y, along[:, 0], along[:, 1], angles="xy", scale_units="xy", scale=1, width=0.012, color=INK, zorder=3)
    ax.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal")
    ax.set_axis_off()


def draw_chimera(lab: Lab, phases: Tensor, local: Tensor) -> Path:
    fig, [[above], [below]] = panels(2, 1, 7.2, 2.7)
    place = np.linspace(-1, 1, len(phases))
    turned = (phases - phases[0] + math.pi) % (2 * math.pi) - math.pi
    above.plot(place, turned / math.pi, "o", color=BLUE, markersize=4)
    above.set_ylim(-1.05, 1.05)
    tidy(above, "", "phase / π")
    heading(above, "A chimera", "Identical oscillators on a ring, all coupled alike: a part is in step, a part drifts.")
    draw_line(below, 1, Line("order of the neighbourhood", place.tolist(), local.tolist()))
    below.set_ylim(0, 1.05)
    tidy(below, "place on the ring / π", f"order of {2 * WINDOW + 1} neighbours")
    return save(fig, lab.figure("kuramoto-chimera.png"), plot=True)


def draw_animation(lab: Lab, frames: int) -> Path:
    """The coupling grows from 0 to 2.5 K_c: the circle on the left, the order so far on the right."""
    distribution, count = normal(), lab.pick(40, 150, 150)
    omega, critical = distribution.frequencies(count), critical_coupling(normal())
    theta = 2 * math.pi * torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    fine = np.linspace(1.0, 2.5, 80)
    theory = ([0, 1, *fine], [0, 0, *(locked_order(K * critical, distribution) for K in fine)])
    seen: list[tuple[float, float]] = []
    pictures = []
    for frame in range(frames):
        ratio = 2.5 * frame / max(1, frames - 1)
        done = oscillators.simulate(omega, ratio * critical, time=6.0, start=theta, every=4)
        theta = done.phases[-1]
        seen.append((ratio, float(done.order[-len(done.order) // 2 :].mean())))
        pictures.append(render(draw_frame(theta, omega, seen, theory)))
    return save_gif(lab.figure("kuramoto.gif"), pictures, [90] * (frames - 1) + [2500])


def draw_frame(theta: Tensor, omega: Tensor, seen: list[tuple[float, float]], theory: tuple[list, list]) -> "Figure":
    from matplotlib import colormaps

    fig = figure(8.6, 4.3)
    ax = fig.add_axes((0.02, 0.04, 0.42, 0.78))
    ax.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
    ax.set_axis_off()
    turn = np.linspace(0, 2 * math.pi, 200)
    ax.plot(np.cos(turn), np.sin(turn), color=FAINT, linewidth=2)
    x, y = theta.cos().numpy(), theta.sin().numpy()
    shade = np.argsort(np.argsort(omega.numpy())) / max(1, len(omega) - 1)
    ax.scatter(x, y, s=52, c=colormaps["coolwarm"](shade), edgecolors="white", linewidths=0.5, zorder=2)
    ax.annotate("", (x.mean(), y.mean()), (0, 0), arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 2.5})
    heading(
        ax, "Oscillators pull each other into one rhythm", "Blue: slow by themselves. Red: fast. Arrow: their mean."
    )
    right = fig.add_axes((0.54, 0.16, 0.43, 0.62))
    right.plot(*theory, color=FAINT, linewidth=4)
    right.plot(*zip(*seen, strict=True), color=BLUE, linewidth=2)
    right.plot(*seen[-1], "o", color=BLUE, markersize=8)
    right.axvline(1, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    text(right, 1.03, 0.93, "K_c", 10, MUTED)
    right.set(xlim=(0, 2.5), ylim=(0, 1))
    tidy(right, "coupling K / K_c", "order r")
    return fig
