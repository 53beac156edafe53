"""Figures: real PNGs, written whole or not at all, without pyplot and without state."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from capsnet import metrics
from capsnet.drawing import figures, plots
from capsnet.drawing import style as drawing

RNG = np.random.default_rng(0)
LONG_NAMES = [f"Speed limit ($ {10 * j} km/h)" for j in range(43)]


def check_png(path, target, least=200, most=2600):
    """The file asked for is a PNG of plausible size on a white page, and not blank; its pixels are returned."""
    assert path == target
    assert [file.name for file in target.parent.iterdir()] == [target.name]
    assert path.stat().st_size < 300_000
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert all(least <= side <= most for side in image.size)
        pixels = np.asarray(image.convert("RGB"))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels.std() > 5
    return pixels


def has_colour(pixels, colour):
    wanted = [int(colour[n : n + 2], 16) for n in (1, 3, 5)]
    return bool((np.abs(pixels.astype(int) - wanted).max(axis=-1) <= 3).any())


@pytest.fixture
def kept(monkeypatch):
    """The figures that are saved, as matplotlib has them."""
    drawn, save = [], drawing.save

    def keep(fig, path, plot=False):
        drawn.append(fig)
        return save(fig, path, plot=plot)

    for module in (drawing, plots):
        monkeypatch.setattr(module, "save", keep)
    return drawn


def answers(N, J, wrong=()):
    targets = np.arange(N) % J
    lengths = RNG.uniform(0, 0.3, (N, J))
    lengths[np.arange(N), targets] = 0.9
    for n in wrong:
        lengths[n, (targets[n] + 1) % J] = 0.95
    return lengths, targets


# --- reconstructions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("N", "C", "H", "W", "J", "names"),
    [
        (1, 1, 28, 28, 10, None),
        (24, 1, 28, 28, 10, None),
        (5, 3, 20, 32, 2, ["benign", "malignant"]),
        (9, 3, 32, 32, 43, LONG_NAMES),
        (3, 2, 160, 200, 5, None),
    ],
)
def test_reconstructions_draw_any_size(tmp_path, N, C, H, W, J, names):
    images = np.linspace(0, 1, W) * np.ones((N, C, H, 1))
    lengths, targets = answers(N, J)
    pixels = check_png(
        figures.reconstructions(tmp_path / "r.png", images, images, lengths, targets, names), tmp_path / "r.png"
    )
    assert not has_colour(pixels, drawing.VERMILLION)


def test_reconstructions_mark_what_is_wrong(tmp_path):
    lengths, targets = answers(4, 10, wrong=[2])
    images = np.zeros((4, 1, 28, 28), dtype=np.float32)
    pixels = check_png(
        figures.reconstructions(tmp_path / "r.png", images, images, lengths, targets), tmp_path / "r.png"
    )
    assert has_colour(pixels, drawing.VERMILLION)


def test_reconstructions_take_tensors_bytes_and_several_classes(tmp_path):
    images = torch.randint(0, 256, (4, 1, 36, 36), dtype=torch.uint8)
    recon = torch.rand(4, 1, 36, 36, requires_grad=True)
    hot = torch.zeros(4, 10).scatter_(1, torch.tensor([[0, 1], [2, 3], [4, 5], [6, 7]]), 1.0)
    check_png(figures.reconstructions(tmp_path / "r.png", images, recon, 0.9 * hot, hot), tmp_path / "r.png")


def test_reconstructions_predict_as_the_metrics_do(tmp_path, monkeypatch):
    """All capsules of 0.5 and more, whatever their number; none may be right. Pairs: the two longest."""

    def shown(*arguments):
        pages = []
        monkeypatch.setattr(figures, "picture_rows", lambda path, rows, title, note, **_: pages.append((title, rows)))
        figures.reconstructions(tmp_path / "r.png", *arguments)
        [(title, (above, below))] = pages
        return title, list(above.heads), [[words.text for words in cell.words] for cell in below.cells]

    images = np.zeros((3, 1, 28, 28), dtype=np.float32)
    hot = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0]])
    lengths = np.array([[0.9, 0.4, 0.1], [0.2, 0.1, 0.3], [0.1, 0.5, 0.2]])
    title, labels, answers = shown(images, images, lengths, hot, "abc", 0.5)
    assert title == "Reconstructions: 2 of 3 classified correctly"
    assert labels == ["a, b", "none", "b"]
    assert answers == [["✗ a", "0.90"], ["none", ""], ["b", "0.50"]]
    assert metrics.exact_match(lengths, hot, threshold=0.5).value == pytest.approx(2 / 3)
    one = images[:1], images[:1]
    assert shown(*one, lengths[:1], hot[:1], "abc")[1:] == (["a, b"], [["a, b", "0.90, 0.40"]])
    assert shown(*one, 0.5 * lengths[:1], [0], "abc", 0.5)[1:] == (["a"], [["a  0.45"]])  # one label: the longest


def test_pixels_keep_their_values():
    grey = drawing.pixels(np.array([0, 51, 255], dtype=np.uint8).reshape(1, 1, 1, 3), 4)
    assert grey[0, 0] == pytest.approx(np.array([[0.0] * 3, [0.2] * 3, [1.0] * 3]))
    rgb = np.arange(12).reshape(1, 3, 2, 2) / 12
    assert drawing.pixels(rgb, 4)[0, 1, 0] == pytest.approx(rgb[0, :, 1, 0])
    assert drawing.pixels(np.array([-1.0, np.nan, 2.0]).reshape(1, 1, 1, 3), 4)[0, 0, :, 0].tolist() == [0, 0, 1]


# --- sweep, matrix, curves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("D", "S", "C"), [(16, 11, 1), (4, 5, 3), (1, 1, 1)])
def test_dimension_sweep_frames_the_unmoved_column(tmp_path, D, S, C):
    tiles = np.linspace(0, 1, 28) * np.ones((D, S, C, 28, 1))
    offsets = np.linspace(-0.25, 0.25, S) if S > 1 else np.zeros(1)
    pixels = check_png(figures.dimension_sweep(tmp_path / "s.png", tiles, offsets, 'Capsule "7"'), tmp_path / "s.png")
    assert has_colour(pixels, drawing.ORANGE)  # the frame around the column that nothing moves


def test_signed_shows_zero_without_sign():
    assert [drawing.signed(value) for value in (-0.25, -1e-17, 0.05)] == ["\u22120.25", "0", "+0.05"]


@pytest.mark.parametrize(("J", "names"), [(1, None), (2, ["benign", "malignant"]), (43, LONG_NAMES)])
def test_confusion_matrix_draws_any_number_of_classes(tmp_path, J, names):
    counts = np.diag(np.full(J, 1000)) + (RNG.random((J, J)) < 0.05)
    check_png(figures.confusion_matrix(tmp_path / "c.png", counts, names), tmp_path / "c.png")


def test_confusion_matrix_shows_one_error_in_ten_thousand(tmp_path):
    counts = np.diag(np.full(10, 1000))
    perfect = check_png(figures.confusion_matrix(tmp_path / "c.png", counts), tmp_path / "c.png").astype(int)
    counts[3, 5] = 1
    one = check_png(figures.confusion_matrix(tmp_path / "c.png", counts), tmp_path / "c.png").astype(int)
    changed = np.abs(one - perfect).max(axis=-1) > 8
    assert changed[200:-200, 100:-200].sum() > 3000  # a whole shaded cell, not only a digit


def test_confusion_matrix_has_the_truth_in_rows(tmp_path, kept):
    """Two of ten of class 0 are taken for class 1: in row 0 and column 1, shaded as a fifth of its row."""
    figures.confusion_matrix(tmp_path / "c.png", np.array([[8, 2, 0], [0, 30, 0], [0, 0, 5]]), "abc")
    ax = kept[0].axes[0]
    counts = {words.get_position(): words.get_text() for words in ax.texts[:4]}
    assert counts == {(0, 0): "8", (1, 0): "2", (1, 1): "30", (2, 2): "5"}  # (column, row)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted", "true")
    share = ax.collections[1].get_array()
    assert share[0, 1] == pytest.approx(0.2)
    assert share.count() == 1  # only errors are shaded
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # row 0 is on top
    assert ax.texts[4].get_text() == "Confusion matrix: 95.56 % of 45 correct"


@pytest.mark.parametrize(
    "records",
    [
        [
            {"epoch": e, "train_loss": 1 / e, "val_accuracy": 1 - 0.1 / e, "val_loss": 2 / e, "lr": 1e-3}
            for e in (1, 2, 3)
        ],
        [{"epoch": 1, "train_loss": 0.5, "val_error": 0.02}],
        [{"train_loss": 0.5}, {"val_accuracy": 1.0, "epoch": None}, {}, {"train_loss": float("nan"), "note": "x"}],
        [{"epoch": e, "val_error": 0.0} for e in range(100)],
    ],
)
def test_learning_curves_draw_what_records_hold(tmp_path, records):
    check_png(figures.learning_curves(tmp_path / "l.png", records), tmp_path / "l.png")


def test_learning_curves_are_those_of_the_records(tmp_path, kept):
    """Each split's own loss; accuracy as error in percent; the lowest of the validation split is named."""
    records = [
        {"epoch": 1, "train_loss": 3.0, "val_loss": 4.0, "val_accuracy": 0.75, "lr": 0.2},
        {"epoch": 2, "train_loss": 1.0, "val_loss": 2.0, "val_accuracy": 0.9, "train_error": 0.05, "lr": 0.1},
        {"epoch": 3, "train_loss": 0.5, "val_loss": 3.0, "val_accuracy": 0.8, "train_error": 0.02, "lr": 0.0},
    ]
    figures.learning_curves(tmp_path / "l.png", records)
    drawn = [{line.get_label(): line.get_xydata().tolist() for line in ax.lines} for ax in kept[0].axes]
    assert drawn[0] == {"train": [[1, 3.0], [2, 1.0], [3, 0.5]], "val": [[1, 4.0], [2, 2.0], [3, 3.0]]}
    assert list(drawn[1]) == ["train", "val"]
    assert drawn[1]["train"] == [[2, 5.0], [3, 2.0]]
    assert np.array(drawn[1]["val"]) == pytest.approx(np.array([[1, 25.0], [2, 10.0], [3, 20.0]]))
    assert drawn[2] == {"lr": [[1, 0.2], [2, 0.1], [3, 0.0]]}
    notes = [[words.get_text() for words in ax.texts] for ax in kept[0].axes]
    assert notes == [
        ["Loss", "lowest val: 2, epoch 2"], ["Error", "lowest val: 10 %, epoch 2"], ["Learning rate", "highest: 0.2"],
    ]  # fmt: skip


