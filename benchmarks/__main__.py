"""``make bench``: the table of claims, then how cost grows. Two threads, contenders alternating, medians.

python -m benchmarks [--quick] [--rounds N] [--threads N] [--figure docs/benchmarks.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks import _contenders, _peak, growth
from benchmarks._timing import alternate, matrix_product_peak
from capsnet.training.run import processor


def table(rounds: int) -> None:
    """The claims, one line each: what, ours, the textbook's, ratio, least, aim."""
    ours, plain = _contenders.pair()

    def line(what: str, unit: str, a: float, b: float, ratio: float, least: str, aim: str) -> None:
        print(f"{what:<46} {a:>10.4g} {b:>10.4g} {unit:<5} {ratio:>7.2f}x   at least {least}, aim {aim}", flush=True)

    print(f"{'':<46} {'ours':>10} {'textbook':>10}")
    step = alternate({"ours": _contenders.training(ours, 128), "plain": _contenders.training(plain, 128)}, rounds)
    line("training step, batch 128", "s", step["ours"], step["plain"], step["plain"] / step["ours"], "3.5", "5")
    print(f"{'  images per second':<46} {128 / step['ours']:>10.4g} {128 / step['plain']:>10.4g}")
    many = alternate({"ours": _contenders.inference(ours, 256), "plain": _contenders.inference(plain, 256)}, rounds)
    line("inference, batch 256", "s", many["ours"], many["plain"], many["plain"] / many["ours"], "2.5", "4")
    print(f"{'  images per second':<46} {256 / many['ours']:>10.4g} {256 / many['plain']:>10.4g}")
    one = alternate({"ours": _contenders.inference(ours, 1), "plain": _contenders.inference(plain, 1)}, 10 * rounds)
    line("inference, batch 1", "ms", 1e3 * one["ours"], 1e3 * one["plain"], one["plain"] / one["ours"], "1.3", "2")
    a, b = _contenders.routing(128)
    route = alternate({"ours": a, "plain": b}, rounds)
    line("routing 1152 -> 10, r = 3, both ways, batch 128", "s", route["ours"], route["plain"],
         route["plain"] / route["ours"], "6", "12")  # fmt: skip
    memory = [_peak.megabytes(who, "training", size=128) for who in ("ours", "textbook")]
    least = "0.6 (less is better)"
    line("peak memory, training step, batch 128", "MB", memory[0], memory[1], memory[0] / memory[1], least, "0.33")
    peak = matrix_product_peak()
    ours_rate, plain_rate = (128 * _contenders.DIRECT_FLOPS / step[who] / peak for who in ("ours", "plain"))
    what = f"direct arithmetic / matrix peak of {peak / 1e9:.0f} GFLOP/s"
    line(what, "", ours_rate, plain_rate, ours_rate, "0.9", "1.3")
    fast, slow = _contenders.demo()
    small = alternate({"fast": fast, "slow": slow}, 3 * rounds)
    rates = " and ".join(f"{128 / small[who]:.0f}" for who in ("fast", "slow"))
    print(f"the demo's network, training, batch 128: {rates} images/s on the fast and on the plain paths")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the performance claims.")
    parser.add_argument("--quick", action="store_true", help="only the table of claims")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each contender per line")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--figure", type=Path, default=Path("docs/benchmarks.png"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{processor()}, {arguments.threads} threads, torch {torch.__version__}")
    table(arguments.rounds)
    if not arguments.quick:
        growth.draw(growth.measure(), arguments.figure)
        print(f"\npicture: {arguments.figure}")


if __name__ == "__main__":
    main()
