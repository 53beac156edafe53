"""The licences of everything that capsnet installs, as a table in docs/dependencies.md.

    python -m tools.licences

Made from what the installed packages declare. A package that is not installed here (an extra, or a marker of another
system) is not in the table.
"""

import argparse
import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from capsnet._files import write_atomically
from tools.tables import table

PAGE = Path(__file__).parent.parent / "docs" / "dependencies.md"
EXTRAS = ("train", "explorer", "search", "search-postgres", "export", "sklearn", "hub")
LONGEST = 60  # characters of a licence's name: some packages put the whole text there


def needed(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> Iterator[str]:
    """The packages that one needs, directly or not, that are installed; each name may come several times."""
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return
    yield canonicalize_name(name)
    for line in package.requires or ():
        requirement = Requirement(line)
        wanted = [{"extra": extra} for extra in (*extras, "")]
        if requirement.marker is None or any(requirement.marker.evaluate(one) for one in wanted):
            yield from needed(requirement.name, frozenset(requirement.extras), seen)


def licence_of(package: Distribution) -> str:
    """What a package declares: an SPDX expression, else its classifiers, else a line of text."""
    about: Any = package.metadata
    if expression := about.get("License-Expression"):
        return expression
    classifiers = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier") or () if c.startswith("License ::")]
    named = [c for c in classifiers if c != "OSI Approved"]
    text = " ".join((about.get("License") or "").split())
    return ", ".join(named) or (text if 0 < len(text) <= LONGEST else "see the package")


def rows() -> list[tuple[str, str, str]]:
    """(package, licence, what it is needed for)"""
    reasons: dict[str, str] = {}
    for extra in ("", *EXTRAS):
        for name in needed("capsnet", frozenset([extra]), set()):
            reasons.setdefault(name, f"`{extra}`" if extra else "capsnet")
    del reasons["capsnet"]
    return [(name, licence_of(distribution(name)), reason) for name, reason in sorted(reasons.items())]


def fill(text: str) -> str:
    pattern = r"<!-- licences -->\n.*?<!-- end -->"
    made = table(("package", "licence", "needed for"), rows())
    return re.sub(pattern, lambda _: f"<!-- licences -->\n{made}\n<!-- end -->", text, flags=re.DOTALL)


if __name__ == "__main__":
    argparse.ArgumentParser("python -m tools.licences", description=__doc__).parse_args()
    write_atomically(PAGE, fill(PAGE.read_text()))
