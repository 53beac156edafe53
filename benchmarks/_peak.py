"""Peak resident memory of a fresh process.

Counting tensors would miss what libraries allocate outside of PyTorch. The memory of the idle process (interpreter,
PyTorch, a first small call of everything) is subtracted: weights, gradients, optimiser state, activations and scratch
memory remain.
"""

from __future__ import annotations

import subprocess
import sys


def megabytes(contender: str, what: str, **sizes: int) -> float:
    """Peak of three rounds of ``what``: "training", "inference" or "routing"; ``contender``: "ours" or "textbook"."""
    arguments = [f"{name}={value}" for name, value in sizes.items()]
    command = [sys.executable, "-m", "benchmarks._peak", contender, what, *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def _status(field: str) -> float:
    with open("/proc/self/status") as lines:
        return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def _main(contender: str, what: str, sizes: dict[str, int]) -> None:
    import torch

    from benchmarks import _contenders

    torch.set_num_threads(2)
    warm = torch.nn.Conv2d(1, 4, 3)
    warm(torch.rand(1, 1, 9, 9)).sum().backward()  # libraries load their code on first use
    torch.mm(torch.rand(64, 64), torch.rand(64, 64))
    idle = _status("VmRSS")
    theirs = contender == "textbook"
    if what == "routing":
        run = _contenders.routing(**sizes)[theirs]
    else:
        run = getattr(_contenders, what)(_contenders.pair()[theirs], **sizes)
    for _ in range(3):
        run()
    print(_status("VmHWM") - idle)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], {name: int(value) for name, _, value in (a.partition("=") for a in sys.argv[3:])})
