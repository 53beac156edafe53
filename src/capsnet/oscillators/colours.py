"""Phases as colours: oscillators that agree have the same hue."""

import math

import torch
from torch import Tensor

from capsnet.oscillators.checks import check_components, check_finite, check_weights
from capsnet.oscillators.sphere import unit


def phase_colours(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """The hue of each oscillator's direction, as red, green, blue in [0, 1].

    For n = 2 the hue is the angle. For n > 2 it is the angle in the plane in which the oscillators spread most (two
    principal directions), and what lies outside of that plane is paler. ``weights`` darken: 0 is black.

    Shapes: x (..., n), weights (...) in [0, 1] -> (..., 3).
    """
    check_components(x.shape[-1])
    check_finite("oscillators", x)
    if weights is not None:
        if weights.shape != x.shape[:-1]:
            raise ValueError(f"expected weights of shape {tuple(x.shape[:-1])}, as x, got {tuple(weights.shape)}")
        check_weights(weights)
    flat = unit(x.detach().to(torch.float64)).reshape(-1, x.shape[-1])  # (N, n)
    if flat.shape[-1] > 2:
        counts = torch.ones(len(flat), dtype=torch.float64) if weights is None else weights.flatten().to(torch.float64)
        centred = (flat - (flat * counts[:, None]).sum(0) / counts.sum().clamp_min(1e-30)) * counts[:, None].sqrt()
        _, axes = torch.linalg.eigh(centred.T @ centred)  # ascending
        plane = axes[:, -2:].flip(1)  # (n, 2)
        signs = torch.where(plane.gather(0, plane.abs().argmax(dim=0)[None]) < 0, -1.0, 1.0)
        flat = flat @ (plane * signs)  # a fixed sign, so that equal phases have equal colours in every call
    hue = torch.atan2(flat[:, 1], flat[:, 0]) / (2 * math.pi) % 1
    saturation = flat.square().sum(dim=1).sqrt().clamp(0, 1)
    # a triangle wave per colour, as in the HSV model
    ramps = torch.stack([(hue * 6 - shift) % 6 for shift in (0, 2, 4)], dim=1)
    pure = ((ramps - 3).abs() - 1).clamp(0, 1)
    colours = 1 - saturation[:, None] * (1 - pure)
    if weights is not None:
        colours = colours * weights.flatten()[:, None].to(torch.float64)
    return colours.unflatten(0, x.shape[:-1]) if x.ndim > 1 else colours[0]
