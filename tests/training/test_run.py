"""The origin of a result in its run folder."""

import re
import subprocess
import time
from pathlib import Path

import pytest

from capsnet.training import TrainConfig
from capsnet.training.run import commit, open_run


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


def test_runs_that_begin_in_the_same_second_have_folders_of_their_own(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda *_: "now")
    folders = [open_run(quick, None, "no").folder for _ in range(3)]
    assert len(set(folders)) == 3
