"""Peak memory of one training step, on top of the process as it was before: a process of its own, as peaks only rise.

Reads a configuration from standard input and writes megabytes to standard output.
"""

import resource
import sys

import torch

from capsnet import data
from capsnet.training.config import check_config
from capsnet.training.loop import build


def main() -> None:
    import json

    config = check_config(json.loads(sys.stdin.read()))
    training = data.load(config.data, config.train_on)
    model = build(config, training)
    batch = training.batch(range(min(config.batch_size, len(training))))
    labels = batch.targets
    images = batch.images if batch.sources is None else batch.sources.images
    if batch.sources is not None:
        labels = torch.nn.functional.one_hot(batch.sources.classes, model.num_classes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model.loss(model(batch.images, labels=labels), batch.targets, images).total.backward()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.stdout.write(f"{(after - before) / 1024:.1f}")


if __name__ == "__main__":
    main()
