"""The hashes of continuous integration belong to the versions of constraints.txt."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pins(path: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([^\s+]+)", path.read_text(), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in found}


def test_every_pin_has_a_hash() -> None:
    hashed = pins(ROOT / ".ci" / "hashes.txt") | pins(ROOT / ".ci" / "torch.txt")
    assert hashed == pins(ROOT / "constraints.txt")
    for file in ("hashes.txt", "torch.txt"):
        lines = (ROOT / ".ci" / file).read_text().splitlines()[1:]
        assert all(re.fullmatch(r"[a-z0-9.-]+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)


def test_workflow_installs_what_has_these_hashes() -> None:
    script = (ROOT / ".ci" / "install").read_text()
    for file in ("hashes.txt", "torch.txt"):
        assert f"--require-hashes -r .ci/{file}" in script
    assert (ROOT / ".github" / "workflows" / "ci.yml").read_text().count(".ci/install") == 2


def test_licences_of_all_dependencies_are_listed() -> None:
    """Each pin that a user's installation has; versions and licences change with the installed packages."""
    from tools.licences import EXTRAS, PAGE, needed

    listed = set(re.findall(r"^\| ([a-z0-9.-]+) \|", PAGE.read_text(), re.MULTILINE))
    assert set(needed("capsnet", frozenset(EXTRAS), set())) - {"capsnet"} <= listed
