"""Figure 5: which classes are decoded, which pairs are shown, what the errors are measured against."""

import numpy as np
import pytest
import torch
from torch import Tensor

from capsnet import data
from capsnet.data import ArrayDataset, Pairs
from capsnet.experiments import multimnist_figure
from capsnet.inference.binding import Scenes, score
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
def test_as_labelled_keeps_right_classes_in_place(labels: tuple, guess: tuple, expected: tuple) -> None:
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


def test_errors_of_a_perfect_network() -> None:
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


def test_wrong_answers_are_decoded_both_ways() -> None:
    pairs = flat_pairs()
    model = Perfect(8, blind=4)
    found = multimnist_figure.take_apart(model, pairs, 12)
    batch = pairs.batch(range(12))
    wrong = batch.targets[:, 4].nonzero()[:, 0].tolist()
    assert found["right"] == 12 - len(wrong)
    assert found["shown"]["wrong"] == wrong[:4]
    rows = multimnist_figure.draw_columns(model, pairs, wrong[:4], ["R:P", "R"], "title")
    assert [row.label for row in rows] == ["input", "decoded", "truth"]
    for k, (decoded, truth) in enumerate(zip(rows[1].cells, rows[2].cells, strict=True)):
        predicted = k % 2 == 0
        assert rows[0].heads[k].startswith("R:P:(" if predicted else "R:(")
        assert (decoded.frame is not None) == predicted
        assert np.allclose(decoded.image, truth.image, atol=1e-6) != predicted


def test_pixels_belong_to_the_capsule_that_draws_them() -> None:
    """A perfect network gets every pixel; one whose capsules all draw the whole picture gives them to one capsule."""

    class Whole(Perfect):
        def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
            return super().decode(poses, classes).sum(dim=1, keepdim=True).expand(-1, 2, -1, -1, -1)

    batch = flat_pairs().batch(range(12))
    assert batch.sources is not None
    scenes = Scenes(batch.images, data.owners(batch.sources.images, ink=0.1), 2)
    for model, expected in ((Perfect(8), 1.0), (Whole(8), 0.0)):
        assert score(scenes, multimnist_figure.by_drawing(model, scenes)).fg_ari == [expected] * 12


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


def test_findings_are_true_either_way() -> None:
    def findings(true: float, absent: float) -> list[str]:
        errors = {"true": true, "absent": absent, "black": 40.0}
        overlap = {"tight boxes": 0.7, "28x28 frames": 0.8}
        return multimnist_figure.findings({"pairs": {"error": errors, "count": 9}, "overlap": overlap})

    good, boxes = findings(10.0, 60.0)
    assert "true class's drawing is lower than that of an absent class's: 10.0 against 60.0" in good
    assert "explains 75 % of its digit, the absent one -50 %" in good
    assert "nearest to that are the 28x28 frames" in boxes
    assert "is higher than that of an absent class's: 50.0 against 45.0" in findings(50.0, 45.0)[0]


def test_overlay_colours_add_up_to_white() -> None:
    two = np.zeros((2, 2, 2))
    two[0, 0], two[1, :, 0] = 1, 1  # the first in the upper row, the second in the left column
    rgb = multimnist_figure.overlay(two)  # (3, 2, 2)
    np.testing.assert_array_equal(rgb[:, 0, 0], [1, 1, 1])
    np.testing.assert_array_equal(rgb[:, 0, 1], multimnist_figure.FIRST)
    np.testing.assert_array_equal(rgb[:, 1, 0], multimnist_figure.SECOND)
    np.testing.assert_array_equal(rgb[:, 1, 1], [0, 0, 0])
