"""``affine``: what it says about the training of bundled networks comes from their cards."""

import pytest

from capsnet.experiments.affine import largest_shift, when_stopped


@pytest.mark.parametrize(
    ("spec", "augment", "expected"),
    [("expanded-mnist", 0, 6), ("expanded-mnist", 4, 10), ("expanded-mnist:shift=3", 1, 4)],
)
def test_shift_is_that_of_data_and_augmentation(spec: str, augment: int, expected: int) -> None:
    assert largest_shift({"trained_on": {"data": spec, "augment": {"shift": augment}}}) == expected


def test_sentence_says_how_far_digits_were_shifted() -> None:
    assert when_stopped("shipped", {6}).endswith("shifted by up to 6 pixels, as in the paper.")
    assert when_stopped("shipped", {10}).endswith("shifted by up to 10 pixels (the paper: 6).")
    assert when_stopped("shipped", {6, 10}).endswith("shifted by up to 6 and 10 pixels (the paper: 6).")
    assert "pixels" not in when_stopped("day", set())
    assert "reaches the goal" in when_stopped("quick", set())
