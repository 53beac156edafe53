"""Metrics against hand-computed cases, published intervals, and loops."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capsnet import metrics

# Five examples, three classes; class 2 is never predicted. Predictions by hand: 0, 1, 1, 0, 0.
LENGTHS = np.array([[0.9, 0.1, 0.2], [0.2, 0.8, 0.1], [0.3, 0.7, 0.6], [0.5, 0.4, 0.1], [0.6, 0.3, 0.5]])
TARGETS = np.array([0, 1, 2, 1, 0])


# --- Wilson ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("correct", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_values_published_by_newcombe_1998(correct, n, low, high):
    assert metrics.wilson_interval(correct, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 10**6), st.floats(0, 1), st.floats(0.01, 0.999))
def test_wilson_surrounds_the_value_and_mirrors(n, share, confidence):
    correct = round(share * n)
    low, high = metrics.wilson_interval(correct, n, confidence)
    assert 0 <= low <= correct / n <= high <= 1
    assert low < high
    assert metrics.wilson_interval(n - correct, n, confidence) == pytest.approx((1 - high, 1 - low), abs=1e-12)


@pytest.mark.parametrize("arguments", [(1, 0), (-1, 5), (6, 5), (1, 2, 0.0), (1, 2, 1.0)])
def test_wilson_refuses_impossible_counts(arguments):
    with pytest.raises(ValueError, match="got"):
        metrics.wilson_interval(*arguments)


# --- accuracy and exact match ----------------------------------------------------------------------------------------


def test_accuracy_by_hand():
    result = metrics.accuracy(LENGTHS, TARGETS)
    assert result.value == pytest.approx(3 / 5)
    assert (result.low, result.high) == metrics.wilson_interval(3, 5)
    assert result.n == 5
    assert result.error == pytest.approx((2 / 5, 1 - result.high, 1 - result.low, 5))
    assert str(result).startswith("60.00% (")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tensors_give_what_arrays_give(dtype):
    lengths = torch.tensor(LENGTHS, dtype=dtype, requires_grad=True)
    assert metrics.accuracy(lengths, torch.tensor(TARGETS)) == metrics.accuracy(LENGTHS, TARGETS)
    assert type(metrics.accuracy(lengths, torch.tensor(TARGETS)).value) is float
    assert metrics.summarise(lengths, torch.tensor(TARGETS)) == metrics.summarise(LENGTHS, TARGETS)


def test_exact_match_gives_no_half_credit():
    lengths = np.array([[0.9, 0.8, 0.1], [0.9, 0.1, 0.8], [0.1, 0.2, 0.3]])
    targets = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1]])  # right, one of two, right
    result = metrics.exact_match(lengths, targets)
    assert (result.value, result.n) == (pytest.approx(2 / 3), 3)
    assert metrics.exact_match(lengths, targets, k=2) == result
    assert metrics.exact_match(lengths, targets, k=1) == pytest.approx((0, *metrics.wilson_interval(0, 3), 3))


def test_half_credit_by_hand():
    lengths = np.array([[0.9, 0.8, 0.1], [0.9, 0.1, 0.8], [0.1, 0.2, 0.3], [0.5, 0.1, 0.2]])
    targets = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1], [0, 0, 0]])  # 1, 1/2, 1, not counted
    result = metrics.half_credit(lengths, targets)
    assert (result.value, result.n) == (pytest.approx(2.5 / 3), 3)
    assert (result.low, result.high) == metrics.wilson_interval(2.5, 3)
    summary = metrics.summarise(lengths, targets)
    assert summary["half_credit"] == result._asdict()
    assert summary["exact_match"]["value"] == pytest.approx(2 / 3)
    assert "half_credit" not in metrics.summarise(lengths, targets, threshold=0.5)  # the number of objects is not known
    assert "half_credit" not in metrics.summarise(lengths, [0, 1, 2, 0])


def test_half_credit_interval_covers_pictures_of_dependent_digits():
    """The worst case is both digits of a picture right or wrong together; the interval still covers 95 %."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(400):
        right = rng.random(200) < 0.9
        lengths = np.where(right[:, None], [[1.0, 0.9, 0.1, 0.0]], [[0.0, 0.1, 0.9, 1.0]])
        credit = metrics.half_credit(lengths, np.tile([1, 1, 0, 0], (200, 1)))
        covered += credit.low <= 0.9 <= credit.high
    assert covered >= 370


