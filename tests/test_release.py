"""What a release consists of: metadata, version floors, container image, workflows. Nothing here needs a network."""

import http.server
import json
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import capsnet
from capsnet import cli, explorer
from tools import metadata, release
from tools.floors import floors

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}


def test_no_dependency_is_pinned() -> None:
    """Installing the package must not change the versions of somebody's environment without need."""
    extras = [need for needs in PROJECT["optional-dependencies"].values() for need in needs]
    for need in [*PROJECT["dependencies"], *extras]:
        assert re.fullmatch(r"capsnet\[[\w,-]+\]|[\w.-]+(\[\w+\])?>=[\d.]+", need), (
            f"{need}: a lower bound and nothing else"
        )


def test_floors_are_those_of_users() -> None:
    found = floors((ROOT / "pyproject.toml").read_text())
    assert "torch==2.8.*" in found
    assert any(line.startswith("fastapi==") for line in found)
    assert any(line.startswith("psycopg==") for line in found)
    assert not any(line.startswith(("pytest", "mkdocs", "capsnet")) for line in found)


def test_constraints_lie_above_the_floors() -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    versions = {name.lower(): tuple(map(int, re.findall(r"\d+", version))) for name, version in pinned.items()}
    for line in floors((ROOT / "pyproject.toml").read_text()):
        name, floor = line.removesuffix(".*").split("==")
        if name == "psycopg":  # installed only where PostgreSQL is asked for
            continue
        found = versions.get(name.lower()) or versions[name.lower().replace("-", "_")]
        assert found >= tuple(map(int, floor.split("."))), (
            f"constraints.txt has an older {name} than pyproject.toml wants"
        )


def test_licence_is_declared_for_scanners() -> None:
    assert PROJECT["license"] == "MIT AND CC-BY-SA-3.0"
    for name in PROJECT["license-files"]:
        assert (ROOT / name).is_file()


def test_readme_of_a_release_has_absolute_addresses() -> None:
    text = '<img src="docs/a.png">![b](docs/b.png)[c](docs/c.md)[d](https://example.org)[e](#e)'
    made = metadata.absolute(text, "someone/capsnet", "1.2.3")
    raw, page = (
        "https://raw.githubusercontent.com/someone/capsnet/v1.2.3",
        "https://github.com/someone/capsnet/blob/v1.2.3",
    )
    assert (
        made
        == f'<img src="{raw}/docs/a.png">![b]({raw}/docs/b.png)[c]({page}/docs/c.md)[d](https://example.org)[e](#e)'
    )
    assert metadata.absolute(text, "", "1.2.3") == text
    assert metadata.addresses("") == {}
    assert metadata.addresses("Someone/capsnet")["Documentation"] == "https://someone.github.io/capsnet/"


def test_readme_of_a_release_links_to_nothing_relative() -> None:
    made = metadata.absolute((ROOT / "README.md").read_text(), "someone/capsnet", capsnet.__version__)
    links = re.findall(r"\]\(([^)]+)\)", made) + re.findall(r'src="([^"]+)"', made)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_metadata_hook_gives_hatchling_what_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/capsnet")
    made: dict[str, Any] = {}
    metadata.ReleaseMetadata(str(ROOT), {}).update(made)
    assert set(made) == set(PROJECT["dynamic"]) - {"version"}
    assert made["urls"]["Homepage"] == "https://github.com/someone/capsnet"
    assert made["readme"]["text"].startswith("# capsnet")


CITATION = "version: 1.2.3\ndate-released: 2026-11-18\n"
CHANGELOG = "# Changelog\n\n## 1.2.3 - 2026-11-18\n\n### Added\n- It.\n\n## 1.2.2\n\nNot released.\n"


@pytest.mark.parametrize(
    "unreleased", ["", "## Unreleased\n\n", "## [Unreleased]\n", "## Unreleased\n\n### Added\n\n#### Data\n\n"]
)
def test_tag_of_the_version_is_released(unreleased: str) -> None:
    changelog = CHANGELOG.replace("## 1.2.3", f"{unreleased}## 1.2.3")
    assert release.problems("v1.2.3", "someone/capsnet", "1.2.3", changelog, CITATION, "") == []


