"""Derivatives and silence of decoupled and complex layers, and the attention of oscillators as a loop."""

import pytest
import torch
from torch import Tensor

from capsnet.layers.complex import ComplexBatchNorm2d, ModReLU
from capsnet.layers.decoupled import ANGLES, LENGTHS, DecoupledConv2d
from capsnet.layers.oscillating import KuramotoLayer
from tests.reference import synchrony as reference


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def decoupled(h: str, g: str) -> DecoupledConv2d:
    torch.manual_seed(0)
    return DecoupledConv2d(2, 3, 3, padding=1, h=h, g=g, dtype=torch.float64)  # type: ignore[arg-type]


@pytest.mark.parametrize("h", LENGTHS)
@pytest.mark.parametrize("g", ANGLES)
def test_decoupled_convolution_passes_gradcheck(h: str, g: str) -> None:
    layer, x = decoupled(h, g).eval(), normal(0, 1, 2, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, w, r: torch.func.functional_call(layer, {"weight": w, "radius": r}, x),
        (x, layer.weight, layer.radius),
        fast_mode=True,
    )


@pytest.mark.parametrize("h", LENGTHS)
@pytest.mark.parametrize("g", ANGLES)
def test_black_images_have_finite_derivatives(h: str, g: str) -> None:
    for layer in (decoupled(h, g), decoupled(h, g).eval()):
        x = torch.zeros(2, 2, 4, 4, dtype=torch.float64, requires_grad=True)
        y = layer(x)
        y.sum().backward()
        assert y.isfinite().all()
        for tensor in (x, layer.weight, layer.radius):
            assert tensor.grad is None or tensor.grad.isfinite().all()


@pytest.mark.parametrize("constant", [0.0, 0.7])
def test_complex_batch_norm_of_a_constant_is_finite(constant: float) -> None:
    """No variance at all, or only in one direction of the plane."""
    layer, x = ComplexBatchNorm2d(2, dtype=torch.float64), torch.full((3, 4, 5, 5), constant, dtype=torch.float64)
    x[:, :2] += normal(0, 3, 2, 5, 5) * (constant > 0)
    x.requires_grad_()
    y = layer(x)
    y.square().sum().backward()
    assert y.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_complex_layers_pass_gradcheck_together() -> None:
    norm, act = ComplexBatchNorm2d(2, dtype=torch.float64), ModReLU(2, dtype=torch.float64)
    torch.nn.init.constant_(act.bias, -0.1)
    x = normal(0, 3, 4, 2, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: act(norm(x)), x)


def test_attention_coupling_equals_loop_over_positions() -> None:
    torch.manual_seed(0)
    layer = KuramotoLayer(2, 2, coupling="attention", heads=2, dtype=torch.float64).eval().requires_grad_(False)
    assert layer.attention is not None
    x = layer.start(torch.zeros(1, 2, 2, 2, 3, dtype=torch.float64))
    project, join = layer.attention.project, layer.attention.join
    assert project.bias is not None
    assert join.bias is not None
    weights = project.weight[:, :, 0, 0], project.bias, join.weight[:, :, 0, 0], join.bias
    expected = reference.attention(x[0].reshape(4, 6), *weights, heads=2)
    torch.testing.assert_close(layer.couple(x)[0].reshape(4, 6), expected, rtol=0, atol=1e-12)