def test_exact_match_leaves_out_rows_without_a_class():
    lengths = np.array([[0.9, 0.1], [0.9, 0.1]])
    result = metrics.exact_match(lengths, np.array([[0, 0], [1, 0]]))
    assert (result.value, result.n) == (1, 1)
    with pytest.raises(ValueError, match="no row of the targets has a true class"):
        metrics.exact_match(lengths, np.zeros((2, 2)))
    assert metrics.summarise(lengths, np.zeros((2, 2)))["exact_match"] is None


def test_ties_go_to_the_lower_class():
    lengths = np.full((3, 3), 0.5)
    assert metrics.accuracy(lengths, [0, 1, 2]).value == pytest.approx(1 / 3)
    assert metrics.top_k(lengths, np.array([0, 1, 2])).tolist() == [
        [False, False, False],
        [True, False, False],
        [True, True, False],
    ]


@st.composite
def problems(draw):
    """Scores with many ties."""
    N, J = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.integers(0, 4, (N, J)) / 4, rng.integers(0, J, N), rng.integers(0, 2, (N, J))


@settings(max_examples=50)
@given(problems())
def test_exact_match_agrees_with_a_loop_and_with_accuracy_for_one_class(problem):
    lengths, labels, hot = problem
    N, J = lengths.shape
    right, credit = [], []
    for n in range(N):
        k = sum(hot[n])
        longest = sorted(range(J), key=lambda j: (-lengths[n, j], j))[:k]
        if k:
            right.append(set(longest) == {j for j in range(J) if hot[n, j]})
            credit.append(sum(hot[n, j] for j in longest) / k)
    if right:
        assert metrics.exact_match(lengths, hot).value == sum(right) / len(right)
        assert metrics.half_credit(lengths, hot).value == pytest.approx(sum(credit) / len(credit))
    assert metrics.exact_match(lengths, np.eye(J)[labels]) == metrics.accuracy(lengths, labels)


# --- per class -------------------------------------------------------------------------------------------------------


def test_confusion_matrix_rows_are_the_truth():
    matrix = metrics.confusion_matrix(TARGETS, LENGTHS.argmax(axis=1), 3)
    assert matrix.tolist() == [[2, 0, 0], [1, 1, 0], [0, 1, 0]]
    assert metrics.confusion_matrix([1], [0], 4).shape == (4, 4)


def test_per_class_by_hand():
    zero, one, two = metrics.per_class(LENGTHS, TARGETS)
    # class 0: predicted 3 times, right twice; its scores .9 .6 beat .2 .3 .5 always
    assert zero == pytest.approx((2 / 3, 1.0, 0.8, 1.0, 2))
    # class 1: predicted twice, right once; .8 beats .1 .7 .3, .4 beats .1 .3: 5 of 6
    assert one == pytest.approx((0.5, 0.5, 0.5, 5 / 6, 2))
    # class 2: never predicted, yet its score .6 beats .2 .1 .1 .5
    assert two == (None, 0.0, 0.0, 1.0, 1)


def test_auc_by_hand_with_ties():
    assert metrics.auc([0.5, 0.5], [True, False]) == 0.5
    assert metrics.auc([0.9, 0.5, 0.5, 0.1], [1, 1, 0, 0]) == pytest.approx((1 + 1 + 0.5 + 1) / 4)
    assert metrics.auc([0.1, 0.9], [True, False]) == 0.0
    assert metrics.auc([0.1, 0.9], [True, True]) is None