@pytest.mark.parametrize("entry", ["- More.", "### Fixed\n- A bug.", "A sentence."])
@pytest.mark.parametrize("heading", ["Unreleased", "[Unreleased]", "unreleased"])
def test_tag_is_refused_while_something_is_unreleased(heading: str, entry: str) -> None:
    changelog = CHANGELOG.replace("## 1.2.3", f"## {heading}\n\n{entry}\n\n## 1.2.3")
    (problem,) = release.problems("v1.2.3", "someone/capsnet", "1.2.3", changelog, CITATION, "")
    assert problem == "CHANGELOG.md has entries under Unreleased: move them to a version"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tag": "v1.2.4"}, "the tag is v1.2.4"),
        ({"tag": ""}, "the tag is not set"),
        ({"repository": ""}, "GITHUB_REPOSITORY is not OWNER/NAME"),
        ({"changelog": CHANGELOG.replace("1.2.3", "1.2.30")}, "CHANGELOG.md needs one section '## 1.2.3 - "),
        ({"changelog": CHANGELOG.replace(" - 2026-11-18", "")}, "CHANGELOG.md needs one section '## 1.2.3 - "),
        ({"changelog": CHANGELOG.replace("- It.", "")}, "CHANGELOG.md needs one section '## 1.2.3 - "),
        ({"citation": CITATION.replace("1.2.3", "1.2.2")}, "CITATION.cff has no line 'version: 1.2.3'"),
        ({"citation": CITATION.replace("18", "17")}, "CITATION.cff has no line 'date-released: 2026-11-18'"),
        ({"readme": "There is no release on PyPI yet."}, "README.md still says 'no release on PyPI'"),
        ({"readme": "pip install '.[all]'"}, """README.md still says "pip install '.["""),
    ],
)
def test_tag_that_does_not_fit_is_refused(change: dict[str, str], problem: str) -> None:
    right = {"tag": "v1.2.3", "repository": "someone/capsnet", "changelog": CHANGELOG, "citation": CITATION}
    found = release.problems(version="1.2.3", **({"readme": ""} | right | change))
    assert found
    assert found[0].startswith(problem)


@pytest.mark.parametrize(("source", "found"), [("", ["first.ipynb"]), ("capsnet[all]", [])])
def test_release_needs_notebooks_that_install_it(tmp_path: Path, source: str, found: list[str]) -> None:
    written = (ROOT / "notebooks/01-first-capsule-network.ipynb").read_text()
    (tmp_path / "first.ipynb").write_text(written.replace(r"SOURCE = \"\"", rf"SOURCE = \"{source}\""))
    assert release.without_address(tmp_path) == found


def test_workflow_checks_the_release_before_it_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the workflow, run here: it wants the tag of this version and the name of the repository."""
    runs = [step["run"] for step in WORKFLOWS["release"]["jobs"]["build"]["steps"] if "run" in step]
    assert runs[0] == "python tools/release.py"
    assert "python -m build" in runs[1]
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    monkeypatch.setenv("GITHUB_REF_NAME", f"v{capsnet.__version__}")
    command = [sys.executable, *runs[0].split()[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "GITHUB_REPOSITORY is not OWNER/NAME" in done.stdout


def instructions(name: str) -> list[str]:
    text = re.sub(r"\\\n", " ", DOCKERFILE)
    return [line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith(f"{name} ")]


def test_image_runs_as_a_user_without_rights() -> None:
    (user,) = instructions("USER")
    assert user not in ("root", "0")
    assert f"useradd --create-home --uid 10001 {user}" in DOCKERFILE
    assert DOCKERFILE.index("\nUSER ") < DOCKERFILE.index("\nCMD ")


def test_image_opens_the_explorer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its command is one that the command line understands, and it listens on the port that is exposed."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(explorer, "explore", lambda *models, **options: seen.update(options))
    (command,) = map(json.loads, instructions("CMD"))
    assert command[0] == "capsnet"
    cli.main(command[1:])
    (port,) = instructions("EXPOSE")
    assert (seen["host"], seen["port"], seen["browser"]) == ("0.0.0.0", int(port), False)
    assert f"--publish 127.0.0.1:{port}:{port} capsnet" in DOCKERFILE


def test_image_copies_what_there_is() -> None:
    """Files that are copied exist, and .dockerignore lets through what the wheel is built from."""
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / name).exists() for name in let_through)
    assert {"src", "pyproject.toml", "LICENSE", "README.md", "tools/metadata.py", "constraints.txt"} == let_through
    for copied in instructions("COPY"):
        source = copied.split()[0]
        assert source.startswith("--from") or (ROOT / source).exists()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (401, 0), (503, 1), (None, 1)])
def test_health_check_tells_life_from_death(status: int | None, code: int) -> None:
    """The check itself, against a server that answers so, or against none."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status or 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    (check,) = instructions("HEALTHCHECK")
    words = json.loads(check[check.index("CMD") + 3 :])
    assert words[:2] == ["python", "-c"]
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        port = server.server_port
        if status is None:
            server.server_close()
        else:
            threading.Thread(target=server.handle_request, daemon=True).start()
        script = words[2].replace("8028", str(port))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30)
    assert done.returncode == code


