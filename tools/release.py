"""What keeps a tag from being released: `release.yml` runs this before it builds anything.

    GITHUB_REF_NAME=v1.2.3 GITHUB_REPOSITORY=OWNER/NAME python tools/release.py

It prints a sentence for each problem and exits with 1 if there is one. It needs nothing but Python, because it runs
before anything is installed.
"""

import os
import re
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNRELEASED = "Unreleased"
EMPTY = r"SOURCE = \"\""  # in the JSON of a notebook
BEFORE = ("no release on PyPI", "pip install '.[")  # what the README says as long as there is none


def sections(changelog: str) -> dict[str, str]:
    """The text of each section of a changelog, by its heading: ``Unreleased``, ``1.2.3 - 2026-11-18``."""
    _, *parts = re.split(r"^## (.+)\n", changelog, flags=re.MULTILINE)
    return {heading.strip(): text.strip() for heading, text in zip(parts[::2], parts[1::2], strict=True)}


def entries(text: str) -> bool:
    """Whether a section says anything: headings of categories alone do not."""
    return any(line.strip() and not line.startswith("#") for line in text.splitlines())


def without_address(notebooks: Path) -> list[str]:
    """The notebooks whose first cell has no address to install the package from."""
    return [path.name for path in sorted(notebooks.glob("*.ipynb")) if EMPTY in path.read_text(encoding="utf-8")]


def problems(tag: str, repository: str, version: str, changelog: str, citation: str, readme: str) -> list[str]:
    """Why this tag cannot be released; empty if it can."""
    found = [f"README.md still says {text!r}" for text in BEFORE if text in readme]
    if tag != f"v{version}":
        found.append(f"the tag is {tag or 'not set'}, and the version in src/capsnet/_version.py is {version}")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        found.append("GITHUB_REPOSITORY is not OWNER/NAME: the package would have no addresses")
    written = sections(changelog)
    if any(entries(text) for heading, text in written.items() if heading.strip("[]").lower() == UNRELEASED.lower()):
        found.append(f"CHANGELOG.md has entries under {UNRELEASED}: move them to a version")
    dates = [
        date
        for heading, text in written.items()
        for title, _, date in [heading.partition(" - ")]
        if title.strip("[]") == version and entries(text)
    ]
    if len(dates) != 1 or not re.fullmatch(r"\d{4}-\d\d-\d\d", dates[0]):
        found.append(f"CHANGELOG.md needs one section '## {version} - YYYY-MM-DD' with entries")
    for line in (f"version: {version}", *(f"date-released: {date}" for date in dates)):
        if line not in citation.splitlines():
            found.append(f"CITATION.cff has no line '{line}'")
    return found


def main() -> None:
    version = runpy.run_path(str(ROOT / "src/capsnet/_version.py"))["__version__"]
    tag, repository = (os.environ.get(name, "") for name in ("GITHUB_REF_NAME", "GITHUB_REPOSITORY"))
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "CITATION.cff", "README.md")]
    found = problems(tag, repository, version, *texts)
    found += [f"notebooks/{name}: SOURCE is empty" for name in without_address(ROOT / "notebooks")]
    sys.stdout.writelines(f"{problem}\n" for problem in found)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
