"""What each process of tests/training/test_distributed.py runs under torchrun: a list of trainings, one after another.

    torchrun ... _together.py JOBS.json

A job has a config file, a folder and perhaps ``stop``, [rank, steps]: that process gets a simulated
Ctrl-C after so many steps. What a job that ``fails`` raises is written beside the folder, by rank.
"""

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from capsnet import cli, training
from capsnet.training import Interrupted, distributed, loop


def run(job: dict) -> None:
    def pressed() -> bool:
        return "stop" in job and distributed.rank() == job["stop"][0] and next(steps) >= job["stop"][1]

    @contextmanager
    def stop_politely() -> Iterator[Callable[[], bool]]:
        yield pressed

    steps = itertools.count(1)
    loop.stop_politely = stop_politely  # type: ignore[assignment]
    out = Path(job["out"])
    try:
        result = training.train(
            training.read_config(job["config"]), out=out, resume=job.get("resume", "no"), device="cpu", figures=False
        )
    except (ValueError, Interrupted) as error:
        if not job.get("fails"):
            raise
        out.with_suffix(f".{os.environ['RANK']}.txt").write_text(str(error))
        return
    finals = {name: tensor.double().sum().item() for name, tensor in result.model.state_dict().items()}
    out.with_suffix(f".{os.environ['RANK']}.json").write_text(json.dumps([finals, result.test.metrics]))


def break_later(steps: int) -> None:
    """Raise an error in the process of rank 1."""
    real, count = loop.train_step, itertools.count(1)

    def broken(*arguments):
        if distributed.rank() == 1 and next(count) > steps:
            raise ValueError("the cable is loose")
        return real(*arguments)

    loop.train_step = broken


if __name__ == "__main__":
    torch.set_num_threads(1)
    Path(sys.argv[1]).with_suffix(f".{os.environ['RANK']}.pid").write_text(str(os.getpid()))
    loop.RECORD_EVERY = 1
    given = json.loads(Path(sys.argv[1]).read_text())
    if "command" in given:
        break_later(given.get("breaks", 10**9))
        cli.main(given["command"])
    else:
        for one in given["jobs"]:
            run(one)
