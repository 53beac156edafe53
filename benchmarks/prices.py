"""Predicted and measured gain of convolution by transforms, for many layers: is the cost model right?

Run: python -m benchmarks.prices, or with --bf16 for both in bfloat16. A wrong prediction matters where it crosses the
margin, ``cost.MARGIN``.
"""

from __future__ import annotations

import sys

import torch

from benchmarks._timing import alternate
from capsnet import kernels
from capsnet.kernels import cost

# batch, channels, outputs, map size, kernel, stride, padding
LAYERS = (
    (4, 256, 256, 20, 9, 2, 0),
    (8, 256, 256, 20, 9, 2, 0),
    (16, 256, 256, 20, 9, 2, 0),
    (64, 256, 256, 20, 9, 2, 0),
    (128, 256, 256, 20, 9, 2, 0),
    (32, 64, 64, 28, 5, 1, 2),
    (32, 32, 64, 14, 5, 2, 2),
    (16, 16, 32, 56, 7, 2, 3),
    (32, 128, 128, 14, 9, 1, 4),
    (64, 64, 128, 20, 9, 2, 0),
    (64, 3, 64, 32, 5, 1, 2),
    (8, 32, 32, 64, 5, 1, 2),
)


def gains(layer: tuple[int, ...], training: bool, lowered: bool) -> tuple[float, float]:
    """(predicted, measured) for one layer."""
    b, c, o, n, k, s, p = layer
    x, w = torch.randn(b, c, n, n, requires_grad=training), torch.randn(o, c, k, k, requires_grad=training)
    memory = kernels.Memory()

    def run(path: cost.Path) -> None:
        with kernels.using(path), torch.set_grad_enabled(training):
            with torch.autocast("cpu", torch.bfloat16, enabled=lowered):
                y = kernels.conv2d(x, w, None, s, p, memory=memory)
            if training:
                torch.autograd.grad(y.sum(), (x, w))

    seconds = alternate({"fast": lambda: run("fast"), "plain": lambda: run("plain")}, rounds=5)
    dtype = torch.bfloat16 if lowered else torch.float32
    _, predicted = cost.best_plan(b, c, o, (n, n), (k, k), (s, s), (p, p), dtype, training, not training)
    return predicted, seconds["plain"] / seconds["fast"]


def main() -> None:
    torch.set_num_threads(2)
    lowered = "--bf16" in sys.argv
    if lowered and not kernels.has_bf16():
        sys.exit("this CPU has no bfloat16 products")
    print(f"{'batch, C, O, map, kernel, stride, padding':<44} {'inference':>20} {'training':>20}")
    print(f"{'':<44} {'predicted measured':>20} {'predicted measured':>20}")
    for layer in LAYERS:
        cells = [f"{a:>10.2f} {m:>9.2f}" for a, m in (gains(layer, False, lowered), gains(layer, True, lowered))]
        print(f"{layer!s:<44} {cells[0]} {cells[1]}", flush=True)


if __name__ == "__main__":
    main()
