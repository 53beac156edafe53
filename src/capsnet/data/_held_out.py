"""Holding out a part of a training file for model selection, so that nothing is ever chosen by the test split."""

from __future__ import annotations

from capsnet._names import check_name

from .mnist import SPLITS


def training_rows(split: str, count: int, parts: int, source: object) -> slice:
    """Which of the `count` images of a training file belong to `split`: the last of `parts` equal parts is validation.

    A fixed tail rather than a random choice: everybody who has the file has the same split, with no seed to agree on.
    """
    check_name("split", split, SPLITS)
    if count < parts:
        raise ValueError(f"{source}: {count} training images are too few: the validation split is one of {parts} parts")
    cut = count - count // parts
    return {"train": slice(0, cut), "validation": slice(cut, None)}.get(split, slice(None))
