"""``python -m capsnet.search`` is one worker of a search: see ``_worker``."""

import sys

from capsnet.search._worker import main

if __name__ == "__main__":
    sys.exit(main())
