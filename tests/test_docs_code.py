"""Blocks of Python in the documentation run as they are written, in an empty folder. README, notebooks and the
walk-through of synchrony have tests of their own."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

import capsnet

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> capsnet.data.Batch:
    monkeypatch.chdir(tmp_path)
    return capsnet.data.load("mnist", "test").batch(range(20))


def run(code: list[str], **given: Any) -> dict[str, Any]:
    space = dict(given)
    for block in code:
        exec(block, space)
    return space


def test_guide(digits: capsnet.data.Batch) -> None:
    given = {"dataset": TensorDataset(digits.images, digits.targets), "images": digits.images}
    space = run(blocks("guide.md"), classes=digits.targets, **given)
    assert Path("sweep.png").is_file()
    assert [answer.label for answer in space["answers"]] == [str(label) for label in digits.targets.tolist()]
    assert space["result"].accuracy.n == 20


@pytest.mark.parametrize("page", ["backbones.md", "routings.md"])
def test_layers(page: str, digits: capsnet.data.Batch) -> None:
    first = blocks(page)[0]  # the second of backbones.md needs timm
    assert torch.isfinite(run([first])["loss"])


def test_explain(digits: capsnet.data.Batch) -> None:
    Image.fromarray((255 * digits.images[0, 0]).byte().numpy()).save("digit.png")
    asked, beside = blocks("explain.md")
    space = run([asked], capsnet=capsnet)
    assert Path("map.png").is_file()
    assert space["seen"].label == "7"  # the first test digit of MNIST
    pytest.importorskip("captum", reason="install the extra `dev` anew")
    assert run([beside], capsnet=capsnet)["theirs"].shape == (28, 28)


def test_scikit_learn(digits: capsnet.data.Batch) -> None:
    pytest.importorskip("sklearn", reason="the extra `sklearn` is not installed")
    code = "\n".join(blocks("scikit-learn.md"))
    for long, short in (("epochs=10", "epochs=1"), ("(return_X_y=True)", "(return_X_y=True); X, y = X[:300], y[:300]")):
        assert long in code
        code = code.replace(long, short)
    assert run([code])["calibrated"].predict_proba(digits.images.numpy()[:2, 0, :8, :8]).shape == (2, 10)


def test_synchrony(digits: capsnet.data.Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    order, flat, phases = blocks("synchrony.md")
    space = run([order])
    expected = space["oscillators"].locked_order(1.5 * space["critical"], space["oscillators"].normal())
    assert float(space["run"].order[-1]) == pytest.approx(float(expected), abs=0.002)
    space = run([flat])
    assert float(space["agreement"].abs().mean()) == pytest.approx(0.019, abs=1e-3)
    assert float(space["trace"].logits[-1].std(dim=-1).mean()) == pytest.approx(0.063, abs=1e-3)
    assert '"docs/networks/' in phases
    space = run([phases.replace('"docs/networks/', f'"{DOCS}/networks/')])
    assert Path("phases.png").is_file()
    owners, groups = space["owners"], space["groups"]
    for own in (1, 2):  # nearly all pixels of an outline are in one group
        assert groups[owners == own].bincount().max() > 0.9 * (owners == own).sum()


def test_named_tests_exist() -> None:
    """docs/reliability.md names a test for each bug that other projects are known for."""
    named = re.findall(r"`(tests/[\w/.]+)::(\w+)`", (DOCS / "reliability.md").read_text())
    assert len(named) > 10
    for path, name in named:
        assert f"\ndef {name}(" in (DOCS.parent / path).read_text(), f"{path} has no {name}"


def test_tables_have_a_line_for_each_row() -> None:
    """A table that a re-wrap has joined into a paragraph is shown as one."""
    pages = [*DOCS.rglob("*.md"), *(DOCS.parent / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))]
    assert len(pages) > 20
    for page in pages:
        for line in page.read_text().splitlines():
            assert "|---" not in line or re.fullmatch(r" *\|[-| ]+", line), f"{page.name}: {line[:80]}"
