"""Metadata of a release: the project's addresses, and a README whose pictures and links work on PyPI.

Hatchling calls it when the package is built (``tool.hatch.metadata.hooks`` in pyproject.toml). The address is that of
the repository that builds it: GitHub's workflows set ``GITHUB_REPOSITORY`` to OWNER/NAME. Without it the links stay
relative and there are no addresses.
"""

import os
import re
import runpy
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGES = {"Changelog": "blob/main/CHANGELOG.md", "Issues": "issues", "Security": "security"}


class ReleaseMetadata(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        version = runpy.run_path(str(root / "src/capsnet/_version.py"))["__version__"]
        repository = os.environ.get("GITHUB_REPOSITORY", "")
        text = (root / "README.md").read_text()
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository, version)}
        metadata["urls"] = addresses(repository)


def addresses(repository: str) -> dict[str, str]:
    """The project's addresses, if the repository is known."""
    if not repository:
        return {}
    home = f"https://github.com/{repository}"
    owner, _, name = repository.partition("/")
    site = f"https://{owner.lower()}.github.io/{name}/"
    return {"Homepage": home, "Documentation": site} | {title: f"{home}/{page}" for title, page in PAGES.items()}


def absolute(text: str, repository: str, version: str) -> str:
    """A README with the addresses of its pictures and links at the tag of the version."""
    if not repository:
        return text
    raw = f"https://raw.githubusercontent.com/{repository}/v{version}/"
    page = f"https://github.com/{repository}/blob/v{version}/"
    text = re.sub(r'(<img src=")(?!https?:)', rf"\1{raw}", text)
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{raw}", text)
    return re.sub(r"(?<!!)(\[[^\]]*\]\()(?!https?:|#)", rf"\1{page}", text)
