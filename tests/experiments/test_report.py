"""What people get: numbers with their spread and interval, a page that needs nothing else, one table of all results."""

import json
from pathlib import Path

import pytest
from PIL import Image

from capsnet import weights
from capsnet.experiments._estimate import duration, sentence
from capsnet.experiments._html import inline, page
from capsnet.experiments._report import Figure, Measure, Report, Table, error_measure, read_measure
from capsnet.experiments._reproduce import EXPERIMENTS
from capsnet.experiments.lab import Lab, identity
from capsnet.metrics import wilson_interval
from capsnet.training import TrainConfig
from tools import results

DOCS = Path(__file__).parents[2] / "docs"


def test_mean_spread_and_interval_by_hand() -> None:
    shares = [{"value": 0.98, "n": 1000}, {"value": 0.96, "n": 1000}]
    measure = error_measure("x", shares, "1.5")
    assert measure.values == pytest.approx([2, 4])
    assert measure.mean == pytest.approx(3)
    assert measure.spread == pytest.approx(2**0.5)
    low, high = wilson_interval(970, 1000)  # one test set of 1000, at the mean: seeds share its examples
    assert measure.interval == pytest.approx((100 * (1 - high), 100 * (1 - low)))
    assert measure.shown() == f"3.00 ± 1.41 % (95 %: {100 * (1 - high):.2f} to {100 * (1 - low):.2f})"
    one = error_measure("x", shares[:1])
    assert one.spread is None
    assert "±" not in one.shown()
    assert read_measure(json.loads(json.dumps(measure._asdict()))) == measure


@pytest.fixture
def report(tmp_path: Path) -> Report:
    path = tmp_path / "figures" / "a.png"
    path.parent.mkdir()
    Image.new("L", (4, 4)).save(path)
    return Report(
        measures=[Measure("error <a&b>", [1.0, 2.0], published="0.25")],
        tables=[Table("A table", ["what", "how | much"], [["x", "1|2"]])],
        figures=[Figure(path, "A caption")],
        findings=["It *works* with `code` & <tags>."],
        differs=["Everything."],
        raw={"nan": float("nan"), "list": [float("inf"), 1.0]},
    )


def document(report: Report, name: str = "table1") -> dict:
    env = {"processor": "P", "threads": 2, "device": "cpu", "capsnet": "0", "torch": "2", "python": "3", "started": "t"}
    return {
        "name": name,
        "title": "A title",
        "about": "What the paper did.\n\nThe claim to look at.",
        "budget": "quick",
        "seeds": [0, 1],
        "command": f"capsnet reproduce {name}",
        "seconds": 120.0,
        "environment": env,
        **report.to_dict(),
    }


def test_the_page_is_self_contained_and_escapes(report: Report, tmp_path: Path) -> None:
    text = page(document(report), tmp_path)
    assert "data:image/png;base64," in text
    assert "http://" not in text
    assert "https://" not in text
    assert "<script" not in text
    assert "<link" not in text
    assert "error &lt;a&amp;b&gt;" in text
    assert "<em>works</em>" in text
    assert "<code>code</code>" in text
    assert "<tags>" not in text
    assert "A caption" in text
    assert "capsnet reproduce table1" in text
    assert "2 seeds, 2 minutes of work" in text
    assert inline("2 * 3 * 4 and a*b*c") == "2 * 3 * 4 and a*b*c"


def test_json_has_no_nan(report: Report) -> None:
    assert report.to_dict()["raw"] == {"nan": None, "list": [None, 1.0]}
    json.dumps(report.to_dict(), allow_nan=False)


def test_gathering_takes_the_largest_finished_budget(report: Report, tmp_path: Path) -> None:
    out, docs = tmp_path / "out", tmp_path / "docs"
    docs.mkdir()
    for budget in ("smoke", "quick", "paper"):
        folder = out / budget / "table1"
        (folder / "figures").mkdir(parents=True)
        (folder / "figures" / "a.png").write_bytes(report.figures[0].path.read_bytes())
        if budget != "paper":  # not finished
            (folder / "table1.json").write_text(json.dumps(document(report) | {"budget": budget}))
    assert results.gather(out, docs) == ["table1"]
    text = (docs / "RESULTS.md").read_text()
    assert json.loads((docs / "results" / "table1.json").read_text())["budget"] == "quick"
    assert "| error <a&b> | 1.50 ± 0.71 % | 0.25 |" in text
    assert "how \\| much" in text
    assert "![A caption](results/table1/a.png)" in text
    assert (docs / "results" / "table1" / "a.png").is_file()
    assert f"not run yet: {', '.join(EXPERIMENTS[1:])}" in text
    assert results.gather(tmp_path / "empty", docs) == []  # nothing new: what is there stays
    assert (docs / "RESULTS.md").read_text() == text


def test_results_of_the_box_are_of_the_weights_that_are_in_it() -> None:
    """New weights want `capsnet reproduce NAME --budget shipped --fresh` and `make results`."""
    used = [json.loads(path.read_text()).get("boxed", {}) for path in sorted((DOCS / "results").glob("*.json"))]
    named = {name: kept for one in used for name, kept in one.items()}
    assert {"capsnet-mnist", "capsnet-multimnist", "capsnet-affine", "capsnet-affine-cnn"} == named.keys()
    assert named == {name: identity(weights.resolve(name)) for name in named}


def test_the_shipped_page_is_what_its_files_say() -> None:
    assert (DOCS / "RESULTS.md").read_text() == results.render(DOCS)
    for path in (DOCS / "results").glob("*.json"):
        shipped = json.loads(path.read_text())
        assert shipped["budget"] in results.BUDGETS
        assert shipped["seconds"] > 0
        assert shipped["name"] == path.stem
        for figure in shipped["figures"]:
            assert (DOCS / "results" / path.stem / Path(figure["file"]).name).is_file()


def test_how_long_it_takes_is_measured(quick: TrainConfig, tmp_path: Path) -> None:
    lab = Lab("toy", "paper", 1, tmp_path)
    assert sentence("toy", lab, [quick, quick]).startswith("toy: 2 training runs to do, about ")
    lab.train(quick)
    assert "all 2 training runs are there already" in sentence("toy", lab, [quick, quick])
    fresh = Lab("toy", "paper", 1, tmp_path, fresh=True)
    assert sentence("toy", fresh, [quick]).startswith("toy: one training run to do")
    assert [duration(s) for s in (0.2, 30, 100, 6000, 8 * 3600, 3 * 86400)] == [
        "1 seconds",
        "30 seconds",
        "2 minutes",
        "2 hours",
        "8 hours",
        "3 days",
    ]