# --- intervals by row ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("series", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("name", ["CNN", "three outlines", "overlapping pairs of MNIST digits"])
def test_legend_of_intervals_is_between_plot_and_title(tmp_path, monkeypatch, name, series):
    kept = []
    monkeypatch.setattr(plots, "save", lambda fig, path, plot: kept.append(fig) or drawing.save(fig, path, plot))
    measures = [metrics.Measure(f"{name} {n}", [0.1 * n], interval=(0.1 * n, 0.1 * n + 0.2)) for n in range(series)]
    rows = {"rotating features, untrained": measures, "AKOrN": measures}
    target = tmp_path / "i.png"
    check_png(plots.intervals(target, rows, "Phases against controls", "FG-ARI", (-0.1, 1.0)), target)
    kept[0].draw_without_rendering()  # places as on the whole page: the file is cropped
    [ax] = kept[0].axes
    title, plot, legend = ax.texts[0].get_window_extent(), ax.get_window_extent(), ax.get_legend()
    assert [words.get_text() for words in legend.get_texts()] == [measure.name for measure in measures]
    for words in legend.get_texts():
        box = words.get_window_extent()
        assert plot.y1 < box.y0
        assert box.y1 < title.y0
        assert box.x1 <= plot.x1


# --- bad input and bad disks -----------------------------------------------------------------------------------------

