"""The picture of a study: what the line under the points says."""

import math
from pathlib import Path

from PIL import Image

from capsnet.search._figures import Point, history, lowest_so_far


def test_only_trials_that_ran_to_their_end_are_the_lowest_so_far(tmp_path: Path) -> None:
    """A pruned trial's value is that of an early epoch: a record nobody could keep."""
    points = [
        Point(0, 0.99, "default", False),  # diverged
        Point(1, 0.98, "pruned", False),
        Point(2, 0.90, "complete", True),
        Point(3, 0.97, "pruned", False),
        Point(4, 0.95, "complete", True),
        Point(5, 0.93, "complete", True),
    ]
    lowest = lowest_so_far(points)
    assert [math.isnan(value) for value in lowest] == 2 * [True] + 4 * [False]
    assert [round(value, 6) for value in lowest[2:]] == [10, 10, 5, 5]
    for count in (2, 6):  # with and without one that ended
        with Image.open(history(tmp_path / f"{count}.png", points[:count], "a study")) as picture:
            assert min(picture.size) > 200
