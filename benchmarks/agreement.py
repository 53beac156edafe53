"""200 training steps of the paper's network on the fast and the plain paths, from one seed: are the losses equal?

Run: python -m benchmarks.agreement [steps] [batch]. Rounding differences grow with training, as
they do between any two machines; the loss curves should stay equal.
"""

from __future__ import annotations

import itertools
import sys

import torch

import capsnet
from capsnet import kernels
from capsnet.kernels.cost import Path


def train(path: Path, steps: int, batch: int) -> list[float]:
    """The loss of each step on MNIST, in the order of seed 0."""
    torch.manual_seed(0)
    model = capsnet.create_model("capsnet")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    digits = capsnet.data.batches(capsnet.data.load("mnist", "train"), batch, shuffle=True)
    losses = []
    with kernels.using(path):
        for images, labels, *_ in itertools.islice(digits, steps):
            optimizer.zero_grad()
            total = model.loss(model(images, labels), labels, images).total
            total.backward()
            optimizer.step()
            losses.append(total.item())
    return losses


def main(steps: int = 200, batch: int = 32) -> None:
    torch.set_num_threads(2)
    fast, plain = train("auto", steps, batch), train("plain", steps, batch)
    print(f"{'step':>6} {'fast':>12} {'plain':>12} {'difference':>12}")
    for step in sorted({0, 1, 4, 9, 19, 49, 99, 149, steps - 1} & set(range(steps))):
        print(f"{step + 1:>6} {fast[step]:>12.6f} {plain[step]:>12.6f} {fast[step] - plain[step]:>12.1e}")


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:3]))