IMAGES = np.zeros((3, 1, 8, 8))
LENGTHS, TARGETS = answers(3, 4)


@pytest.mark.parametrize(
    ("draw", "arguments", "message"),
    [
        (figures.reconstructions, (IMAGES[0], IMAGES, LENGTHS, TARGETS), r"\(N, C, H, W\)"),
        (figures.reconstructions, (IMAGES, IMAGES[:2], LENGTHS, TARGETS), "equal in shape"),
        (figures.reconstructions, (IMAGES, IMAGES, LENGTHS[:2], TARGETS[:2]), "equal in length"),
        (figures.reconstructions, (IMAGES, IMAGES, LENGTHS, TARGETS[:2]), "one label for each"),
        (figures.reconstructions, (IMAGES, IMAGES, LENGTHS, TARGETS, ["a"]), "all 4 classes"),
        (figures.reconstructions, (np.zeros((49, 1, 8, 8)),) * 2 + answers(49, 4), "at most 48"),
        (figures.dimension_sweep, (IMAGES, np.zeros(3)), r"\(D, S, C, H, W\)"),
        (figures.dimension_sweep, (np.zeros((2, 3, 1, 8, 8)), np.zeros(4)), r"\(S,\)"),
        (figures.confusion_matrix, (np.ones((2, 3)),), r"\(J, J\)"),
        (figures.confusion_matrix, (np.zeros((2, 2)),), "not all 0"),
        (figures.confusion_matrix, (-np.eye(2),), ">= 0"),
        (figures.confusion_matrix, (np.eye(2), ["a"]), "all 2 classes"),
        (figures.learning_curves, ([],), "none of the 0 records"),
        (figures.learning_curves, ([{"epoch": 1}],), "none of the 1 records"),
    ],
)
def test_bad_input_raises_one_sentence_and_writes_nothing(tmp_path, draw, arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        draw(tmp_path / "x.png", *arguments)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_failed_save_keeps_the_old_picture(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    target = tmp_path / "x.png"
    target.write_bytes(b"old")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        figures.confusion_matrix(target, np.eye(2, dtype=int))
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_failed_rename_leaves_nothing(tmp_path):
    (tmp_path / "x.png").mkdir()
    with pytest.raises(OSError, match=r"x\.png"):
        figures.confusion_matrix(tmp_path / "x.png", np.eye(2, dtype=int))
    assert [file.name for file in tmp_path.iterdir()] == ["x.png"]


def test_equal_numbers_give_equal_bytes(tmp_path):
    first = figures.learning_curves(tmp_path / "deep" / "a.png", [{"lr": 0.1}]).read_bytes()
    assert figures.learning_curves(str(tmp_path / "b.png"), [{"lr": 0.1}]).read_bytes() == first


def test_matplotlib_is_imported_when_drawing_and_pyplot_never(tmp_path):
    program = f"""
import sys
from capsnet.drawing import figures, style as drawing
assert not any(name.split(".")[0] == "matplotlib" for name in sys.modules), "imported too early"
import numpy as np
figures.reconstructions({str(tmp_path / "r.png")!r}, np.ones((1, 1, 8, 8)), np.ones((1, 1, 8, 8)), np.eye(1, 3), [0])
figures.learning_curves({str(tmp_path / "l.png")!r}, [{{"epoch": 1, "lr": 0.1}}])
assert "matplotlib.figure" in sys.modules and "matplotlib.pyplot" not in sys.modules, "pyplot was imported"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_plots_show_the_numbers_they_are_given(tmp_path, kept):
    """Each curve its own, with the interval as its band; dots and whiskers at their measures, each series named."""
    few, many = metrics.Measure("a", [3.0], interval=(1.0, 4.0)), metrics.Measure("b", [6.0], interval=(5.0, 9.0))
    curve = plots.Line.of("net", [10, 20], [few, many])
    assert curve == ("net", [10, 20], [3.0, 6.0], (1.0, 5.0), (4.0, 9.0))
    plots.lines(tmp_path / "l.png", [curve, plots.Line("other", [10, 20], [8.0, 7.0])], "t", "n", "x", "y")
    ax = kept[0].axes[0]
    shown = {line.get_label(): line.get_xydata().tolist() for line in ax.lines}
    assert shown == {"net": [[10, 3], [20, 6]], "other": [[10, 8], [20, 7]]}
    corners = {tuple(corner) for corner in ax.collections[0].get_paths()[0].vertices.tolist()}
    assert corners == {(10, 1), (20, 5), (20, 9), (10, 4)}
    plots.intervals(tmp_path / "i.png", {"row": [few, many]}, "t", "x", (0, 10))
    whiskers = [container.lines[2][0].get_segments()[0][:, 0].tolist() for container in kept[1].axes[0].containers]
    assert whiskers == [[1, 4], [5, 9]]
    assert [container.lines[0].get_xdata().tolist() for container in kept[1].axes[0].containers] == [[3], [6]]
    plots.bars(tmp_path / "b.png", ["one", "two"], {"set": [few, None]}, "t", "n")
    ax = kept[2].axes[0]
    assert [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in ax.patches] == [(0, 3)]
    assert [words.get_text() for words in ax.texts[:2]] == ["3.00", "not in\nthe paper"]
    plots.scatter(tmp_path / "s.png", [(2.0, few), (5.0, many)], "t", "n", "x", "y")
    points = {line.get_label(): line.get_xydata().tolist() for line in kept[3].axes[0].lines}
    assert (points["a"], points["b"]) == ([[2, 3]], [[5, 6]])


def test_pictures_are_in_their_places(tmp_path, monkeypatch):
    """Inputs above what was drawn from their capsules; a row for each dimension, a column for each offset."""
    pages = []
    monkeypatch.setattr(figures, "picture_rows", lambda path, rows, title, note, **_: pages.append(rows))
    images, recon = (RNG.random((10, 1, 8, 8)) for _ in range(2))
    figures.reconstructions(tmp_path / "r.png", images, recon, *answers(10, 3))
    above, below = (np.stack([cell.image for row in pages[0][k::2] for cell in row.cells]) for k in (0, 1))
    assert np.array_equal(above, images)
    assert np.array_equal(below, recon)
    tiles = RNG.random((4, 3, 1, 8, 8))
    figures.dimension_sweep(tmp_path / "s.png", tiles, np.array([-0.1, 0, 0.1]))
    assert np.array_equal([[cell.image for cell in row.cells] for row in pages[1]], tiles)
    assert [row.label for row in pages[1]] == ["dim 0", "dim 1", "dim 2", "dim 3"]
    assert list(pages[1][0].heads) == [drawing.signed(-0.1), "0", "+0.10"]
    assert [cell.frame is not None for cell in pages[1][3].cells] == [False, True, False]
