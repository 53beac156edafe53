"""Peak memory of one training step above that of the idle process. Runs in a process of its own.

Reads a configuration from standard input and writes megabytes to standard output. The arguments are modules to import
first: they may register routings and models of other packages.
"""

import json
import re
import resource
import sys
from importlib import import_module
from pathlib import Path

from capsnet import data
from capsnet.training.config import check_config
from capsnet.training.loop import build
from capsnet.training.objective import loss_inputs

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def kilobytes(what: str) -> int:
    """VmRSS (now) or VmHWM (the peak); on systems without that file, the peak since the start."""
    if not STATUS.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    match = re.search(rf"{what}:\s+(\d+)", STATUS.read_text())
    return int(match[1]) if match else 0


def reset_peak() -> None:
    """Reset the peak, where Linux allows it: loading the data has a peak larger than that of many steps."""
    if CLEAR.exists():
        CLEAR.write_text("5")


def main() -> None:
    for module in sys.argv[1:]:
        import_module(module)
    config = check_config(json.loads(sys.stdin.read()))
    training = data.load(config.data, config.train_on)
    model = build(config, training)
    batch = training.batch(range(min(config.batch_size, len(training))))
    images, labels, targets, wanted, _ = loss_inputs(batch, model)
    reset_peak()
    before = kilobytes("VmRSS")
    model.loss(model(images, labels=labels), targets, wanted).total.backward()
    sys.stdout.write(f"{(kilobytes('VmHWM') - before) / 1024:.1f}")


if __name__ == "__main__":
    main()
