"""Decoder and stem of the image network: any size, sizes derived from the image, weights that hardly grow."""

import itertools

import pytest
import torch
from torch import nn

from capsnet.layers._pyramid import pyramid
from capsnet.layers.decoder import ConvDecoder, DenseDecoder
from capsnet.layers.stem import Block, ResidualStem


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("C", "H", "W"), [(1, 28, 28), (3, 5, 7), (2, 17, 17), (3, 21, 30), (1, 8, 40), (3, 9, 8), (1, 1, 1), (3, 64, 50)]
)
def test_decoder_draws_any_size_in_range(C: int, H: int, W: int) -> None:
    decoder = ConvDecoder(4, 6, C, H, W, hidden=10, maps=8)
    drawn = decoder(torch.randn(2, 4, 6))
    assert drawn.shape == (2, C, H, W)
    assert ((drawn > 0) & (drawn < 1)).all()
    drawn.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in decoder.parameters())


def test_decoder_learns_every_pixel() -> None:
    """Two poses, two pictures of noise: each pixel can be learned independently."""
    decoder = ConvDecoder(1, 2, 3, 18, 21, hidden=64, maps=32)
    poses, pictures = torch.eye(2).unsqueeze(1), torch.rand(2, 3, 18, 21)
    optimizer = torch.optim.Adam(decoder.parameters(), lr=1e-2)
    first = error = (decoder(poses) - pictures).square().mean()
    for _ in range(200):
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        error = (decoder(poses) - pictures).square().mean()
    assert error < 0.2 * first


def test_last_doubling_is_subpixel_convolution() -> None:
    """Sub-pixel order: channel (c, p, q) of position (y, x) is pixel (2 y + p, 2 x + q) of colour c."""
    decoder = ConvDecoder(1, 2, 2, 16, 12, maps=8)
    last = decoder.layers[-1]
    assert isinstance(last, nn.Conv2d)
    with torch.no_grad():
        last.weight.zero_()
        assert last.bias is not None
        last.bias.copy_(torch.arange(8.0))
    drawn = torch.logit(decoder(torch.randn(1, 1, 2)))
    for c, y, x in itertools.product(range(2), (0, 5, 14), (1, 10)):
        torch.testing.assert_close(drawn[0, c, y, x], torch.tensor(4.0 * c + 2 * (y % 2) + x % 2), rtol=1e-3, atol=1e-3)


def test_decoder_size_hardly_depends_on_pixels_and_classes() -> None:
    assert count(ConvDecoder(10, 16, 3, 224, 224)) < 1.1 * count(ConvDecoder(10, 16, 3, 28, 28))
    assert count(ConvDecoder(100, 16, 3, 64, 64)) - count(ConvDecoder(10, 16, 3, 64, 64)) == 90 * 16 * 128
    assert count(ConvDecoder(10, 16, 3, 64, 64)) < count(DenseDecoder(10, 16, 3, 64, 64)) / 10


@pytest.mark.parametrize("size", [*range(11, 100, 7), 128, 160, 224, 225])
def test_stem_ends_in_six_to_ten_positions(size: int) -> None:
    stem = ResidualStem(3, size, size, channels=8)
    assert 6 <= stem.grid[0] <= 10
    assert stem.eval()(torch.rand(1, 3, size, size)).shape == (1, 8, *stem.grid)
    halvings = len(pyramid(size, size, 10)) - 1
    assert sum(isinstance(m, Block) for m in stem.modules()) == halvings - (size > 80)


def test_stem_keeps_short_side_of_narrow_image() -> None:
    stem = ResidualStem(1, 9, 100, channels=8).eval()
    assert stem.grid == (9, 7)
    assert stem(torch.rand(2, 1, 9, 100)).shape == (2, 8, 9, 7)


def test_fresh_block_equals_its_shortcut() -> None:
    block = Block(4, 6, (2, 1)).eval()
    x = torch.rand(2, 4, 9, 5)
    torch.testing.assert_close(block(x), block.shortcut(x).relu())
    assert block(x).shape == (2, 6, 5, 5)
