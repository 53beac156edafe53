"""Time to accuracy: seconds of training until the validation accuracy reaches 98, 99 and 99.5 %.

python -m benchmarks.time_to_accuracy [--recipes demo efficient mnist-fast] [--threads N] [--precision P]
       [--epochs RECIPE=N ...]

The resolution is one epoch: the time is that of the first epoch whose end reaches the mark, without validation. The
test digits are not used. A shorter schedule reaches a mark sooner, so the number of epochs is reported. Run nothing
else meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from capsnet import keep_freed_memory, recipes
from capsnet.training.run import processor
from capsnet.training.trial import try_out

MARKS = (0.98, 0.99, 0.995)


class Enough(Exception):
    """The last mark is reached."""


def reached(lines: list[dict[str, Any]]) -> list[float | None]:
    """For each mark the seconds until the end of the first epoch that reaches it; None if none does."""
    spent = list(accumulate(line["seconds"] for line in lines))
    return [next((s for s, line in zip(spent, lines, strict=True) if line["val_accuracy"] >= m), None) for m in MARKS]


def measure(recipe: str, epochs: int | None, precision: str) -> list[dict[str, Any]]:
    """The epochs of a training until the last mark."""
    lines: list[dict[str, Any]] = []

    def note(line: dict[str, Any]) -> None:
        lines.append(line)
        if line["val_accuracy"] >= MARKS[-1]:
            raise Enough

    config = recipes.get(recipe, precision=precision, **({} if epochs is None else {"epochs": epochs}))
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Enough):
        try_out(config, Path(folder) / "run", on_epoch=note)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+", default=["demo", "efficient", "mnist-fast"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--epochs", nargs="*", default=[], metavar="RECIPE=N")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()  # as `capsnet train` does
    epochs = {name: int(number) for name, _, number in (word.partition("=") for word in args.epochs)}
    print(f"{processor()}, {args.threads} threads, {args.precision}")
    print(f"{'recipe':<16} {'epochs':>6} " + " ".join(f"{m:>8.1%}" for m in MARKS) + "   validation by epoch")
    for recipe in args.recipes:
        lines = measure(recipe, epochs.get(recipe), args.precision)
        shown = " ".join("       -" if s is None else f"{s:>6.0f} s" for s in reached(lines))
        curve = " ".join(f"{line['val_accuracy']:.2%}" for line in lines)
        planned = epochs.get(recipe) or recipes.get(recipe).epochs
        print(f"{recipe:<16} {planned:>6} {shown}   {curve}", flush=True)


if __name__ == "__main__":
    main()
