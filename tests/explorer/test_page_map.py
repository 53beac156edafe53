"""The knobs in the order of their effects, and the map of poses, against the library's decoder."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from playwright.sync_api import expect

from capsnet.data import ArrayDataset
from capsnet.models import Model
from tests.explorer.browser import Visit
from tests.explorer.conftest import tensor
from tests.explorer.reading import apart, drawn, says


def test_knobs_with_the_largest_effect_come_first(visit: Visit, bundled: Model) -> None:
    pose = torch.tensor(visit.knobs())

    def effect(d: int) -> float:
        ends = [drawn(bundled, 7, pose + 0.25 * side * torch.eye(16)[d]).astype(float) for side in (-1, 1)]
        return np.abs(ends[0] - ends[1]).sum() / (ends[0].sum() + ends[1].sum())

    effects = [effect(d) for d in range(16)]
    first = visit.page.locator("#knobs .knobs > .sliders .knob input[type=range]").evaluate_all(
        "(sliders) => sliders.map((slider) => Number(slider.id.split('-')[1]))"
    )
    assert sorted(first) == sorted(np.argsort(effects)[-6:])
    assert first == sorted(first, key=lambda d: -effects[d])
    labels = visit.texts("#knobs .knobs > .sliders .knob label")
    assert any("mostly" in label for label in labels)
    for d, label in zip(first, labels, strict=True):
        assert label.split()[0] == str(d + 1)
        assert int(label.split()[-2]) == pytest.approx(100 * effects[d], abs=1.1)
    assert visit.page.locator("#knobs .more-knobs .knob").count() == 10
    assert (visit.by("reconstruction").bounding_box() or {})["width"] >= 290


def examples(model: Model, digits: ArrayDataset) -> NDArray:
    """The poses of the first sevens that are recognised, (N, D)."""
    chosen = np.flatnonzero(np.asarray(digits.targets) == 7)[:16]
    with torch.inference_mode():
        output = model(torch.cat([tensor(digits.images[n, 0]) for n in chosen]))
    return output.poses[output.lengths.argmax(dim=1) == 7, 7].double().numpy()


def test_map_shows_what_the_capsule_draws(visit: Visit, bundled: Model, digits: ArrayDataset) -> None:
    visit.page.locator("#map").scroll_into_view_if_needed()
    sheet = visit.by("map-sheet")
    expect(sheet).to_have_attribute("aria-label", "What capsule 7 draws at 9 by 9 places of the map")
    poses = examples(bundled, digits)
    _, sizes, axes = np.linalg.svd(poses - poses.mean(axis=0), full_matrices=False)
    right = axes[0] * np.sign(axes[0][np.abs(axes[0]).argmax()]) * sizes[0] / np.sqrt(len(poses))
    shown = visit.grey(sheet)
    assert shown.shape == (9 * 28, 9 * 28)
    places = {(4, 4): poses.mean(axis=0), (4, 8): poses.mean(axis=0) + 2.2 * right}
    for (row, column), pose in places.items():
        cell = shown[28 * row : 28 * row + 28, 28 * column : 28 * column + 28]
        assert apart(cell, drawn(bundled, 7, torch.tensor(pose).float())) <= 3

    for axis, value in enumerate((1, 0)):
        visit.by(f"map-range-{axis}").fill(str(value))
    visit.quiet()
    assert apart(visit.grey("map-here"), shown[28 * 4 : 28 * 5, 28 * 8 :]) <= 1
    visit.click("map-knobs")
    assert visit.knobs() == pytest.approx(list(places[4, 8]), abs=2e-3)
    assert apart(visit.grey("reconstruction"), visit.grey("map-here")) <= 1

    expect(visit.by("map-morph")).to_be_disabled()
    visit.click("map-another")
    visit.by("map-morph").fill("1")
    visit.quiet()
    _, other = says(bundled, visit.grey("map-to"))
    assert apart(visit.grey("map-here"), drawn(bundled, 7, other[7])) <= 1
    expect(visit.by("map-pin-end")).to_be_visible()

    visit.by("map-across").select_option("3")
    visit.by("map-up").select_option("5")
    visit.quiet()
    corners = visit.get("models")["models"][0]["ranges"][7]
    own = says(bundled, visit.grey("seen"))[1][7].clone()
    own[3], own[5] = corners[3][0], corners[5][1]  # left and top
    visit.until(lambda: apart(visit.grey(sheet)[:28, :28], drawn(bundled, 7, own)) <= 2)
    (spot,) = visit.spots("map-sheet", [(0.5, 0.5)])
    visit.page.mouse.click(*spot)
    visit.quiet()
    own[3], own[5] = np.mean(corners[3]), np.mean(corners[5])
    assert apart(visit.grey("map-here"), drawn(bundled, 7, own)) <= 2
