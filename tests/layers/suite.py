"""One suite for all layers: checks that take a ``Case`` and raise AssertionError.

A case says how a layer is built, its input, and what it refuses; capsule layers take a routing too.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from capsnet.layers import (
    CapsuleHead,
    Capsules,
    ClassCaps,
    ComplexBatchNorm2d,
    ComplexConv2d,
    ComplexLinear,
    ConvCaps,
    ConvDecoder,
    DecoupledConv2d,
    DenseCaps,
    DenseDecoder,
    HomogeneousCaps,
    KuramotoLayer,
    Lengths,
    ModReLU,
    Oscillation,
    PathwayLayer,
    Poses,
    PrimaryCaps,
    Readout,
    ResidualStem,
    RotatingConv2d,
    RotatingConvTranspose2d,
    RotatingLinear,
    SharedCaps,
)
from capsnet.routing import Routed


class Case(NamedTuple):
    build: Callable[..., nn.Module]  # of device and dtype
    shape: tuple[int, ...]  # of an input, without the batch
    result: tuple[int, ...]  # of the output, or of its poses, without the batch
    wrong: tuple[int, ...] | None = None  # an input that is refused in one sentence, batch included


J = 3
CAPSULE_LAYERS: dict[str, Case] = {  # these take a routing
    "DenseCaps": Case(lambda **o: DenseCaps(6, J, 4, 5, **o), (6, 4), (J, 5), (2, 5, 4)),
    "HomogeneousCaps": Case(lambda **o: HomogeneousCaps(6, J, 5, **o), (6, 5), (J, 5), (2, 6, 4)),
    "SharedCaps": Case(lambda **o: SharedCaps(J, 4, 5, **o), (6, 4), (J, 5), (2, 6, 3)),
    "ConvCaps": Case(lambda **o: ConvCaps(2, J, 3, 2, 4, 5, **o), (5, 7, 2, 4), (2, 3, J, 5), (2, 5, 7, 4, 2)),
    "ConvCaps of matrices": Case(
        lambda **o: ConvCaps(2, J, 2, 1, pose="matrix", **o), (3, 3, 2, 16), (2, 2, J, 16), (2, 1, 3, 2, 16)
    ),
    "ClassCaps": Case(lambda **o: ClassCaps(2, J, 4, 5, **o), (3, 2, 2, 4), (J, 5), (2, 3, 2, 4)),
    "ClassCaps of matrices": Case(
        lambda **o: ClassCaps(2, J, pose="matrix", **o), (3, 2, 2, 16), (J, 16), (2, 3, 2, 2, 4)
    ),
}
CASES: dict[str, Case] = CAPSULE_LAYERS | {
    "CapsuleHead": Case(lambda **o: CapsuleHead(4, J, (3, 2), 2, 4, 5, **o), (4, 3, 2), (J, 5), (2, 4, 2, 3)),
    "CapsuleHead of any map": Case(lambda **o: CapsuleHead(4, J, None, 2, 4, 5, **o), (4, 3, 2), (J, 5), (2, 3, 3, 2)),
    "PrimaryCaps": Case(lambda **o: PrimaryCaps(2, 3, 4, 3, **o), (2, 7, 9), (3 * 4 * 3, 4)),
    "PrimaryCaps, scaled": Case(lambda **o: PrimaryCaps(2, 3, 4, 3, scale=0.3, **o), (2, 7, 9), (3 * 4 * 3, 4)),
    "PrimaryCaps, unit": Case(lambda **o: PrimaryCaps(2, 3, 4, 3, squash="unit", **o), (2, 7, 9), (3 * 4 * 3, 4)),
    "PrimaryCaps on a grid": Case(lambda **o: PrimaryCaps(2, 3, 4, 3, flatten=False, **o), (2, 7, 9), (3, 4, 3, 4)),
    "DenseDecoder": Case(lambda **o: DenseDecoder(J, 4, 2, 5, 7, (6, 8), **o), (J, 4), (2, 5, 7)),
    "ConvDecoder": Case(lambda **o: ConvDecoder(J, 4, 2, 9, 18, 6, 4, **o), (J, 4), (2, 9, 18)),
    "ComplexConv2d": Case(lambda **o: ComplexConv2d(2, 3, 3, 2, 1, **o), (4, 5, 6), (6, 3, 3), (2, 6, 5, 6)),
    "ComplexLinear": Case(lambda **o: ComplexLinear(2, 3, **o), (4,), (6,), (2, 6)),
    "ComplexBatchNorm2d": Case(lambda **o: ComplexBatchNorm2d(2, **o), (4, 5, 6), (4, 5, 6), (2, 6, 5, 6)),
    "ModReLU": Case(lambda **o: ModReLU(2, **o), (4, 5, 6), (4, 5, 6), (2, 6, 5, 6)),
    "DecoupledConv2d": Case(lambda **o: DecoupledConv2d(2, 3, 3, 2, 1, **o), (2, 5, 6), (3, 3, 3), (2, 3, 5, 6)),
    "RotatingConv2d": Case(
        lambda **o: RotatingConv2d(2, 3, 3, 2, 1, n=4, **o), (4, 2, 5, 6), (4, 3, 3, 3), (2, 4, 3, 5, 6)
    ),
    "RotatingConvTranspose2d": Case(
        lambda **o: RotatingConvTranspose2d(2, 3, 3, 2, 1, 1, n=4, **o), (4, 2, 3, 3), (4, 3, 6, 6), (2, 3, 2, 3, 3)
    ),
    "RotatingLinear": Case(lambda **o: RotatingLinear(5, 3, n=4, **o), (4, 5), (4, 3), (2, 4, 6)),
    "KuramotoLayer": Case(lambda **o: KuramotoLayer(2, 3, **o), (2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 2, 4, 5)),
    "KuramotoLayer, symmetric": Case(
        lambda **o: KuramotoLayer(2, 3, symmetric=True, frequencies=True, **o),
        (2, 3, 4, 5),
        (2, 3, 4, 5),
        (2, 3, 2, 4, 5),
    ),
    "KuramotoLayer, attention": Case(
        lambda **o: KuramotoLayer(2, 4, "attention", heads=2, **o), (2, 4, 4, 5), (2, 4, 4, 5), (2, 8, 4, 5)
    ),
    "Readout": Case(lambda **o: Readout(2, 3, 4, **o), (2, 4, 5, 6), (3, 5, 6), (2, 3, 4, 5, 6)),
    "PathwayLayer": Case(lambda **o: PathwayLayer(5, 3, 4, **o), (5,), (3,), (2, 6)),
    "ResidualStem": Case(lambda **o: ResidualStem(2, 11, 12, 8, **o), (2, 11, 12), (8, 6, 6)),
}


def build(case: Case, **options: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return case.build(**options).eval()


def inputs(case: Case, count: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(count, *case.shape, generator=generator, dtype=torch.float64).to(dtype or torch.float32)


def main_output(result: Any) -> Tensor:
    return result if isinstance(result, Tensor) else result[0]


def smoke(case: Case) -> None:
    """Shapes for any batch, finite numbers, deterministic, independent of the other examples."""
    layer, x = build(case), inputs(case)
    result = layer(x)
    assert isinstance(result, Tensor | Capsules | Routed | Oscillation)
    together = main_output(result)
    assert together.shape == (3, *case.result)
    assert together.isfinite().all()
    assert torch.equal(main_output(layer(x)), together)
    torch.testing.assert_close(main_output(layer(x[:1])), together[:1], rtol=1e-4, atol=1e-5)
    act = None if isinstance(result, Tensor | Oscillation) else result.act
    assert act is None or act.shape == together.shape[:-1]


def describes_itself(case: Case) -> None:
    assert build(case).extra_repr()


def wrong_input(case: Case) -> None:
    if case.wrong is not None:
        with pytest.raises(ValueError, match=r"expected|too small"):
            build(case)(torch.zeros(case.wrong))


def device_and_dtype(case: Case) -> None:
    """``device`` and ``dtype`` reach every parameter and buffer, and change nothing else."""
    plain, double = build(case), build(case, dtype=torch.float64)
    for name, tensor in double.state_dict().items():
        assert not tensor.is_floating_point() or tensor.dtype == torch.float64, name
    double.load_state_dict(plain.state_dict())
    expected = main_output(plain(inputs(case)))
    torch.testing.assert_close(main_output(double(inputs(case, dtype=torch.float64))).float(), expected)
    meta = build(case, device="meta")
    assert all(tensor.is_meta for tensor in meta.state_dict().values())
    assert {k: v.shape for k, v in meta.state_dict().items()} == {k: v.shape for k, v in plain.state_dict().items()}
    meta.to_empty(device="cpu").load_state_dict(plain.state_dict())
    assert torch.equal(main_output(meta(inputs(case))), expected)


def gradients(case: Case) -> None:
    layer, x = build(case, dtype=torch.float64), inputs(case, 2, torch.float64).requires_grad_()
    weights = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}

    def function(x: Tensor, *tensors: Tensor) -> Tensor:
        return main_output(torch.func.functional_call(layer, dict(zip(weights, tensors, strict=True)), (x,)))

    assert torch.autograd.gradcheck(function, (x, *weights.values()), fast_mode=True)
    main_output(layer(x)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def compiles(case: Case) -> None:
    layer, x = build(case), inputs(case)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(main_output(compiled(x)), main_output(layer(x)))


def chains(case: Case) -> None:
    """In ``nn.Sequential`` a capsule layer takes what another gives: poses alone, or poses with presences."""
    layer, x = build(case), inputs(case)
    chain = nn.Sequential(nn.Identity(), layer)
    assert torch.equal(main_output(chain(x)), main_output(layer(x)))
    result = layer(x)
    if isinstance(result, Tensor):
        return
    pose, act = result[:2]
    presence = pose.norm(dim=-1) if act is None else act
    torch.testing.assert_close(nn.Sequential(layer, Lengths())(x), presence)
    assert torch.equal(nn.Sequential(layer, Poses())(x), pose)
    if isinstance(result, Routed) and not isinstance(layer, CapsuleHead):  # which makes its own children
        assert act is not None
        seen = torch.rand(x.shape[:-1], generator=torch.Generator().manual_seed(3))
        assert torch.equal(layer(Capsules(x, seen)).pose, layer(x, seen).pose)
        assert torch.equal(layer(Routed(x, seen)).pose, layer(x, seen).pose)
        assert torch.equal(layer(Capsules(x)).pose, pose)


CHECKS: Mapping[str, Callable[[Case], None]] = {
    check.__name__: check
    for check in (smoke, describes_itself, wrong_input, device_and_dtype, gradients, compiles, chains)
}
