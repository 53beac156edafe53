"""What the screen shows against what the library computes."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from numpy.typing import NDArray
from playwright.sync_api import Locator

from capsnet.models import Model
from tests.explorer.browser import Visit
from tests.explorer.conftest import as_bytes, tensor

Visits = Callable[..., Visit]

DIGITS = 5.1e-4  # the bars show three digits
DOWN = ((0.5, 0.2), (0.5, 0.8))  # a stroke that is classified as a 1


def grave_violations(visit: Visit) -> list[tuple[str, list[Any]]]:
    """What axe calls serious or critical: rules, and up to three places of each. The page must let axe in."""
    found = Axe().run(visit.page).response
    assert len(found["passes"]) > 25
    return [
        (violation["id"], [node["target"] for node in violation["nodes"]][:3])
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


def says(model: Model, picture: NDArray) -> tuple[list[float], torch.Tensor]:
    """Lengths and poses (J, D) of a picture (H, W)."""
    with torch.inference_mode():
        output = model(tensor(picture))
    return output.lengths[0].tolist(), output.poses[0]


def drawn(model: Model, klass: int, pose: list[float] | torch.Tensor) -> NDArray:
    """What a capsule with this pose draws: (H, W) bytes."""
    poses = torch.zeros(1, 10, 16)
    poses[0, klass] = torch.as_tensor(pose)
    with torch.inference_mode():
        return as_bytes(model.decode(poses, torch.tensor([klass])))[0, :, :, 0]


def apart(first: NDArray, second: NDArray) -> int:
    """The largest difference of two pictures, in bytes."""
    return int(np.abs(first.astype(int) - second.astype(int)).max())


def check_bars(visit: Visit, model: Model) -> list[float]:
    """The bars show what the network says of the picture that is shown beside the paper; returns them."""
    lengths, _ = says(model, visit.grey("seen"))
    assert visit.lengths() == pytest.approx(lengths, abs=DIGITS)
    return visit.lengths()


def expect_number(place: Locator) -> float:
    match = re.search(r"(\d\.\d+)\s*$", place.inner_text())
    assert match, place.inner_text()
    return float(match[1])


def offsets_of(visit: Visit) -> list[list[int]]:
    return [[int(visit.by(f"pair-{axis}-{n}").input_value()) for axis in ("dy", "dx")] for n in (1, 2)]


def columns(visit: Visit) -> list[list[float]]:
    labels = visit.page.locator("#compare .compare-bars").evaluate_all(
        "(all) => all.map((bars) => bars.getAttribute('aria-label'))"
    )
    return [[float(number) for number in re.findall(r" (\d\.\d{3})", label)] for label in labels]
