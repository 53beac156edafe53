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

from capsnet._plugins import load_plugins
from capsnet.experiments._nets import training_step
from capsnet.training import check_config

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def kilobytes(what: str) -> int:
    """VmRSS (now) or VmHWM (the peak); on systems without that file, the peak since the start."""
    if not STATUS.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    match = re.search(rf"{what}:\s+(\d+)", STATUS.read_text(encoding="utf-8"))
    return int(match[1]) if match else 0


def main() -> None:
    load_plugins()
    for module in sys.argv[1:]:
        import_module(module)
    config = check_config(json.loads(sys.stdin.read()))
    step = training_step(config)
    if CLEAR.exists():  # reset the peak, where Linux allows it: loading the data has a larger one than many steps
        CLEAR.write_text("5", encoding="utf-8")
    before = kilobytes("VmRSS")
    step()
    sys.stdout.write(f"{(kilobytes('VmHWM') - before) / 1024:.1f}")


if __name__ == "__main__":
    main()
