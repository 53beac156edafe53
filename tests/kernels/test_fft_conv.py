"""Convolution by transforms against the native one: numbers, gradients, choice of the path, state."""

import copy
import io
import threading

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from capsnet.kernels import Memory, conv2d, cost, fft_conv, packed_conv, using
from capsnet.kernels._bases import bases, choose_points, products
from capsnet.kernels._tiles import LARGEST
from tests.kernels._compare import assert_as_good


def fast(x: Tensor, w: Tensor, b: Tensor | None, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    with using("fast"):
        return conv2d(x, w, b, stride, padding)


def example(b: int, c: int, o: int, size: tuple[int, int], kernel: tuple[int, int], seed: int = 0) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    scale = (c * kernel[0] * kernel[1]) ** -0.5
    return [
        torch.randn(b, c, *size, generator=g).relu(),
        torch.randn(o, c, *kernel, generator=g) * scale,
        torch.randn(o, generator=g),
    ]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_kernel_matches_native_convolution_for_any_shape(data: st.DataObject) -> None:
    kernel = data.draw(st.tuples(*[st.integers(5, 11)] * 2), label="kernel")
    stride = data.draw(st.tuples(*[st.integers(1, 2)] * 2), label="stride")
    padding = data.draw(st.tuples(*[st.integers(0, 5)] * 2), label="padding")
    size = tuple(
        data.draw(st.integers(max(1, k - 2 * p), 34), label="size") for k, p in zip(kernel, padding, strict=True)
    )
    b, c, o = (data.draw(st.integers(1, 5), label=name) for name in ("batch", "channels", "outputs"))
    arguments = example(b, c, o, (size[0], size[1]), kernel, seed=data.draw(st.integers(0, 99), label="seed"))
    assert_as_good(
        lambda x, w, bias: fast(x, w, bias, stride, padding),
        lambda x, w, bias: F.conv2d(x, w, bias, stride, padding),
        arguments,
        leaves=(0, 1, 2),
    )


@pytest.mark.parametrize("shape", [(3, 256, 64, 20, 9, 2, 0), (2, 64, 48, 37, 7, 1, 3), (2, 33, 17, 41, 5, 2, 2)])
def test_deep_layers_keep_error_bound(shape: tuple[int, ...]) -> None:
    b, c, o, n, k, s, p = shape
    assert_as_good(
        lambda x, w, bias: fast(x, w, bias, (s, s), (p, p)),
        lambda x, w, bias: F.conv2d(x, w, bias, s, p),
        example(b, c, o, (n, n), (k, k)),
        leaves=(0, 1, 2),
    )


@pytest.mark.parametrize(("stride", "padding", "size"), [(1, 0, 7), (2, 2, 9), (1, 3, 23)])
def test_gradients_pass_gradcheck(stride: int, padding: int, size: int) -> None:
    x, w, b = (t.double().requires_grad_() for t in example(2, 2, 3, (size, size), (5, 5)))
    # the fast mode checks random directions instead of each number: for the large map, where these are 1058
    assert torch.autograd.gradcheck(
        lambda x, w, b: fast(x, w, b, (stride, stride), (padding, padding)), (x, w, b), fast_mode=size > 20
    )


def test_second_derivatives_pass_gradcheck() -> None:
    x, w, b = (t.double().requires_grad_() for t in example(1, 1, 2, (6, 6), (5, 5)))
    assert torch.autograd.gradgradcheck(lambda x, w, b: fast(x, w, b, (1, 1), (0, 0)), (x, w, b), fast_mode=True)


@pytest.mark.parametrize("leaves", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
def test_only_requested_gradients_are_computed(leaves: tuple[int, ...]) -> None:
    assert_as_good(
        lambda x, w, b: fast(x, w, b, (2, 2), (1, 1)),
        lambda x, w, b: F.conv2d(x, w, b, 2, 1),
        example(2, 3, 4, (15, 18), (7, 5)),
        leaves,
    )


@pytest.mark.parametrize("n", range(1, LARGEST + 1))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_points_are_distinct_and_sufficient(n: int, dtype: torch.dtype) -> None:
    points = choose_points(n, dtype)
    assert points.count == n
    assert len({*points.real, *points.pairs}) == len(points.real) + len(points.pairs)


def test_paper_layer_needs_132_products() -> None:
    assert bases((6, 6), (5, 5), torch.float32).products == 132
    assert bases((6, 6), (5, 5), torch.float64).products == 148
    points = choose_points(10, torch.float32)
    assert products(points, points) == 132


def test_cost_model_prefers_transforms_where_they_pay() -> None:
    w = torch.zeros(256, 256, 9, 9, requires_grad=True)
    assert cost.choose(torch.zeros(128, 256, 20, 20), w, None, (2, 2), (0, 0)) is not None
    assert cost.choose(torch.zeros(1, 256, 20, 20), w, None, (2, 2), (0, 0)) is None
    with torch.no_grad():
        dtype = cost.choose_packed(torch.zeros(1, 256, 20, 20), w, None, (2, 2), (0, 0))
        assert dtype == (torch.float32 if packed_conv.available() else None)
    assert cost.choose(torch.zeros(64, 3, 32, 32), torch.zeros(64, 3, 5, 5), None, (1, 1), (2, 2)) is None


@pytest.mark.parametrize("change", ["kernel 3", "stride 3", "half", "meta", "autocast", "plain"])
def test_other_convolutions_are_native(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fft_conv, "_forward", lambda *a: pytest.fail("took the fast path"))
    kernel, stride = (3 if change == "kernel 3" else 5), (3 if change == "stride 3" else 1)
    x, w, b = example(1, 2, 3, (12, 12), (kernel, kernel))
    if change == "half":
        x, w, b = x.half(), w.half(), b.half()
    if change == "meta":
        x, w, b = x.to("meta"), w.to("meta"), b.to("meta")
    lowered = torch.autocast("cpu", torch.float16, enabled=change == "autocast")
    with using("plain" if change == "plain" else "fast"), lowered:
        assert conv2d(x, w, b, stride).shape == F.conv2d(x, w, b, stride).shape


def test_environment_variable_overrides_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSNET_KERNELS", "plain")
    assert cost.current_path() == "plain"
    with using("fast"):
        assert cost.current_path() == "fast"
    monkeypatch.setenv("CAPSNET_KERNELS", "quick")
    with pytest.raises(ValueError, match="quick"):
        cost.current_path()


@pytest.mark.skipif(not packed_conv.available(), reason="this PyTorch has no oneDNN")
def test_packed_path_matches_and_follows_weight() -> None:
    memory, (x, w, b) = Memory(), example(1, 30, 7, (12, 13), (5, 4))
    with torch.inference_mode():
        for _ in range(2):
            for stride, padding in (((2, 1), (1, 2)), ((1, 1), (0, 0))):
                y = packed_conv.packed_conv2d(x, w, b, stride, padding, memory)
                torch.testing.assert_close(y, F.conv2d(x, w, b, stride, padding))
    with torch.no_grad():
        w.mul_(2)  # an optimiser's step, or load_state_dict
        y = packed_conv.packed_conv2d(x, w, b, (1, 1), (0, 0), memory)
        torch.testing.assert_close(y, F.conv2d(x, w, b))
        w.data.mul_(2)  # not counted by the version counter
        y = packed_conv.packed_conv2d(x, w, b, (1, 1), (0, 0), memory)
        torch.testing.assert_close(y, F.conv2d(x, w, b))
        for place in ((3, 11, 4, 2), (0, 29), (6, slice(None), 1)):
            w.data[place] += 1
            y = packed_conv.packed_conv2d(x, w, b, (1, 1), (0, 0), memory)
            torch.testing.assert_close(y, F.conv2d(x, w, b))


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU has no bfloat16")
@pytest.mark.parametrize("layout", ["contiguous", "channels last", "a slice"])
def test_packed_path_under_autocast_rounds_products_only(layout: str) -> None:
    memory, (x, w, b) = Memory(), example(1, 60, 7, (9, 11), (5, 4))
    if layout == "channels last":
        x = x.contiguous(memory_format=torch.channels_last)
    elif layout == "a slice":
        x = torch.cat([x, x], dim=3)[..., ::2]
    rounded = F.conv2d(x.bfloat16().double(), w.bfloat16().double(), b.double(), (2, 1), (1, 2))
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for images in (x, x.bfloat16()):
            assert cost.choose_packed(images, w, b, (2, 1), (1, 2)) == torch.bfloat16
            y = conv2d(images, w, b, (2, 1), (1, 2), memory=memory)
            assert y.dtype == torch.float32
            torch.testing.assert_close(y.double(), rounded, rtol=1e-2, atol=1e-2)


@pytest.mark.skipif(not packed_conv.available(), reason="this PyTorch has no oneDNN")
def test_packed_path_notices_changed_filter_channel_or_tap() -> None:
    memory, (x, w, b) = Memory(), example(1, 128, 64, (9, 9), (9, 9))
    assert w.numel() > packed_conv._QUICK
    with torch.no_grad():
        for place in ((), (5,), (63,), (slice(None), 0), (slice(None), 77), (..., 4, 8)):
            w.data[place] *= 0.5
            y = packed_conv.packed_conv2d(x, w, b, (1, 1), (0, 0), memory)
            torch.testing.assert_close(y, F.conv2d(x, w, b))


@pytest.mark.parametrize(
    "how", ["optimizer", "fused optimizer", "load_state_dict", "data", "data of one", "data swapped", "replaced"]
)
def test_kept_spectrum_follows_weight(how: str) -> None:
    x, w, _ = example(4, 6, 5, (20, 20), (9, 9))
    layer, memory = torch.nn.Conv2d(6, 5, 9, stride=2), Memory()
    with torch.no_grad():
        layer.weight.copy_(w)

    def compare() -> None:
        with torch.no_grad(), using("fast"):
            y = conv2d(x, layer.weight, layer.bias, 2, memory=memory)
        torch.testing.assert_close(y, layer(x), rtol=1e-4, atol=1e-5)

    compare()
    if how == "load_state_dict":
        layer.load_state_dict({k: v + 1 for k, v in layer.state_dict().items()})
    elif how == "data":
        layer.weight.data.mul_(0.5)
    elif how == "data of one":
        layer.weight.data[3, 4, 1, 7] += 1
    elif how == "data swapped":
        layer.weight.data[2] = layer.weight.data[2].flip(0)
    elif how == "replaced":
        layer.weight = torch.nn.Parameter(w * 3)
    else:
        layer(x).sum().backward()
        torch.optim.Adam(layer.parameters(), lr=0.1, fused=how == "fused optimizer").step()
    compare()


def test_kept_spectrum_is_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = example(4, 6, 5, (20, 20), (9, 9))
    memory = Memory()
    with torch.no_grad(), using("fast"):
        first = conv2d(x, w, b, 2, memory=memory)
        monkeypatch.setattr(fft_conv.Spectral, "_channel_runs", lambda self: pytest.fail("made the spectrum again"))
        assert torch.equal(first, conv2d(x, w, b, 2, memory=memory))


def test_backward_works_after_other_calls() -> None:
    """Two forward passes before two backward passes, and a second backward pass: memory is overwritten each time."""
    memory, (x, w, b) = Memory(), example(2, 3, 4, (14, 14), (5, 5))
    w.requires_grad_()
    with using("fast"):
        ys = [conv2d(part, w, b, 2, memory=memory) for part in (x, x * 2)]
    expected = torch.autograd.grad(F.conv2d(x, w, b, 2).sum(), w)[0]
    for _ in range(2):
        for scale, y in enumerate(ys, start=1):
            (gradient,) = torch.autograd.grad(y.sum(), w, retain_graph=True)
            torch.testing.assert_close(gradient, scale * expected, rtol=1e-4, atol=1e-4)


def test_threads_get_separate_memory() -> None:
    memory, (x, w, b) = Memory(), example(2, 3, 4, (40, 40), (7, 7))
    wrong = []

    def work(scale: float) -> None:
        for _ in range(10):
            with torch.no_grad(), using("fast"):
                y = conv2d(x * scale, w, b, 1, memory=memory)
            if not torch.allclose(y, F.conv2d(x * scale, w, b), rtol=1e-4, atol=1e-4):
                wrong.append(scale)

    workers = [threading.Thread(target=work, args=(s,)) for s in (1.0, 2.0, 3.0)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_memory_is_not_part_of_state() -> None:
    memory = Memory()
    memory.block("a", (3, 4), torch.float32)
    assert memory.nbytes == 48
    assert copy.deepcopy(memory).nbytes == 0
    buffer = io.BytesIO()
    torch.save(memory, buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=False).nbytes == 0


def test_kernel_works_in_and_after_inference_mode() -> None:
    memory, (x, w, b) = Memory(), example(2, 3, 4, (14, 14), (5, 5))
    with using("fast"):
        with torch.inference_mode():
            y = conv2d(x, w, b, 2, memory=memory)
        w.requires_grad_()
        z = conv2d(x, w, b, 2, memory=memory)
        z.sum().backward()
    torch.testing.assert_close(y.clone(), z.detach())


def test_compiled_and_vmapped_code_uses_plain_operator() -> None:
    x, w, b = example(2, 3, 4, (14, 14), (5, 5))

    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return conv2d(x, w, b, 2)

    with using("fast"):
        compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, w, b), F.conv2d(x, w, b, 2))
        mapped = torch.func.vmap(lambda one: conv2d(one[None], w, b, 2)[0])(x)
        torch.testing.assert_close(mapped, F.conv2d(x, w, b, 2))


@pytest.mark.parametrize("bad", [torch.zeros(2, 9, 14, 14), torch.zeros(2, 3, 4, 4)])
def test_bad_input_gives_native_errors(bad: Tensor) -> None:
    with pytest.raises(RuntimeError), using("fast"):
        conv2d(bad, torch.zeros(4, 3, 5, 5))


@pytest.mark.parametrize("tiles", [1, 4], ids=["one tile", "four tiles"])
@pytest.mark.parametrize("leaf", [None, 1], ids=["inference", "training"])
def test_result_allows_in_place_changes(tiles: int, leaf: int | None) -> None:
    x, *arguments = example(2, 3, 4, (14, 14) if tiles == 1 else (40, 40), (5, 5))
    if leaf:
        arguments[0].requires_grad_()
    w, b = arguments
    shift = torch.zeros((), requires_grad=True)
    changed = fast(x, w, b, (1, 1), (0, 0)).add_(shift).relu_()
    expected = F.conv2d(x, w, b).relu()
    torch.testing.assert_close(changed, expected, rtol=1e-4, atol=1e-5)
    if leaf:
        (gradient,), (plain,) = (torch.autograd.grad(y.square().sum(), w) for y in (changed, expected))
        torch.testing.assert_close(gradient, plain, rtol=1e-4, atol=1e-4 * float(plain.abs().max()))
