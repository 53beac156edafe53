"""What the experiment `explain` measures, on cases worked out by hand."""

import numpy as np
import pytest
import torch

import capsnet
from capsnet.experiments import Measure, Report
from capsnet.experiments import _attributions as attributions
from capsnet.experiments.explain import claims, mean_of_pictures
from capsnet.metrics import mean_interval


def test_overlap_takes_as_many_pixels_as_the_object_has() -> None:
    maps = torch.tensor([[[9.0, 8.0], [7.0, -1.0]]])
    truth = np.array([[[True, False], [True, False]]])  # the two highest are 9 (right) and 8 (wrong)
    assert attributions.overlap(maps, truth) == [pytest.approx(1 / 3)]
    assert attributions.overlap(maps, maps.numpy() > 6) == [1.0]


def test_deletion_ends_without_ink_and_begins_with_the_highest(tiny: capsnet.Model) -> None:
    images = torch.zeros(1, 1, 20, 22)
    images[0, 0, 5, 5:9] = torch.tensor([0.5, 0.6, 0.7, 0.8])
    order = images[:, 0].clone()
    order[0, 0, 0] = 99.0  # black: it cannot be blackened
    classes = torch.tensor([1])
    curve = attributions.deletion(tiny, images, classes, order, 4)
    left = images.clone()
    left[0, 0, 5, 8] = 0  # the highest
    with torch.no_grad():
        score = [float(tiny.eval()(x).lengths[0, 1]) for x in (images, left, torch.zeros_like(images))]
    assert curve.shape == (1, 5)
    assert curve[0, [0, 1, 4]] == pytest.approx([1, score[1] / score[0], score[2] / score[0]], abs=1e-5)


@pytest.mark.parametrize("name", attributions.METHODS)
def test_every_method_gives_a_map_and_leaves_the_network_as_it_was(name: str, tiny: capsnet.Model) -> None:
    images, classes = torch.rand(2, 1, 20, 22), torch.tensor([0, 2])
    maps = attributions.METHODS[name](tiny, images, classes)
    assert maps.shape == (2, 20, 22)
    assert maps.isfinite().all()
    assert not maps.requires_grad
    assert not any(module._forward_hooks for module in tiny.modules())
    assert all(weight.grad is None for weight in tiny.parameters())


def test_interval_is_over_the_pictures_of_all_seeds() -> None:
    """Three pictures of two objects each, of which the second seed found no object of the last."""
    values = [[1.0, 3.0, 2.0, 4.0, 6.0, 8.0], [5.0, 3.0, 6.0, 8.0]]
    pictures = [[0, 0, 1, 1, 2, 2], [0, 0, 1, 1]]
    measure = mean_of_pictures("iou", values, pictures)
    assert measure.values == [4.0, 5.5]
    assert (measure.interval, measure.n) == (mean_interval([3.0, 5.0, 7.0]), 3)
    assert mean_of_pictures("iou", [[1.0, 2.0]], [[4, 4]]).interval is None


@pytest.mark.parametrize(
    ("rival", "verdict"), [((0.1, 0.2), "holds"), ((0.25, 0.4), "undecided"), ((0.6, 0.7), "does not hold")]
)
def test_claims_need_the_higher_overlap_of_all(rival: tuple[float, float], verdict: str) -> None:
    def measure(name: str, low: float, high: float) -> Measure:
        return Measure(f"IoU with the object, {name}", [(low + high) / 2], "", interval=(low, high), n=100)

    measures = [measure("contributions", 0.3, 0.4), measure("contributions on ink", 0.5, 0.55)]
    measures += [measure("integrated gradients", 0.1, 0.2), measure("Grad-CAM", *rival)]
    measures += [measure("Grad-CAM on ink", 0.2, 0.3)]
    as_they_are, on_ink = claims(Report(measures))
    assert (as_they_are.verdict, on_ink.verdict) == (verdict, "holds")
    assert "*IoU with the object, Grad-CAM on ink* 0.25" in on_ink.finding
