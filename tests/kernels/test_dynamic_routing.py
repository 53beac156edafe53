"""Routing without votes, and of given votes, against Procedure 1 as routing/dynamic.py writes it."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from capsnet.functional import squash
from capsnet.kernels import Memory, chunked_routing, route_votes, using, votes_routing
from capsnet.routing.dynamic import Dynamic
from tests.kernels._bytes import counted
from tests.kernels._compare import assert_as_good


def make_votes(u: Tensor, w: Tensor) -> Tensor:
    return torch.einsum("bik,ijdk->bijd", u, w)


def plain_form(**options: Any) -> Any:
    """The plain form that the kernels use for derivatives of derivatives."""
    return lambda votes, bias, act: Dynamic(**options).plain(votes, act, None, bias, trace=False).pose


def plain(u: Tensor, w: Tensor, bias: Tensor | None, act: Tensor | None, **options: Any) -> Tensor:
    params = None if bias is None else {"bias": bias}
    return Dynamic(**options, bias=bias is not None)(make_votes(u, w), act, params=params).pose


def fused(
    u: Tensor, w: Tensor, bias: Tensor | None, act: Tensor | None, memory: Memory | None = None, **options: Any
) -> Tensor:
    params = {} if bias is None else {"bias": bias}
    with using("fast"):
        routed = Dynamic(**options, bias=bias is not None).fused(u, w, act, params, memory or Memory())
    assert routed is not None
    return routed.pose


def from_votes(u: Tensor, w: Tensor, bias: Tensor | None, act: Tensor | None, **options: Any) -> Tensor:
    pose = route_votes(make_votes(u, w), bias=bias, act=act, plain=plain_form(**options), **options)
    assert pose is not None
    return pose


def example(B: int, I: int, J: int, D: int, K: int, bias: bool, act: bool, seed: int = 0) -> list[Tensor | None]:
    """Squashed children, as in a network. With much longer ones routing becomes chaotic: even a permutation of the
    children makes the plain form exceed the error bound."""
    g = torch.Generator().manual_seed(seed)
    return [
        squash(torch.randn(B, I, K, generator=g)),
        torch.randn(I, J, D, K, generator=g) * 0.3,
        torch.randn(J, D, generator=g) * 0.1 if bias else None,
        torch.rand(B, I, generator=g) if act else None,
    ]


@pytest.mark.parametrize("fast", [fused, from_votes])
@settings(max_examples=40, deadline=None, derandomize=True)  # rarely a case is ill-conditioned in itself
@given(data=st.data())
def test_kernel_matches_plain_form_for_any_shape_and_option(fast: Any, data: st.DataObject) -> None:
    options = {
        "iterations": data.draw(st.integers(1, 5), label="iterations"),
        "gradient": data.draw(st.sampled_from(["all", "last"]), label="gradient"),
        "leaky": data.draw(st.booleans(), label="leaky"),
    }
    shape = [data.draw(st.integers(1, high), label=name) for name, high in zip("BIJDK", (6, 30, 6, 9, 9), strict=True)]
    extras = data.draw(st.booleans(), label="bias"), data.draw(st.booleans(), label="act")
    B, I, J, D, K = shape
    arguments = example(B, I, J, D, K, *extras, seed=data.draw(st.integers(0, 99), label="seed"))
    leaves = [i for i, a in enumerate(arguments) if a is not None]
    assert_as_good(lambda *a: fast(*a, **options), lambda *a: plain(*a, **options), arguments, leaves)


@pytest.mark.parametrize("fast", [fused, from_votes])
@pytest.mark.parametrize("gradient", ["all", "last"])
def test_chunks_match_plain_form(fast: Any, gradient: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (chunked_routing, votes_routing):
        monkeypatch.setattr(module, "_CHUNK", 1 << 14)
    arguments = example(7, 40, 5, 6, 4, bias=True, act=True)
    assert_as_good(
        lambda *a: fast(*a, gradient=gradient), lambda *a: plain(*a, gradient=gradient), arguments, leaves=(0, 1, 2, 3)
    )


@pytest.mark.parametrize("fast", [fused, from_votes])
@pytest.mark.parametrize("leaky", [False, True])
def test_first_and_second_derivatives_pass_gradcheck(fast: Any, leaky: bool) -> None:
    arguments = [a.double().requires_grad_() for a in example(2, 5, 3, 2, 2, True, True) if a is not None]
    assert torch.autograd.gradcheck(lambda *a: fast(*a, leaky=leaky), arguments)
    assert torch.autograd.gradgradcheck(lambda *a: fast(*a, leaky=leaky), arguments, fast_mode=True)


def test_blank_example_gives_zeros() -> None:
    u, w, _, _ = example(2, 9, 3, 4, 2, False, False)
    assert u is not None
    assert w is not None
    u = torch.zeros_like(u).requires_grad_()
    w.requires_grad_()
    pose = fused(u, w, None, None)
    pose.sum().backward()
    assert not pose.any()
    assert u.grad is not None
    assert torch.isfinite(u.grad).all()
    assert torch.isfinite(w.grad if w.grad is not None else w).all()


def test_fused_form_makes_no_votes() -> None:
    B, I, J, D, K = 64, 200, 10, 16, 8
    u, w, _, _ = example(B, I, J, D, K, False, False)
    assert u is not None
    assert w is not None
    u, w = u.requires_grad_(), w.requires_grad_()
    with counted() as seen:
        fused(u, w, None, None).sum().backward()
    assert seen.largest <= 4 * max(B * I * J * K, w.numel()) < 4 * B * I * J * D


def test_kept_weights_follow_changes() -> None:
    memory = Memory()
    u, w, _, _ = example(5, 20, 3, 4, 2, False, False)
    assert u is not None
    assert w is not None
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fused(u, w, None, None, memory), plain(u, w, None, None))
            w.mul_(1.5)


def test_kept_weights_follow_changes_through_data() -> None:
    memory = Memory()
    u, w, _, _ = example(5, 3000, 3, 4, 2, False, False)
    assert u is not None
    assert w is not None
    with torch.no_grad():
        for child in (None, 0, 1, 1500, 2999):
            if child is not None:
                w.data[child] = -w.data[child].flip(0)
            torch.testing.assert_close(fused(u, w, None, None, memory), plain(u, w, None, None))
