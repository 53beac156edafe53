"""Peak memory of one training step, on top of the process as it was before: measured in a process of its own.

Reads a configuration from standard input and writes megabytes to standard output.
"""

import json
import re
import resource
import sys
from pathlib import Path

import torch

from capsnet import data
from capsnet.training.config import check_config
from capsnet.training.loop import build

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def kilobytes(what: str) -> int:
    """VmRSS (now) or VmHWM (the most there was); where there is no such file, the most there was since the start."""
    if not STATUS.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = re.search(rf"{what}:\s+(\d+)", STATUS.read_text())
    return int(found[1]) if found else 0


def forget_peak() -> None:
    """Loading the data has its own peak, larger than many a step's: on Linux it can be forgotten."""
    if CLEAR.exists():
        CLEAR.write_text("5")


def main() -> None:
    config = check_config(json.loads(sys.stdin.read()))
    training = data.load(config.data, config.train_on)
    model = build(config, training)
    batch = training.batch(range(min(config.batch_size, len(training))))
    labels, images = batch.targets, batch.images
    if batch.sources is not None:
        labels = torch.nn.functional.one_hot(batch.sources.classes, model.num_classes)
        images = batch.sources.images
    forget_peak()
    before = kilobytes("VmRSS")
    model.loss(model(batch.images, labels=labels), batch.targets, images).total.backward()
    sys.stdout.write(f"{(kilobytes('VmHWM') - before) / 1024:.1f}")


if __name__ == "__main__":
    main()
