"""The package: its wheel works outside the repository, its documents are correct, its names are imported lazily."""

import ast
import importlib
import pickle
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


def test_wheel_holds_every_file(wheel: Path) -> None:
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


def test_wheel_predicts_a_digit_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    """A new virtual environment has the wheel and only the *dependencies* of this one.

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
    answer = run(str(environment / "bin" / "capsnet"), "predict", "digit.png")
    assert answer.startswith("digit.png: 7 ")  # the first test digit of MNIST is a seven
    script = "import capsnet; print(len(capsnet.data.load('mnist', 'train')), len(capsnet.data.load('mnist', 'test')))"
    assert run(str(python), "-c", script).split() == ["50000", "10000"]


def test_readme_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, as after `pip install`: it must not need files of the repository."""
    text = (REPOSITORY / "README.md").read_text()
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    assert len(blocks) >= 2
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    for block in blocks:
        exec(block, space)
    assert space["answer"].label == "7"  # the first test digit of MNIST is a seven
    assert space["routed"].trace.couplings.shape == (3, 1, 6, 3)


def test_names_in_the_documents_exist() -> None:
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


def test_readme_numbers_are_those_of_the_cards() -> None:
    """Each row of its table of weights: ``name``, what it is, test error."""
    import re

    rows = re.findall(r"^\| `([a-z0-9-]+)` \|.*\| ([\d.]+) % \|", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    assert len(rows) == 10
    for name, error in rows:
        assert error == f"{100 * (1 - capsnet.load(name).card['test_accuracy']['value']):.2f}", name
    results = (REPOSITORY / "docs" / "RESULTS.md").read_text()
    assert all(f"| `{name}` |" in results for name, _ in rows)


HEAVY = (
    "torch._dynamo",
    "captum",
    "fastapi",
    "huggingface_hub",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "optuna",
    "scipy",
    "sklearn",
    "tensorboard",
    "tyro",
    "uvicorn",
)


def imported_by(script: str, *modules: str) -> list[str]:
    """Which of the modules a script has imported when it ends, in a new process."""
    script += f"; import sys; print([name for name in {modules} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return ast.literal_eval(done.stdout)


def test_import_does_not_import_torch() -> None:
    assert imported_by("import capsnet", "torch", "numpy", "pydantic", *HEAVY) == []


def test_import_is_small() -> None:
    """Only the names are there: of the package two modules, of other packages none."""
    script = "import sys; before = set(sys.modules); import capsnet; new = set(sys.modules) - before; "
    script += "top = {name.partition('.')[0] for name in new} - set(sys.stdlib_module_names); "
    script += "print([sorted(name for name in new if name.startswith('capsnet')), sorted(top)])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == [["capsnet", "capsnet._version"], ["capsnet"]]


def test_training_names_do_not_import_optional_parts() -> None:
    """Using the library imports PyTorch, but no web server, search, drawing or command line."""
    names = "import capsnet; capsnet.train, capsnet.predict, capsnet.recipes.get('demo')"
    modules = "import capsnet.training, capsnet.inference, capsnet.models, capsnet.data"
    assert imported_by(f"{names}; {modules}", *HEAVY) == []


def test_public_names_are_found_in_every_way() -> None:
    assert set(capsnet.__all__) <= set(dir(capsnet))
    namespace: dict = {}
    exec("from capsnet import *", namespace)
    for name in capsnet.__all__:
        assert namespace[name] is getattr(capsnet, name)
    assert capsnet.train is importlib.import_module("capsnet.training").train
    assert importlib.import_module("capsnet.data") is capsnet.data
    assert pickle.loads(pickle.dumps(capsnet.TrainConfig)) is capsnet.TrainConfig
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        capsnet.trian  # type: ignore[attr-defined] # noqa: B018


def test_type_checkers_see_the_public_names() -> None:
    """The names under ``if TYPE_CHECKING:`` are those of ``__all__``, from the modules that they are imported from."""
    source = ast.parse(Path(capsnet.__file__).read_text())
    block = next(node for node in source.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: node.module for node in imports for alias in node.names}
    assert {*seen, "__version__"} == set(capsnet.__all__)
    for name, module in seen.items():
        assert getattr(importlib.import_module(str(module)), name) is getattr(capsnet, name)


def test_private_modules_are_used_in_their_own_room_only() -> None:
    """A leading underscore means private to its package; ``capsnet._names`` and the like are private to ``capsnet``."""
    source = REPOSITORY / "src" / "capsnet"
    for path in source.rglob("*.py"):
        room = path.relative_to(source).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                modules += [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            for module in modules:
                parts = module.split(".")
                private = any(part.startswith("_") and not part.startswith("__") for part in parts[2:])
                assert not (parts[0] == "capsnet" and private and parts[1] != room), f"{path.name} imports {module}"
