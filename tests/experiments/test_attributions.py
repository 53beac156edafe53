"""What the experiment `explain` measures, on cases worked out by hand."""

import numpy as np
import pytest
import torch

import capsnet
from capsnet.experiments import _attributions as attributions


def test_overlap_takes_as_many_pixels_as_the_object_has() -> None:
    maps = torch.tensor([[[9.0, 8.0], [7.0, -1.0]]])
    truth = np.array([[[True, False], [True, False]]])  # the two highest are 9 (right) and 8 (wrong)
    assert attributions.overlap(maps, truth) == [pytest.approx(1 / 3)]
    assert attributions.overlap(maps, maps.numpy() > 6) == [1.0]


def test_integrated_gradients_add_up_to_the_change_of_the_score(tiny: capsnet.Model) -> None:
    images, classes = torch.rand(2, 1, 20, 22), torch.tensor([0, 2])
    maps = attributions.integrated_gradients(tiny, images, classes)
    with torch.no_grad():
        scores = [tiny(x).lengths.gather(1, classes[:, None])[:, 0] for x in (images, torch.zeros_like(images))]
    assert torch.allclose(maps.sum(dim=(1, 2)), scores[0] - scores[1], atol=2e-3)


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


def test_gradient_maps_are_those_of_captum(tiny: capsnet.Model) -> None:
    captum = pytest.importorskip("captum.attr", reason="Captum is not installed")
    images, classes = torch.rand(2, 1, 20, 22), torch.tensor([0, 2])

    def score(pixels: torch.Tensor) -> torch.Tensor:
        return tiny(pixels).lengths

    theirs = captum.IntegratedGradients(score).attribute(
        images, target=classes, n_steps=attributions.STEPS, method="riemann_middle"
    )
    ours = attributions.integrated_gradients(tiny, images, classes)
    assert torch.allclose(ours, theirs.sum(dim=1).float(), atol=1e-6)
    last = [m for name, m in tiny.named_modules() if isinstance(m, torch.nn.Conv2d) and not name.startswith("decod")][
        -1
    ]
    maps = captum.LayerGradCam(score, last).attribute(images, target=classes, relu_attributions=True)
    drawn = torch.nn.functional.interpolate(maps.detach(), (20, 22), mode="bilinear")[:, 0]
    assert torch.allclose(attributions.grad_cam(tiny, images, classes), drawn, atol=1e-6)
