"""``make bench``: one table of this package against a textbook implementation. One process, alternating, medians.

python -m benchmarks [ROW ...] [--quick] [--rounds N] [--threads N]
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

from benchmarks.table import ROWS, Machine, Settings, markdown
from capsnet import keep_freed_memory
from capsnet.training.run import processor


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the performance claims.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"some of {', '.join(ROWS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="everything once at small sizes, to see that it works")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender per row")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(arguments)
    if unknown := sorted(set(args.rows) - set(ROWS)):
        parser.error(f"unknown row {unknown[0]!r}: choose from {', '.join(ROWS)}")
    torch.set_num_threads(args.threads)
    keep_freed_memory()  # as `capsnet train` does; it serves all contenders
    start, row = time.perf_counter(), ""

    def progress(text: str) -> None:
        print(f"{time.perf_counter() - start:5.0f} s  {row}: {text}", file=sys.stderr, flush=True)

    settings = Settings(args.rounds, args.quick, progress)
    row = "peaks"
    progress("matrix products and memory")
    machine = Machine.measure(args.quick)
    lines = machine.lines()
    for row in args.rows or ROWS:
        lines += [measured.line() for measured in ROWS[row](settings, machine)]
    print(f"{processor()}, {args.threads} threads, torch {torch.__version__}\n\n{markdown(lines)}")


if __name__ == "__main__":
    main()
