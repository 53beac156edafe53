"""Two convolutions in one piece against two calls of the native one."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from capsnet.kernels import Memory, conv_relu_conv, stem, using
from tests.kernels._compare import assert_as_good


def fast(*arguments: Tensor, stride: tuple[int, int], memory: Memory | None = None) -> Tensor:
    with using("fast"):
        y = conv_relu_conv(*arguments, stride=stride, memory=memory)
    assert y is not None
    return y


def example(b: int, c: int, c1: int, o: int, size: tuple[int, int], k1: int, k2: int, seed: int = 0) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [
        torch.rand(b, c, *size, generator=g),
        torch.randn(c1, c, k1, k1, generator=g) / (c * k1 * k1) ** 0.5,
        torch.randn(c1, generator=g) / 4,
        torch.randn(o, c1, k2, k2, generator=g) / (c1 * k2 * k2) ** 0.5,
        torch.randn(o, generator=g),
    ]


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_kernel_matches_two_convolutions_for_any_shape(data: st.DataObject) -> None:
    k1, k2 = data.draw(st.integers(1, 9), label="k1"), data.draw(st.integers(5, 9), label="k2")
    stride = data.draw(st.tuples(*[st.integers(1, 2)] * 2), label="stride")
    size = data.draw(st.tuples(*[st.integers(k1 + k2 - 1, 36)] * 2), label="size")
    b, c, c1, o = (data.draw(st.integers(1, 4), label=name) for name in ("batch", "in", "middle", "out"))
    # The error bound is relative to the largest gradient. That of a single weight is one sum whose terms may cancel.
    assume(c * c1 * k1 * k1 >= 4)
    assert_as_good(
        lambda *a: fast(*a, stride=stride),
        lambda *a: stem.plain(*a, stride=stride),
        example(b, c, c1, o, size, k1, k2, seed=data.draw(st.integers(0, 99), label="seed")),
        leaves=(1, 2, 3, 4),
    )


@pytest.mark.parametrize("leaves", [(1,), (2,), (3,), (4,), (1, 2), (3, 4), (1, 4)])
def test_only_requested_gradients_are_computed(leaves: tuple[int, ...]) -> None:
    assert_as_good(
        lambda *a: fast(*a, stride=(2, 2)),
        lambda *a: stem.plain(*a, stride=(2, 2)),
        example(3, 1, 8, 6, (28, 28), 9, 9),
        leaves,
    )


def test_first_and_second_derivatives_pass_gradcheck() -> None:
    x, *rest = (t.double() for t in example(1, 1, 2, 2, (10, 11), 3, 5))
    parameters = [t.requires_grad_() for t in rest]
    assert torch.autograd.gradcheck(lambda *a: fast(x, *a, stride=(2, 1)), parameters)
    assert torch.autograd.gradgradcheck(lambda *a: fast(x, *a, stride=(2, 1)), parameters, fast_mode=True)


def test_kept_memory_does_not_change_results() -> None:
    memory = Memory()
    x, *rest = example(5, 1, 8, 6, (28, 28), 9, 9)
    parameters = [t.requires_grad_() for t in rest]
    runs = []
    for batch in (x, x[:3], x):  # the block is shared by batches of different size
        y = fast(batch, *parameters, stride=(2, 2), memory=memory)
        runs.append([y.detach(), *torch.autograd.grad(y.square().sum(), parameters)])
    for first, third in zip(runs[0], runs[2], strict=True):
        assert torch.equal(first, third)
    with torch.no_grad():
        # at inference the cut may differ, because the spectrum is kept: equal up to rounding
        torch.testing.assert_close(fast(x, *parameters, stride=(2, 2), memory=memory), runs[0][0], rtol=1e-4, atol=1e-5)


def test_two_forwards_before_two_backwards_match() -> None:
    memory = Memory()
    x, *rest = example(2, 1, 8, 6, (28, 28), 9, 9)
    parameters = [t.requires_grad_() for t in rest]
    ys = [fast(part, *parameters, stride=(2, 2), memory=memory) for part in (x, x / 2)]
    for part, y in zip((x, x / 2), ys, strict=True):
        gradients = torch.autograd.grad(y.square().sum(), parameters)
        plain = torch.autograd.grad(stem.plain(part, *parameters, stride=(2, 2)).square().sum(), parameters)
        for a, b in zip(gradients, plain, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.detach().abs().max()))


@pytest.mark.parametrize("why", ["image gradient", "small kernel", "plain", "stride 3", "one image"])
def test_kernel_declines_other_calls(why: str) -> None:
    k2 = 3 if why == "small kernel" else 9
    x, *rest = example(1, 1, 8, 6, (28, 28), 9, k2)
    x.requires_grad_(why == "image gradient")
    path = {"plain": "plain", "one image": "auto"}.get(why, "fast")
    with using(path):  # pyright: ignore[reportArgumentType]
        w1, b1, w2, b2 = rest
        assert conv_relu_conv(x, w1, b1, w2, b2, stride=3 if why == "stride 3" else 2) is None


@pytest.mark.parametrize("size", [(28, 28), (60, 60)], ids=["one tile", "several"])
def test_result_allows_in_place_changes(size: tuple[int, int]) -> None:
    x, *rest = example(2, 1, 4, 3, size, 5, 5)
    parameters = [t.requires_grad_() for t in rest]
    changed = fast(x, *parameters, stride=(2, 2)).relu_()
    expected = stem.plain(x, *parameters, stride=(2, 2)).relu()
    torch.testing.assert_close(changed, expected, rtol=1e-4, atol=1e-5)
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), parameters) for y in (changed, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))
