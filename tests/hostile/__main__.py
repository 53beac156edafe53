"""The attacks at length: counts for docs/reliability.md.

python -m tests.hostile --inputs 10000 --kills 1000 --requests 1000
"""

import argparse
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.hostile.attacks import idx_files, run
from tests.hostile.inputs import ATTACKS
from tests.hostile.kills import kill
from tests.hostile.requests import ask


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.hostile", description=__doc__)
    for name in ("inputs", "kills", "requests", "seed"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=ATTACKS, help="these inputs only, by name")
    wanted = parser.parse_args()
    logging.disable(logging.WARNING)
    counts: dict[str, Counter[str]] = {}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name in (wanted.only or ATTACKS) if wanted.inputs else ():
            (folder / name).mkdir()
            began = time.perf_counter()
            counts[name], more = run(
                ATTACKS[name], folder / name, -(-wanted.inputs // len(wanted.only or ATTACKS)), wanted.seed
            )
            wrong += more
            tell(f"{name}: {dict(counts[name])} in {time.perf_counter() - began:.0f} s")
        if wanted.requests:
            counts["requests"], more = ask(wanted.requests, wanted.seed)
            wrong += more
            tell(f"requests: {dict(counts['requests'])}")
        if wanted.kills:
            (folder / "idx").mkdir()
            for name, content in idx_files().items():
                (folder / "idx" / name).write_bytes(content)
            counts["kills"], more = kill(folder, folder / "idx", wanted.kills, wanted.seed, tell)
            wrong += more
            tell(f"kills: {dict(counts['kills'])}")
    sys.stdout.write(json.dumps({"wrong": wrong[:100]}, indent=2) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
