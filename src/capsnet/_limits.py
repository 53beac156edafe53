"""Upper ends of counts that come from files, configurations and command lines.

Far above what anyone uses, and low enough that a small file cannot ask for more work or memory than a machine has.
"""

import re

MOST = 1_000_000  # units, channels, classes, epochs, images of a batch
MOST_REPEATS = 256  # layers, blocks, steps, members of an ensemble
MOST_ITERATIONS = 1000  # of a routing
MOST_SIDE = 4096  # pixels
MOST_PIXELS = 2**20  # of a network's input
LONGEST = 64  # numbers in one option, such as the widths of the layers
DEEPEST = 20  # options inside options

_FULL = re.compile(
    r"can't allocate memory|not enough memory|out of memory|bad_alloc|[Ss]torage size calculation overflow"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was too small: on a CPU PyTorch raises a plain RuntimeError."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(_FULL.search(str(error))))
