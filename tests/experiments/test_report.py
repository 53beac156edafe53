"""Reports: numbers with their spread and interval, a self-contained page, one table of all results."""

import json
import random
from pathlib import Path

import pytest
from PIL import Image
from scipy.stats import ttest_ind

from capsnet import weights
from capsnet.drawing.document import Figure, Table
from capsnet.experiments import list_experiments
from capsnet.experiments._estimate import sentence
from capsnet.experiments._report import Measure, Report, duration, error_measure, read_measure
from capsnet.experiments.lab import Lab, identity
from capsnet.metrics import compare, difference, wilson_interval
from capsnet.training import TrainConfig
from tools import results

DOCS = Path(__file__).parents[2] / "docs"


def test_error_measure_has_mean_spread_and_interval() -> None:
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
    old = {key: value for key, value in measure._asdict().items() if key != "n"}  # files of earlier versions
    assert read_measure(old) == measure._replace(n=None)


def test_difference_is_true_whichever_way_it_falls() -> None:
    low, high = Measure("a", [1.2], interval=(1.0, 1.4), n=10_000), Measure("b", [2.3], interval=(2.0, 2.6), n=10_000)
    assert [compare(low, high), compare(high, low), compare(low, low)] == [-1, 1, 0]
    assert difference("A", low, "B", high) == "A is lower than B: 1.20 % against 2.30 %, 95 % intervals apart"
    assert difference("B", high, "A", low) == "B is higher than A: 2.30 % against 1.20 %, 95 % intervals apart"
    near = low._replace(values=[1.3])
    words = "A is level with B: 1.20 % against 1.30 %, no difference that 10,000 examples can show"
    assert difference("A", low, "B", near) == words
    exact = Measure("c", [1.1])
    assert "level with C: 1.20 % against 1.10 %, no difference" in difference("A", low, "C", exact)
    assert difference("B", high, "C", exact).endswith("1.10 %, outside the 95 % interval")
    bare = difference("C", exact, "D", Measure("d", [12.34], "px"))
    assert bare == "C is lower than D: 1.10 % against 12.34 %"


def test_interval_that_touches_counts_as_overlapping() -> None:
    a, b = Measure("a", [1.0], interval=(0.5, 1.5)), Measure("b", [2.0], interval=(1.5, 2.5))
    assert compare(a, b) == compare(b, a) == 0


def test_seeds_that_spread_are_no_difference() -> None:
    steady, wild, high = (
        [{"value": 1 - v / 100, "n": 2000} for v in row] for row in ((16, 17, 18), (12, 25, 39), (30, 31, 32))
    )
    a, b, c = (error_measure("", row) for row in (steady, wild, high))
    assert [compare(a, b), compare(a, c), compare(c, a)] == [0, -1, 1]
    assert difference("A", a, "B", b).endswith("no difference that 2,000 examples and 3 seeds can show")
    assert difference("A", a, "C", c).endswith("95 % intervals apart")
    level = Measure("", [20.0])
    assert [compare(m, level) for m in (a, b, c)] == [-1, 0, 1]
    assert compare(b, level._replace(values=[10.0])) == 0, "beyond the interval of the examples only"
    assert compare(b, level._replace(interval=(9.0, 11.0))) == 1, "one seed cannot say how much it varies"
    assert compare(a._replace(values=[17.0] * 3), c._replace(values=[31.0] * 3)) == -1


def test_seeds_differ_where_scipys_interval_of_welch_says_so() -> None:
    rng = random.Random(0)
    found = []
    for _ in range(200):
        a, b = ([rng.gauss(mean, 1) for _ in range(rng.choice([2, 3, 5]))] for mean in (0, rng.choice([0, 2, 4])))
        low, high = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
        found.append((compare(Measure("a", a), Measure("b", b)), int(low > 0) - int(high < 0)))
    assert {order for order, _ in found} == {-1, 0, 1}
    assert all(order == by_scipy for order, by_scipy in found)


@pytest.mark.filterwarnings("error")
def test_seeds_that_are_nearly_equal_raise_no_warning() -> None:
    equal, apart = Measure("a", [0.15, 0.15000000000000002, 0.15]), Measure("b", [1.25, 1.3, 1.2])
    assert compare(equal, apart) == -1
    assert compare(equal, Measure("b", [1.25, 0.25, 0.45])) == 0  # its own seeds are too far apart


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


def complete(report: Report, name: str = "table1", budget: str = "quick") -> Report:
    env = {"processor": "P", "threads": 2, "device": "cpu", "capsnet": "0", "torch": "2", "python": "3", "started": "t"}
    report.source = {
        "name": name,
        "title": "A title",
        "about": "What the paper did.\n\nThe claim to look at.",
        "budget": budget,
        "seeds": [0, 1],
        "command": f"capsnet reproduce {name}",
        "seconds": 120.0,
        "environment": env,
    }
    return report


