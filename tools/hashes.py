"""The hashes of what continuous integration installs, from pip's report.

    pip install --dry-run --ignore-installed --quiet --report report.json -c constraints.txt '.[all,dev]'
    python -m tools.hashes report.json

writes .ci/hashes.txt, and torch, whose CPU build comes from another place, to .ci/torch.txt: the versions of
constraints.txt with the SHA-256 of the files for this Python and system. Addresses are not written.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from capsnet._files import write_atomically

FOLDER = Path(__file__).parent.parent / ".ci"
APART = ("torch",)


def lines(report: dict[str, Any]) -> dict[str, str]:
    """Requirements with hashes, by package; the package itself, which is not downloaded, is left out."""
    found = {}
    for item in report["install"]:
        digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        name, version = item["metadata"]["name"].lower().replace("_", "-"), item["metadata"]["version"]
        if digest is not None:
            found[name] = f"{name}=={version} --hash=sha256:{digest}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser("python -m tools.hashes", description=__doc__)
    parser.add_argument("report", type=Path)
    found = lines(json.loads(parser.parse_args().report.read_text()))
    for file, wanted in (("hashes.txt", found.keys() - set(APART)), ("torch.txt", set(APART))):
        text = "".join(f"{found[name]}\n" for name in sorted(wanted))
        write_atomically(FOLDER / file, f"# written by tools/hashes.py: CPython 3.11, Linux, x86-64\n{text}")


if __name__ == "__main__":
    main()