@settings(max_examples=50)
@given(problems())
def test_per_class_agrees_with_loops(problem):
    lengths, labels, hot = problem
    N, J = lengths.shape
    for targets, truth in ((labels, np.eye(J, dtype=int)[labels]), (hot, hot)):
        chosen = [set(sorted(range(J), key=lambda j: (-lengths[n, j], j))[: sum(truth[n])]) for n in range(N)]
        for j, row in enumerate(metrics.per_class(lengths, targets)):
            tp = sum(1 for n in range(N) if truth[n, j] and j in chosen[n])
            fp = sum(1 for n in range(N) if not truth[n, j] and j in chosen[n])
            fn = sum(1 for n in range(N) if truth[n, j] and j not in chosen[n])
            wins = [
                1.0 if lengths[a, j] > lengths[b, j] else 0.5 if lengths[a, j] == lengths[b, j] else 0.0
                for a in range(N)
                for b in range(N)
                if truth[a, j] and not truth[b, j]
            ]
            assert row.support == tp + fn
            assert row.precision == (tp / (tp + fp) if tp + fp else None)
            assert row.recall == (tp / (tp + fn) if tp + fn else None)
            assert row.f1 == (pytest.approx(2 * tp / (2 * tp + fp + fn)) if tp + fn else None)
            assert row.auc == (pytest.approx(sum(wins) / len(wins)) if wins else None)


# --- summary ---------------------------------------------------------------------------------------------------------


def test_summary_by_hand():
    summary = metrics.summarise(LENGTHS, TARGETS, class_names=["a", "b", "c"])
    assert summary["accuracy"]["value"] == pytest.approx(0.6)
    assert summary["error"]["value"] == pytest.approx(0.4)
    assert summary["confusion_matrix"] == [[2, 0, 0], [1, 1, 0], [0, 1, 0]]
    assert [row["class"] for row in summary["per_class"]] == ["a", "b", "c"]
    assert summary["macro"]["precision"] == pytest.approx((2 / 3 + 0.5 + 0) / 3)
    assert summary["macro"]["recall"] == pytest.approx((1 + 0.5 + 0) / 3)


def test_macro_leaves_out_classes_that_do_not_occur():
    summary = metrics.summarise(LENGTHS[:2], [0, 1])
    assert summary["macro"] == {"precision": 1.0, "recall": 1.0, "f1": 1.0, "auc": 1.0}
    assert summary["per_class"][2] == {
        "class": "2",
        "precision": None,
        "recall": None,
        "f1": None,
        "auc": None,
        "support": 0,
    }


@settings(max_examples=30)
@given(problems())
def test_summary_is_always_json_without_nan(problem):
    lengths, labels, hot = problem
    for targets in (labels, hot, hot.astype(np.float32), torch.tensor(hot)):
        summary = metrics.summarise(lengths, targets)
        assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_intervals_at_zero_and_one_have_width():
    perfect = metrics.accuracy(np.eye(4), range(4))
    hopeless = metrics.accuracy(-np.eye(4), range(4))
    assert (perfect.value, perfect.high) == (1, 1)
    assert (hopeless.value, hopeless.low) == (0, 0)
    assert perfect.low == pytest.approx(1 - hopeless.high)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (metrics.accuracy, (LENGTHS, TARGETS[:4]), "N = 5"),
        (metrics.accuracy, (LENGTHS[:, 0], TARGETS), r"\(N, J\)"),
        (metrics.accuracy, (np.zeros((0, 3)), np.zeros(0, int)), "at least one example"),
        (metrics.accuracy, (np.where(LENGTHS > 0.8, np.nan, LENGTHS), TARGETS), "NaN in 1 of 5 rows"),
        (metrics.accuracy, (LENGTHS, [0, 1, 2, 3, 0]), "from 0 to 2, got 3"),
        (metrics.accuracy, (LENGTHS, [0, 1, -1, 0, 0]), "got -1"),
        (metrics.accuracy, (LENGTHS, [0, 1, 0.5, 0, 0]), "got 0.5"),
        (metrics.accuracy, (LENGTHS, np.eye(3)[TARGETS]), "use exact_match"),
        (metrics.exact_match, (LENGTHS, TARGETS), r"\(5, 3\)"),
        (metrics.exact_match, (LENGTHS, LENGTHS), "only 0 and 1"),
        (metrics.exact_match, (LENGTHS, np.eye(3)[TARGETS], 4), "number of classes 3"),
        (metrics.per_class, (LENGTHS, np.zeros((5, 2))), r"\(5, 3\)"),
        (metrics.confusion_matrix, (TARGETS, TARGETS[:2], 3), "expected one prediction for each of N = "),
        (metrics.confusion_matrix, (TARGETS, TARGETS, 2), "labels must be whole numbers from 0 to 1, got 2"),
        (metrics.confusion_matrix, ([], [], 2), "N >= 1"),
        (metrics.auc, ([0.1, 0.2], [True]), "both be"),
        (metrics.summarise, (LENGTHS, TARGETS, ["a", "b"]), "all 3 classes, got 2"),
    ],
)
def test_bad_input_is_one_clear_sentence(function, arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)


