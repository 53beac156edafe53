"""Kernels under CPU autocast. PyTorch computes bfloat16 on every CPU, fast or not, so these tests run everywhere."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from capsnet import kernels, routing
from capsnet.kernels import Memory, conv2d, conv_relu_conv, cost, has_bf16, route_votes, stem, using
from tests.kernels import test_fft_conv, test_stem
from tests.kernels._compare import assert_as_good_in_bf16


@pytest.fixture(autouse=True)
def bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CPU that has bfloat16."""
    monkeypatch.setenv("CAPSNET_BF16", "1")


def fast_conv(x: Tensor, w: Tensor, b: Tensor | None, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    with using("fast"):
        return conv2d(x, w, b, stride, padding)


def fast_stem(*arguments: Tensor, stride: tuple[int, int]) -> Tensor:
    with using("fast"):
        y = conv_relu_conv(*arguments, stride=stride)
    assert y is not None
    return y


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_convolution_matches_native_one_for_any_shape(data: st.DataObject) -> None:
    kernel = data.draw(st.tuples(*[st.integers(5, 11)] * 2), label="kernel")
    stride = data.draw(st.tuples(*[st.integers(1, 2)] * 2), label="stride")
    padding = data.draw(st.tuples(*[st.integers(0, 5)] * 2), label="padding")
    size = tuple(
        data.draw(st.integers(max(1, k - 2 * p), 34), label="size") for k, p in zip(kernel, padding, strict=True)
    )
    b, c, o = (data.draw(st.integers(1, high), label=name) for name, high in (("batch", 5), ("in", 9), ("out", 9)))
    positions = [(n + 2 * p - k) // t + 1 for n, k, p, t in zip(size, kernel, padding, stride, strict=True)]
    assume(b * positions[0] * positions[1] * o >= 100 and c * o >= 4)  # few sums may cancel: their error is not typical
    seed = data.draw(st.integers(0, 99), label="seed")
    assert_as_good_in_bf16(
        lambda x, w, bias: fast_conv(x, w, bias, stride, padding),
        lambda x, w, bias: F.conv2d(x, w, bias, stride, padding),
        test_fft_conv.example(b, c, o, (size[0], size[1]), kernel, seed=seed),
        leaves=(0, 1, 2),
    )


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_stem_matches_two_convolutions_for_any_shape(data: st.DataObject) -> None:
    k1, k2 = data.draw(st.integers(1, 9), label="k1"), data.draw(st.integers(5, 9), label="k2")
    stride = data.draw(st.tuples(*[st.integers(1, 2)] * 2), label="stride")
    size = data.draw(st.tuples(*[st.integers(k1 + k2 - 1, 36)] * 2), label="size")
    b, c, c1, o = (data.draw(st.integers(*sides), label="count") for sides in ((3, 6), (1, 3), (12, 17), (6, 9)))
    assert_as_good_in_bf16(
        lambda *a: fast_stem(*a, stride=stride),
        lambda *a: stem.plain(*a, stride=stride),
        test_stem.example(b, c, c1, o, size, k1, k2, seed=data.draw(st.integers(0, 99), label="seed")),
        leaves=(1, 2, 3, 4),
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", [1, 5])
def test_deep_layers_are_as_good_with_any_number_of_threads(threads: int, batch: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_as_good_in_bf16(
            lambda x, w, b: fast_conv(x, w, b, (2, 2), (0, 0)),
            lambda x, w, b: F.conv2d(x, w, b, 2),
            test_fft_conv.example(batch, 64, 33, (20, 20), (9, 9)),
            leaves=(0, 1, 2),
        )
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("maps", [torch.float32, torch.bfloat16])
def test_maps_may_be_bfloat16_and_not_contiguous(maps: torch.dtype) -> None:
    x, w, b = test_fft_conv.example(4, 8, 6, (17, 15), (5, 5))
    x = x.to(maps).transpose(2, 3)[:, ::2].requires_grad_()
    w = w[:, ::2].transpose(2, 3).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = fast_conv(x, w, b, (1, 1), (2, 2))
    assert y.dtype == torch.float32
    dx, dw = torch.autograd.grad(y.square().sum(), (x, w))
    assert (dx.dtype, dw.dtype) == (maps, torch.float32)
    single = [t.detach().float().requires_grad_() for t in (x, w)]
    expected = F.conv2d(single[0], single[1], b, 1, 2)
    for a, e in zip((y, dx, dw), (expected, *torch.autograd.grad(expected.square().sum(), single)), strict=True):
        torch.testing.assert_close(a.float(), e, rtol=0, atol=0.03 * float(e.detach().abs().max()))


def test_empty_batch_has_the_right_shape() -> None:
    x, w, b = test_fft_conv.example(0, 2, 3, (12, 12), (5, 5))
    with torch.autocast("cpu", torch.bfloat16):
        assert fast_conv(x, w, b, (1, 1), (0, 0)).shape == (0, 3, 8, 8)


def test_second_derivatives_exist() -> None:
    x, w, _ = (t.requires_grad_() for t in test_fft_conv.example(1, 2, 2, (9, 9), (5, 5)))
    with torch.autocast("cpu", torch.bfloat16):
        y = fast_conv(x, w, None, (1, 1), (0, 0))
        (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    (dw,) = torch.autograd.grad(dx.square().sum(), w)
    assert torch.isfinite(dw).all()


def test_kept_spectrum_depends_on_precision() -> None:
    memory, (x, w, b) = Memory(), test_fft_conv.example(4, 6, 5, (20, 20), (9, 9))
    with torch.no_grad(), using("fast"):
        for _ in range(2):  # training in bfloat16 and validation in float32 use one memory in turn
            with torch.autocast("cpu", torch.bfloat16):
                lowered = conv2d(x, w, b, 2, memory=memory)
            exact = conv2d(x, w, b, 2, memory=memory)
            torch.testing.assert_close(exact, F.conv2d(x, w, b, 2), rtol=1e-4, atol=1e-5)
            assert 0 < float((lowered - exact).abs().max()) < 0.05


@pytest.mark.parametrize("has", ["0", "1"])
def test_products_are_lowered_only_where_the_cpu_has_them(has: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSNET_BF16", has)
    x, w, b = test_fft_conv.example(2, 2, 3, (12, 12), (5, 5))
    with using("fast"), torch.autocast("cpu", torch.bfloat16):
        plan = cost.choose(x, w, b, (1, 1), (0, 0))
    assert plan is not None
    assert plan.dtype == (torch.bfloat16 if has == "1" else torch.float32)


def test_cost_model_prefers_transforms_where_they_pay() -> None:
    """The native convolution gains more from bfloat16 than the transforms do: in training from larger batches on."""
    weight = torch.zeros(256, 256, 9, 9, requires_grad=True)
    with using("auto"), torch.autocast("cpu", torch.bfloat16):
        plan = cost.choose(torch.zeros(128, 256, 20, 20), weight, None, (2, 2), (0, 0))
        assert plan is not None
        assert (plan.dtype, plan.products) == (torch.bfloat16, 148)
        assert cost.choose(torch.zeros(16, 256, 20, 20), weight, None, (2, 2), (0, 0)) is None
    with using("auto"):
        assert cost.choose(torch.zeros(128, 256, 20, 20), weight, None, (2, 2), (0, 0)) is not None


def test_other_autocasts_are_native() -> None:
    x, w, b = test_fft_conv.example(2, 2, 3, (12, 12), (5, 5))
    with using("fast"), torch.autocast("cpu", torch.float16):
        assert cost.choose(x, w, b, (1, 1), (0, 0)) is None
    with using("fast"), torch.autocast("cpu", torch.bfloat16):
        assert cost.choose(x.double(), w.double(), b.double(), (1, 1), (0, 0)) is None
        assert cost.choose(x, w.bfloat16(), b.bfloat16(), (1, 1), (0, 0)) is None


def test_detection_reads_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAPSNET_BF16")
    for found, expected in ({"avx512_bf16": True}, True), ({"amx_bf16": True}, True), ({"avx2": True}, False):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=found: found, raising=False)
        assert has_bf16() == (expected and torch.backends.mkldnn.is_available())
    monkeypatch.setenv("CAPSNET_BF16", "yes")
    with pytest.raises(ValueError, match="CAPSNET_BF16 must be 0 or 1, got 'yes'"):
        kernels.has_bf16()


@pytest.mark.parametrize("children", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", ["children", "votes"])
def test_routing_kernels_compute_in_single_precision(kernel: str, children: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    u, weight = torch.randn(5, 7, 4, generator=g).to(children), torch.randn(7, 3, 6, 4, generator=g)
    votes = torch.randn(5, 7, 3, 6, generator=g).to(children)

    def run(*leaves: Tensor) -> list[Tensor]:
        if kernel == "children":
            routed = routing.get("dynamic").fused(leaves[0], leaves[1], None, {}, Memory())
            pose = None if routed is None else routed.pose
        else:
            pose = route_votes(*leaves)
        assert pose is not None
        assert pose.dtype == torch.float32
        return [pose, *torch.autograd.grad(pose.square().sum(), leaves)]

    leaves = [t.requires_grad_() for t in ([u, weight] if kernel == "children" else [votes])]
    with using("fast"):
        plain = run(*(t.detach().float().requires_grad_() for t in leaves))
        with torch.autocast("cpu", torch.bfloat16):  # the backward pass too
            lowered = run(*leaves)
    for a, b in zip(lowered, plain, strict=True):
        torch.testing.assert_close(a, b.to(a.dtype))
