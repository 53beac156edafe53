"""Convolution with 8-bit numbers against the same roundings in float32: values, batches, other weights."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from capsnet.kernels import Memory, cost, int8_conv, using

pytestmark = pytest.mark.skipif(not int8_conv.available(), reason="no VNNI, or no oneDNN")

SHAPES = [  # batch, channels, outputs, height, width, kernel, stride, padding
    (1, 256, 32, 20, 20, (9, 9), (2, 2), (0, 0)),
    (3, 5, 7, 11, 13, (3, 4), (2, 1), (1, 2)),
    (11, 64, 3, 8, 5, (3, 3), (1, 2), (1, 0)),
    (2, 512, 9, 1, 1, (1, 1), (1, 1), (0, 0)),
]


def example(batch: int, channels: int, outputs: int, height: int, width: int, kernel: tuple[int, int]) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(batch, channels, height, width, generator=g) * torch.rand(batch, 1, 1, 1, generator=g)
    w = torch.randn(outputs, channels, *kernel, generator=g) * (channels * kernel[0] * kernel[1]) ** -0.5
    return [x, w, torch.randn(outputs, generator=g)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_integers_match_the_rounded_convolution(shape: tuple, threads: int) -> None:
    *sizes, stride, padding = shape
    x, w, b = example(*sizes)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        for images, bias in ((x, b), (x.relu(), None), (x.contiguous(memory_format=torch.channels_last), b)):
            y = int8_conv.int8_conv2d(images, w, bias, stride, padding, Memory())
            expected = int8_conv.plain(images, w, bias, stride, padding)
            torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
            exact = F.conv2d(images, w, bias, stride, padding)
            assert (y - exact).norm() <= 0.02 * exact.norm()
    finally:
        torch.set_num_threads(before)


def test_image_does_not_depend_on_its_batch() -> None:
    x, w, b = example(19, 64, 6, 9, 9, (3, 3))
    memory = Memory()
    together = int8_conv.int8_conv2d(x, w, b, (1, 1), (0, 0), memory)
    alone = torch.cat([int8_conv.int8_conv2d(image[None], w, b, (1, 1), (0, 0), memory) for image in x])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)


def test_packed_weights_follow_the_weight() -> None:
    x, w, b = example(1, 64, 6, 9, 9, (3, 3))
    memory = Memory()
    for change in (lambda: None, lambda: w.mul_(2), lambda: w.data.add_(0.1)):
        change()
        y = int8_conv.int8_conv2d(x, w, b, (1, 1), (0, 0), memory)
        torch.testing.assert_close(y, int8_conv.plain(x, w, b, (1, 1), (0, 0)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 3.0, float("nan"), float("inf")])
def test_constant_and_invalid_images_stay_what_they_are(value: float) -> None:
    _, w, b = example(1, 64, 6, 9, 9, (3, 3))
    x = torch.full((1, 64, 9, 9), value)
    y = int8_conv.int8_conv2d(x, w, b, (1, 1), (0, 0), Memory())
    if value == value and value < 4:
        torch.testing.assert_close(y, F.conv2d(x, w, b), rtol=0.02, atol=0.02)
    else:
        assert not y.isfinite().any()


def test_integers_are_for_inference_on_the_cpu_only() -> None:
    x, w, b = example(1, 64, 6, 9, 9, (3, 3))
    assert cost.choose_int8(x, w, b)
    assert not cost.choose_int8(x, w.requires_grad_(), b)
    with torch.no_grad():
        assert cost.choose_int8(x, w, b)
        assert not cost.choose_int8(x[:0], w, b)
        assert not cost.choose_int8(x.double(), w.double(), b.double())
        assert not cost.choose_int8(x.to("meta"), w.to("meta"), b.to("meta"))
        with using("plain"):
            assert not cost.choose_int8(x, w, b)
