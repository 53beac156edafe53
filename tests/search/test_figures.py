"""The figures of a study."""

import math
from pathlib import Path

from PIL import Image

from capsnet.search._figures import Point, history, lowest_so_far


def test_lowest_so_far_counts_complete_trials_only(tmp_path: Path) -> None:
    """A pruned trial's value is that of an early epoch."""
    points = [
        Point(0.99, "default", False),  # diverged
        Point(0.98, "pruned", False),
        Point(0.90, "complete", True),
        Point(0.97, "pruned", False),
        Point(0.95, "complete", True),
        Point(0.93, "complete", True),
    ]
    lowest = lowest_so_far(points)
    assert [math.isnan(value) for value in lowest] == 2 * [True] + 4 * [False]
    assert [round(value, 6) for value in lowest[2:]] == [10, 10, 5, 5]
    for count in (2, 6):  # without and with a complete one
        with Image.open(history(tmp_path / f"{count}.png", points[:count], "a study")) as image:
            assert min(image.size) > 200
