"""Figure 5: which classes are decoded, which pairs are shown, what the errors are measured against."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from capsnet.data import ArrayDataset, Pairs
from capsnet.experiments import _overlays, multimnist_figure
from capsnet.models import Model, Output


def hot(*rows: tuple[int, int], J: int = 10) -> np.ndarray:
    chosen = np.zeros((len(rows), J), dtype=bool)
    for n, row in enumerate(rows):
        chosen[n, list(row)] = True
    return chosen


def test_absent_class_is_neither_label_nor_prediction() -> None:
    labels = np.array([[2, 7], [2, 7], [2, 7], [3, 9], [0, 9]])
    guess = hot((2, 7), (2, 8), (8, 9), (9, 3), (1, 2))
    assert multimnist_figure.absent_class(labels, guess).tolist() == [8, 9, 0, 0, 3]
    with pytest.raises(ValueError, match="needs more than 3 classes"):
        multimnist_figure.absent_class(np.array([[0, 1]]), hot((1, 2), J=3))


@pytest.mark.parametrize(
    ("labels", "guess", "expected"),
    [
        ((2, 7), (2, 7), (2, 7)),
        ((7, 2), (2, 7), (7, 2)),
        ((7, 2), (2, 5), (5, 2)),  # the 2 is right and stays second
        ((7, 2), (7, 9), (7, 9)),
        ((2, 7), (3, 7), (3, 7)),
        ((7, 2), (0, 1), (0, 1)),
    ],
)
def test_a_right_class_keeps_its_place(labels: tuple, guess: tuple, expected: tuple) -> None:
    assert multimnist_figure.as_labelled(labels, hot(guess)[0]) == expected


def test_shown_pairs_are_the_first_of_their_kind() -> None:
    right = np.ones(20, dtype=bool)
    right[[0, 3, 4, 15, 16, 17]] = False
    assert multimnist_figure.first_of_each(right) == {
        "right": [1, 2, 5, 6, 7, 8],
        "absent": [9, 10, 11, 12],
        "wrong": [0, 3, 4, 15],
    }
    assert multimnist_figure.first_of_each(np.zeros(2, dtype=bool)) == {"right": [], "absent": [], "wrong": [0, 1]}


class Perfect(Model):
    """Knows class k by its grey (k + 1) / 10 and draws it perfectly from a pose that is the picture; others are black.

    `blind` to a class, it takes the absent class 0 for it.
    """

    def __init__(self, side: int, blind: int | None = None) -> None:
        super().__init__((side, side), 1, 5)
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.blind = blind

    def forward(self, images: Tensor, labels: Tensor | None = None, trace: bool = False) -> Output:
        grey = (torch.arange(5) + 1) / 10
        poses = images.flatten(1).unsqueeze(1) * ((images.flatten(1).unsqueeze(1) - grey[:, None]).abs() < 0.01)
        lengths = poses.amax(dim=2)
        if self.blind is not None:
            lengths[:, self.blind] = 0
            lengths[:, 0] += 0.001
        return Output(lengths=lengths, poses=poses)

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        chosen = poses.gather(1, classes[..., None].expand(-1, -1, poses.shape[2]))
        return chosen.unflatten(2, (1, *self.image_size))


def flat_pairs() -> Pairs:
    """Digits of 2x2 flat pixels, apart on the canvas because one half of the classes is in a corner of its own."""
    images = np.zeros((4, 1, 8, 8), dtype=np.uint8)
    for k in range(4):
        images[k, 0, 2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = round(255 * (k + 2) / 10)
    digits = ArrayDataset(images, np.arange(1, 5), list("abcde"))
    return Pairs(digits, 12, shift=0, canvas=8, seed=0, fresh=False, name="flat")


def test_errors_of_a_network_that_knows() -> None:
    pairs = flat_pairs()
    found = multimnist_figure.take_apart(Perfect(8), pairs, 12)
    truth = pairs.batch(range(12)).sources
    assert truth is not None
    black = float(truth.images.square().sum()) / 24
    assert found["right"] == found["count"] == 12
    assert found["error"]["true"] == pytest.approx(0, abs=1e-9)
    assert found["error"]["black"] == pytest.approx(black)
    assert found["error"]["absent"] == pytest.approx(black)  # an absent capsule of this network draws nothing
    assert found["shown"]["wrong"] == []


def test_wrong_answers_are_found_and_decoded_both_ways() -> None:
    pairs = flat_pairs()
    model = Perfect(8, blind=4)
    found = multimnist_figure.take_apart(model, pairs, 12)
    batch = pairs.batch(range(12))
    wrong = batch.targets[:, 4].nonzero()[:, 0].tolist()
    assert found["right"] == 12 - len(wrong)
    assert found["shown"]["wrong"] == wrong[:4]
    columns = multimnist_figure.columns(model, pairs, wrong[:4], ["R:P", "R"])
    assert [column.mark for column in columns] == ["R:P", "R"] * 4
    for predicted, labelled in zip(columns[::2], columns[1::2], strict=True):
        assert predicted.drawn == tuple(0 if j == 4 else j for j in predicted.labels)
        assert labelled.drawn == labelled.labels
        np.testing.assert_allclose(labelled.decoded, labelled.sources, atol=1e-6)
        assert not np.allclose(predicted.decoded, predicted.sources)
    assert columns[0].words() == f"R:P:{columns[0].drawn}\nL:{columns[0].labels}"


def test_overlap_of_squares_is_that_of_their_offsets() -> None:
    pairs = flat_pairs()
    boxes = multimnist_figure.overlap_of(pairs, 12)
    assert boxes["28x28 frames"].tolist() == [1.0] * 12  # nothing was moved
    assert boxes[multimnist_figure.TIGHT].tolist() == [0.0] * 12  # but the ink is apart
    moved = Pairs(pairs.digits, 500, shift=15, canvas=40, seed=0, fresh=False, name="far")
    offsets = moved.offsets(np.arange(500))
    squares = multimnist_figure.overlap_of(moved, 500)["20x20 boxes"]
    for n in range(500):
        (y, x), (v, u) = offsets[n].tolist()
        assert squares[n] == pytest.approx(max(0, 20 - abs(y - v)) * max(0, 20 - abs(x - u)) / 400)


def test_findings_do_not_flatter() -> None:
    boxes = {"tight boxes": np.array([0.7]), "28x28 frames": np.array([0.8])}
    good = multimnist_figure.findings({"error": {"true": 10.0, "absent": 60.0, "black": 40.0}, "count": 9}, boxes)
    assert "closer to its own digit than an absent class's: squared error 10.0 against 60.0" in good[0]
    assert "explains 75 % of its digit and the absent one -50 %" in good[0]
    assert "nearest to that are the 28x28 frames" in good[1]
    bad = multimnist_figure.findings({"error": {"true": 50.0, "absent": 45.0, "black": 40.0}, "count": 9}, boxes)
    assert "*no* closer" in bad[0]
    assert "*no* better than nothing" in bad[0]


def test_colours_add_up_to_white(tmp_path: Path) -> None:
    two = np.zeros((2, 2, 2))
    two[0, 0], two[1, :, 0] = 1, 1  # the first in the upper row, the second in the left column
    rgb = _overlays.overlay(two)
    np.testing.assert_array_equal(rgb[0, 0], [1, 1, 1])
    np.testing.assert_array_equal(rgb[0, 1], _overlays.FIRST)
    np.testing.assert_array_equal(rgb[1, 0], _overlays.SECOND)
    np.testing.assert_array_equal(rgb[1, 1], [0, 0, 0])
    nothing = [[_overlays.Block("both right", []), _overlays.Block("absent", [])]]
    assert _overlays.page(tmp_path / "x.png", nothing, "title", "note").stat().st_size > 1000
