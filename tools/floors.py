"""The oldest versions that pyproject.toml allows, as constraints for pip: what the CI job `oldest` installs.

    python tools/floors.py > floors.txt

It needs nothing but Python, because it runs before anything is installed.
"""

import re
import sys
import tomllib
from pathlib import Path

TOOLS = ("dev", "docs")  # extras of developers: their newest versions


def floors(pyproject: str) -> list[str]:
    """``name==version.*`` for each dependency and each extra that is for users."""
    project = tomllib.loads(pyproject)["project"]
    wanted = [*project["dependencies"]]
    for extra, needs in project["optional-dependencies"].items():
        wanted += [] if extra in TOOLS else needs
    found = (re.fullmatch(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)", need) for need in wanted)
    return sorted({f"{match[1]}=={match[2]}.*" for match in found if match}, key=str.lower)


if __name__ == "__main__":
    sys.stdout.write("\n".join(floors((Path(__file__).parents[1] / "pyproject.toml").read_text())) + "\n")
