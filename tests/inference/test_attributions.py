"""Integrated gradients and Grad-CAM: their sums, other networks, and Captum's as the reference."""

import pytest
import torch

import capsnet
from capsnet.inference import attributions
from tests.models import suite

METHODS = (attributions.integrated_gradients, attributions.grad_cam)


def test_integrated_gradients_add_up_to_the_change_of_the_score(tiny: capsnet.Model) -> None:
    images, classes = torch.rand(2, 1, 20, 22), torch.tensor([0, 2])
    maps = attributions.integrated_gradients(tiny, images, classes)
    with torch.no_grad():
        scores = [tiny(x).lengths.gather(1, classes[:, None])[:, 0] for x in (images, torch.zeros_like(images))]
    assert torch.allclose(maps.sum(dim=(1, 2)), scores[0] - scores[1], atol=2e-3)


@pytest.mark.parametrize("method", METHODS)
def test_network_and_pictures_stay_as_they_were(method, tiny: capsnet.Model) -> None:
    images, classes = torch.rand(2, 1, 20, 22), torch.tensor([0, 2])
    tiny.train().requires_grad_(False)  # frozen weights, a caller without gradients
    with torch.no_grad():
        maps = method(tiny, images, classes)
    assert tiny.training
    assert (maps.requires_grad, images.requires_grad) == (False, False)
    assert not any(module._forward_hooks for module in tiny.modules())
    with torch.inference_mode():
        again = method(tiny.requires_grad_(), images, classes)
    assert torch.equal(again, maps)
    assert all(weight.grad is None for weight in tiny.parameters())
    for k in range(2):
        assert torch.allclose(method(tiny, images[k : k + 1], classes[k : k + 1])[0], maps[k], atol=1e-7)


@pytest.mark.parametrize("name", ["capsnet-image", "matrix-capsnet-small"])
@pytest.mark.parametrize("method", METHODS)
def test_other_networks_have_maps(method, name: str) -> None:
    model = suite.build(name)
    maps = method(model, suite.inputs(model, 2), torch.tensor([0, 1]))
    assert maps.shape == (2, *model.image_size)
    assert maps.abs().amax(dim=(1, 2)).min() > 0


def test_network_without_convolutions_has_no_grad_cam() -> None:
    model = suite.build("pathnet")
    with pytest.raises(ValueError, match="pathnet has no convolution"):
        attributions.grad_cam(model, suite.inputs(model, 1), torch.tensor([0]))


def test_gradient_maps_are_those_of_captum(tiny: capsnet.Model) -> None:
    captum = pytest.importorskip("captum.attr", reason="install the extra `dev` anew")
    images, classes = torch.rand(2, 1, 20, 22), torch.tensor([0, 2])

    def score(pixels: torch.Tensor) -> torch.Tensor:
        return tiny(pixels).lengths

    theirs = captum.IntegratedGradients(score).attribute(
        images, target=classes, n_steps=attributions.STEPS, method="riemann_middle"
    )
    ours = attributions.integrated_gradients(tiny, images, classes)
    assert torch.allclose(ours, theirs.sum(dim=1).float(), atol=1e-6)
    last = attributions.last_convolution(tiny)
    maps = captum.LayerGradCam(score, last).attribute(images, target=classes, relu_attributions=True)
    drawn = torch.nn.functional.interpolate(maps.detach(), (20, 22), mode="bilinear")[:, 0]
    assert torch.allclose(attributions.grad_cam(tiny, images, classes), drawn, atol=1e-6)
