"""Do the fast paths train the same network? 200 steps of the paper's network, fast and plain, from one seed.

Run: python -m benchmarks.agreement [steps] [batch]. Rounding differences grow with training, as they do between any
two machines; what should stay equal is the course of the loss.
"""

from __future__ import annotations

import sys

import torch

import capsnet
from capsnet import kernels
from capsnet.kernels.cost import Path


def train(path: Path, steps: int, batch: int) -> list[float]:
    """The loss of each step on a fixed stream of structured noise: blobs whose place is their class."""
    torch.manual_seed(0)
    model = capsnet.create_model("capsnet")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    generator = torch.Generator().manual_seed(3)
    losses = []
    with kernels.using(path):
        for _ in range(steps):
            labels = torch.randint(10, (batch,), generator=generator)
            images = 0.1 * torch.rand(batch, 1, 28, 28, generator=generator)
            for image, label in zip(images, labels.tolist(), strict=True):
                y, x = 4 + 5 * (label // 4), 4 + 5 * (label % 4)
                image[0, y : y + 6, x : x + 6] += 0.8
            optimizer.zero_grad()
            total = model.loss(model(images, labels), labels, images).total
            total.backward()
            optimizer.step()
            losses.append(float(total.detach()))
    return losses


def main(steps: int = 200, batch: int = 32) -> None:
    fast, plain = train("fast", steps, batch), train("plain", steps, batch)
    print(f"{'step':>6} {'fast':>12} {'plain':>12} {'difference':>12}")
    for step in sorted({0, 1, 4, 9, 19, 49, 99, 149, steps - 1} & set(range(steps))):
        print(f"{step + 1:>6} {fast[step]:>12.6f} {plain[step]:>12.6f} {fast[step] - plain[step]:>12.1e}")


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:3]))