def test_html_is_self_contained_and_escaped(report: Report) -> None:
    text = complete(report).to_html()
    assert "data:image/png;base64," in text
    for part in ("http://", "https://", "<script", "<link", "<tags>"):
        assert part not in text
    assert "error &lt;a&amp;b&gt;" in text
    assert "<em>works</em>" in text
    assert "<code>code</code>" in text
    assert "A caption" in text
    assert "capsnet reproduce table1" in text
    assert "2 seeds, 2 minutes of work" in text


def test_report_survives_its_json_file(report: Report, tmp_path: Path) -> None:
    complete(report)
    file = tmp_path / f"{NO_CLAIMS}.json"
    file.write_text(json.dumps(report.to_dict(), allow_nan=False))
    again = Report.read(file, tmp_path / "figures")
    assert again.to_dict() == report.to_dict()
    assert again.to_html() == report.to_html()
    assert again.to_markdown() == report.to_markdown()


def test_json_has_null_for_nan(report: Report) -> None:
    assert report.to_dict()["raw"] == {"nan": None, "list": [None, 1.0]}
    json.dumps(report.to_dict(), allow_nan=False)


NO_CLAIMS = "routing-toy"


def test_gather_takes_the_largest_finished_budget(report: Report, tmp_path: Path) -> None:
    out, docs = tmp_path / "out", tmp_path / "docs"
    docs.mkdir()
    for budget in ("smoke", "quick", "paper"):
        folder = out / budget / NO_CLAIMS
        (folder / "figures").mkdir(parents=True)
        (folder / "figures" / "a.png").write_bytes(report.figures[0].path.read_bytes())
        if budget != "paper":  # not finished
            (folder / f"{NO_CLAIMS}.json").write_text(json.dumps(complete(report, budget=budget).to_dict()))
    assert results.gather(out, docs) == [NO_CLAIMS]
    text = (docs / "RESULTS.md").read_text()
    assert json.loads((docs / "results" / f"{NO_CLAIMS}.json").read_text())["budget"] == "quick"
    assert "| error <a&b> | 1.50 ± 0.71 % | 0.25 |" in text
    assert "how \\| much" in text
    assert f"![A caption](results/{NO_CLAIMS}/a.png)" in text
    assert (docs / "results" / NO_CLAIMS / "a.png").is_file()
    assert f"not run yet: {', '.join(name for name in list_experiments() if name != NO_CLAIMS)}" in text
    assert results.gather(tmp_path / "empty", docs) == []  # nothing new: what is there stays
    assert (docs / "RESULTS.md").read_text() == text


def test_results_command_needs_a_docs_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        results.main([str(tmp_path), str(tmp_path / "nowhere")])
    assert stop.value.code == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_bundled_results_are_of_the_bundled_weights() -> None:
    """New weights want `capsnet reproduce NAME --budget shipped --fresh` and `make results`."""
    used = [json.loads(path.read_text()).get("bundled", {}) for path in sorted((DOCS / "results").glob("*.json"))]
    named = {name: fingerprint for one in used for name, fingerprint in one.items()}
    bundled = {"capsnet-mnist", "capsnet-affine", "capsnet-affine-cnn"}
    bundled |= {f"capsnet-multimnist{one}" for one in ("", "-cnn", "-6", "-6-cnn")}
    assert bundled == named.keys()
    assert named == {name: identity(weights.resolve(name)) for name in named}


def test_results_page_is_made_from_its_files() -> None:
    assert (DOCS / "RESULTS.md").read_text() == results.render(DOCS)
    for path in (DOCS / "results").glob("*.json"):
        document = json.loads(path.read_text())
        assert document["budget"] in results.ranked(path.stem)
        assert document["seconds"] > 0
        assert document["name"] == path.stem
        for figure in document["figures"]:
            assert (DOCS / "results" / path.stem / Path(figure["file"]).name).is_file()


def test_estimate_counts_the_runs_that_are_left(quick: TrainConfig, tmp_path: Path) -> None:
    lab = Lab("toy", "paper", 1, tmp_path)
    assert sentence("toy", lab, [quick, quick]).startswith("toy: 2 training runs to do, about ")
    lab.train(quick)
    assert "all 2 training runs are finished" in sentence("toy", lab, [quick, quick])
    fresh = Lab("toy", "paper", 1, tmp_path, fresh=True)
    assert sentence("toy", fresh, [quick]).startswith("toy: one training run to do")
    assert [duration(s) for s in (0.2, 30, 100, 6000, 8 * 3600, 3 * 86400)] == [
        "1 second",
        "30 seconds",
        "2 minutes",
        "2 hours",
        "8 hours",
        "3 days",
    ]
