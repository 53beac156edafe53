"""The origin of a result in its run folder."""

import re
import subprocess
from pathlib import Path

from capsnet.training.run import commit


def test_commit_is_that_of_the_package(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        name = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *name, *words], check=True, capture_output=True)

    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    assert commit(package) is None  # no repository
    git("init")
    assert commit(package) is None  # a repository that does not track the package, as around an environment
    git("add", "-A")
    git("commit", "-m", "first")
    clean = commit(package)
    assert clean is not None
    assert re.fullmatch("[0-9a-f]{12}", clean)
    (package / "__init__.py").write_text("changed")
    assert commit(package) == f"{clean}, changed since"
