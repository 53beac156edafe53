"""What ships: the wheel, installed outside the repository, predicts a digit with its own data and weights."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from PIL import Image

import capsnet

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(REPOSITORY)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    return next(folder.glob("*.whl"))


def test_nothing_that_ships_is_lost(wheel: Path) -> None:
    """Every file below src/capsnet that is not a cache is in the wheel, and so are the licences."""
    inside = set(zipfile.ZipFile(wheel).namelist())
    source = REPOSITORY / "src"
    files = {
        str(path.relative_to(source))
        for path in (source / "capsnet").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files - inside == set()
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert any(name.endswith("ORIGIN.md") and "licenses" in name for name in inside)
    assert {"capsnet/py.typed", "capsnet/data/mnist/train-images-idx3-ubyte.xz"} <= inside


def test_the_wheel_predicts_a_digit_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    """A new virtual environment that has the wheel, and borrows only the *dependencies* of this one.

    A path file makes our site-packages importable but does not follow the path files in it, so the editable
    installation of the repository is not visible there: what runs is what was built.
    """
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    site = environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            str(wheel),
        ],
        check=True,
    )
    digits = capsnet.data.load("mnist", "test")
    assert isinstance(digits, capsnet.data.ArrayDataset)
    Image.fromarray(255 - digits.images[0, 0]).resize((280, 280)).save(tmp_path / "digit.png")

    def run(*arguments: str) -> str:
        done = subprocess.run([*arguments], cwd=tmp_path, capture_output=True, text=True, env={"HOME": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run(str(python), "-c", "import capsnet; print(capsnet.__file__)").strip()
    assert where.startswith(str(site))
    said = run(str(environment / "bin" / "capsnet"), "predict", "digit.png", "--model", "capsnet-small-mnist")
    assert said.startswith("digit.png: 7 ")  # the first test digit of MNIST is a seven
    script = "import capsnet; print(len(capsnet.data.load('mnist', 'train')), len(capsnet.data.load('mnist', 'test')))"
    assert run(str(python), "-c", script).split() == ["50000", "10000"]


def test_the_readme_s_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (REPOSITORY / "README.md").read_text()
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    assert len(blocks) == 2
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    for block in blocks:
        exec(block, space)
    assert space["answer"].label in "0123456789"
    assert space["routed"].trace.couplings.shape == (3, 1, 6, 3)


def test_what_the_readme_names_exists() -> None:
    """Links and pictures point to files, and the recipes and models it mentions are known."""
    import re

    for page in [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *REPOSITORY.glob("docs/*.md")]:
        text = page.read_text()
        for link in re.findall(r"\]\(([^)#]+)\)", text) + re.findall(r'src="([^"]+)"', text):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name} links to {link}"
        for recipe in re.findall(r"capsnet train ([a-z][a-z-]*)(?![\w/.-])", text):
            assert recipe in capsnet.recipes.list_recipes(), f"{page.name} names the recipe {recipe}"
        for target in re.findall(r"^ +make ([a-z-]+)", text, re.MULTILINE):
            assert f"\n{target}:" in (REPOSITORY / "Makefile").read_text(), f"{page.name} names `make {target}`"


def test_the_readmes_numbers_are_those_of_the_cards() -> None:
    """Each row of its table of weights: `name`, what it is, test error."""
    import re

    rows = re.findall(r"^\| `([a-z-]+)` \|.*\| ([\d.]+) % \|", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    assert rows
    for name, error in rows:
        assert error == f"{100 * (1 - capsnet.load(name).card['test_accuracy']['value']):.2f}", name
    told = (REPOSITORY / "docs" / "RESULTS.md").read_text()
    assert all(f"| `{name}` |" in told for name, _ in rows)
