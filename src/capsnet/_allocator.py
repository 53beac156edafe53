"""The memory allocator of the C library, told that large blocks come back.

glibc gives a freed block of more than 32 MB back to the system at once, and gets zeroed pages for the next one. A
training step frees and asks for the same hundreds of megabytes again and again, so that convolutional networks on a
CPU spend a tenth of their time on page faults. Kept, the blocks are there at the next step.

The results are the same to the last bit. A process that does this keeps its largest size until it ends, so it is for
commands that train, and not for a server or for somebody's notebook.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # <malloc.h>
LARGEST = 2**31 - 1  # mallopt takes an int


def keep_freed_memory() -> bool:
    """Ask for it; whether there is such an allocator to ask."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False  # another C library
    wanted = {M_MMAP_THRESHOLD: 1 << 30, M_TRIM_THRESHOLD: LARGEST, M_TOP_PAD: 1 << 26}
    taken = [mallopt(key, value) for key, value in wanted.items()]
    return all(taken)