def test_threshold_replaces_the_known_number_of_classes() -> None:
    lengths = np.array([[0.9, 0.85, 0.1], [0.9, 0.2, 0.1], [0.4, 0.3, 0.2], [0.9, 0.1, 0.1]])
    truth = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]])
    assert metrics.exact_match(lengths, truth).value == 1  # with the known number, the two rows with labels are right
    exact = metrics.exact_match(lengths, truth, threshold=0.5)
    assert (exact.value, exact.n) == (
        0.5,
        4,
    )  # one class too many; right; right without a class; a class that is absent
    summary = metrics.summarise(lengths, truth, threshold=0.5)
    assert summary["exact_match"]["n"] == 4
    assert summary["threshold"] == 0.5
    assert summary["per_class"][0]["precision"] == pytest.approx(2 / 3)
    assert summary["per_class"][1]["support"] == 0
    with pytest.raises(ValueError, match="either k or a threshold"):
        metrics.exact_match(lengths, truth, 1, threshold=0.5)
    assert "threshold" not in metrics.summarise(lengths, np.array([0, 0, 1, 2]), threshold=0.5)


def test_calibration_error_matches_a_case_by_hand() -> None:
    probabilities = np.array([[0.95, 0.05], [0.95, 0.05], [0.35, 0.65], [0.4, 0.6]])
    targets = [0, 1, 1, 1]  # bin of 0.9: half right at 0.95; bin of 0.6: all right at 0.65 and 0.6
    assert metrics.calibration_error(probabilities, targets) == pytest.approx((0.9 + 0.75) / 4)
    assert metrics.calibration_error(np.eye(2), [0, 1]) == 0
    assert metrics.calibration_error(np.eye(2), [1, 0]) == 1
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got -1 to 2"):
        metrics.calibration_error([[2.0, -1.0]], [0])
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        metrics.calibration_error(np.eye(2), [0, 1], bins=0)


def test_versions_of_one_original_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    right = rng.random(400) < 0.9
    alike = np.repeat(right, 8)  # eight versions of each, all right or all wrong: they say no more than one
    originals = np.repeat(np.arange(400), 8)
    assert metrics.effective_number(alike, originals) == pytest.approx(400, abs=1)
    apart = rng.random(3200) < 0.9  # versions that have nothing in common count as examples of their own
    assert metrics.effective_number(apart, originals) == pytest.approx(3200, rel=0.15)
    assert metrics.effective_number(np.ones(3200), originals) == 400
    for marks, count in (([1, 0], 5), ([1, 1, 0], 10), ([1] * 3 + [0] * 4, 6)):  # the same share right of each original
        assert metrics.effective_number(marks * count, np.repeat(np.arange(count), len(marks))) == count
    scores = np.stack([~alike, alike], axis=1).astype(float)
    wide, narrow = (metrics.accuracy(scores, np.ones(3200, int), originals=which) for which in (originals, None))
    assert wide.value == narrow.value
    assert wide.n == narrow.n == 3200
    assert (wide.low, wide.high) == pytest.approx(metrics.wilson_interval(wide.value * 400, 400), abs=2e-3)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_effective_number_of_few_originals_by_hand() -> None:
    """Three originals in four versions each, of which 4, 2 and 1 are right: p = 7 / 12, and the originals' sums are off
    by 5 / 3, -1 / 3 and -4 / 3. The variance of the mean is 3 / 2 * (42 / 9) / 12^2, that of one example 35 / 144."""
    right = [1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0]
    assert metrics.effective_number(right, np.repeat([7, 3, 5], 4)) == 5
