"""``python -m capsnet.search`` is one worker of a search: see ``_worker``."""

import sys

from capsnet._allocator import keep_freed_memory
from capsnet.search._worker import main

if __name__ == "__main__":
    keep_freed_memory()
    sys.exit(main())