def test_workflows_run_commands_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name, workflow in WORKFLOWS.items():
        for job in workflow["jobs"].values():
            for step in job["steps"]:
                words = shlex.split(step.get("run", "").partition("\n")[0])
                if words[:1] == ["make"]:
                    assert set(words[1:]) <= targets, name
                for path in (word for word in words if word.startswith(("tests/", "tools/", "src/"))):
                    assert (ROOT / path).exists(), f"{name} names {path}"


@pytest.mark.parametrize("missing", ["chromium-browser", "dataset-fashion-mnist"])
def test_a_missing_system_package_does_not_keep_the_other_away(missing: str, tmp_path: Path) -> None:
    (run,) = (step["run"] for step in WORKFLOWS["ci"]["jobs"]["test"]["steps"] if "apt-get" in step.get("run", ""))
    sudo = tmp_path / "sudo"  # in place of the real one: fails if it is asked for what is missing, else notes the words
    sudo.write_text(f'#!/bin/sh\ncase "$*" in *{missing}*) exit 100;; esac\necho "$@" >> {tmp_path}/done\n')
    sudo.chmod(0o755)
    subprocess.run(["/bin/bash", "-ec", run], env={"PATH": str(tmp_path)}, check=True, timeout=30)
    (other,) = {"chromium-browser", "dataset-fashion-mnist"} - {missing}
    assert other in (tmp_path / "done").read_text()


def test_contributing_names_what_is_not_tested_with_the_oldest_versions() -> None:
    (run,) = (step["run"] for step in WORKFLOWS["ci"]["jobs"]["versions"]["steps"] if "pytest" in step.get("run", ""))
    named = re.search(r"It leaves out (.+?)\s+of `tests`", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert named
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert set(re.findall(r"tests/(\w+)", run)) | set(re.findall(r"`(\w+)`", named[1])) == folders


def test_slow_tests_run_every_week() -> None:
    assert WORKFLOWS["slow"][True]["schedule"]  # YAML reads the key `on` as a truth value
    assert {"make test-slow"} <= {step.get("run") for step in WORKFLOWS["slow"]["jobs"]["slow"]["steps"]}


def test_workflows_ask_for_few_rights() -> None:
    for workflow in WORKFLOWS.values():
        assert workflow["permissions"] == {"contents": "read"}
    rights = {name: job.get("permissions") for name, job in WORKFLOWS["release"]["jobs"].items()}
    assert rights["publish"] == {"id-token": "write"}
    assert rights["build"] is None
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()


def test_workflow_tests_every_declared_python() -> None:
    declared = [one.split(" :: ")[-1] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert WORKFLOWS["ci"]["jobs"]["test"]["strategy"]["matrix"]["python"] == declared


def test_issue_forms_have_what_github_wants() -> None:
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        if path.stem == "config":
            continue
        assert {"name", "description", "body"} <= set(form)
        for field in form["body"]:
            assert {"type", "id", "attributes"} <= set(field)
            assert field["attributes"]["label"]
