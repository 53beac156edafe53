"""The names of the splits, and which part of a training file is held out for validation."""

from capsnet._names import check_name

SPLITS = ("train", "validation", "train+validation", "test")


def rows_of(split: str, count: int, parts: int, source: object) -> slice:
    """Which of the ``count`` images of a file belong to ``split``; errors mention ``source``.

    The last of ``parts`` equal parts of a training file is the validation split. It is not a random choice, so that the
    split depends on nothing but the file.
    """
    if check_name("split", split, SPLITS) == "test":
        return slice(None)
    if count < parts:
        raise ValueError(f"{source}: {count} training images are too few: the validation split is one of {parts} parts")
    cut = count - count // parts
    return {"train": slice(0, cut), "validation": slice(cut, None)}.get(split, slice(None))
