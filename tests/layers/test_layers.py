"""Layers: the inputs of a capsule, votes, batches and sizes."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from capsnet import kernels
from capsnet.functional import squash
from capsnet.layers import DenseCaps, DenseDecoder, PrimaryCaps, SharedCaps


def test_primary_capsule_comes_from_one_position() -> None:
    """Children are ordered (y, x, type) and channel = type * dim + d: checked against indexing by hand."""
    layer = PrimaryCaps(3, types=4, dim=5, kernel_size=3, stride=2)
    x = torch.randn(2, 3, 9, 11)
    maps = layer.conv(x)  # (2, 20, 4, 5)
    capsules = layer(x).pose
    H, W, T = layer.grid(9, 11)
    assert capsules.shape == (2, H * W * T, 5)
    assert (H, W, T) == (4, 5, 4)
    for y in range(H):
        for x_ in range(W):
            for kind in range(T):
                numbers = torch.stack([maps[:, kind * 5 + d, y, x_] for d in range(5)], dim=1)
                torch.testing.assert_close(capsules[:, (y * W + x_) * T + kind], squash(numbers))


def test_primary_capsules_depend_on_their_position_only() -> None:
    layer = PrimaryCaps(1, types=2, dim=4, kernel_size=1, stride=1)
    x = torch.randn(1, 1, 3, 3)
    y = x.clone()
    y[0, 0, 1, 2] += 1
    changed = (layer(x).pose != layer(y).pose).any(-1)[0].unflatten(0, (3, 3, 2)).any(-1)
    assert changed.nonzero().tolist() == [[1, 2]]


def test_primary_lengths_are_below_one() -> None:
    lengths = PrimaryCaps(2, types=3, dim=8)(10 * torch.randn(2, 2, 15, 15)).pose.norm(dim=-1)
    assert ((lengths >= 0) & (lengths < 1)).all()


@pytest.mark.parametrize("B", [1, 3])
def test_dense_votes_are_matrix_times_child(B: int) -> None:
    layer = DenseCaps(5, 3, child_dim=4, parent_dim=6)
    u = torch.randn(B, 5, 4)
    votes = layer.votes(u)
    assert votes.shape == (B, 5, 3, 6)
    for b in range(B):
        for i in range(5):
            for j in range(3):
                torch.testing.assert_close(votes[b, i, j], layer.weight[i, j] @ u[b, i])


def test_dense_bias_is_optional() -> None:
    from capsnet.routing import get

    assert [name for name, _ in DenseCaps(5, 3).named_parameters()] == ["weight"]
    layer = DenseCaps(5, 3, routing=get("dynamic", bias=True))
    assert layer.routing_params["bias"].shape == (3, 16)
    u = torch.randn(2, 5, 8)
    before = layer(u).pose
    with torch.no_grad():
        layer.routing_params["bias"].fill_(1.0)
    assert not torch.allclose(layer(u).pose, before)
    layer(u).pose.sum().backward()
    assert layer.routing_params["bias"].grad is not None


def test_couplings_are_not_stored() -> None:
    layer = DenseCaps(5, 3)
    assert set(layer.state_dict()) == {"weight"}
    before = set(vars(layer))
    layer(torch.randn(2, 5, 8), trace=True)
    assert set(vars(layer)) == before


def test_wrong_children_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected children of shape \(B, 5, 8\), got \(2, 8, 5\)"):
        DenseCaps(5, 3)(torch.randn(2, 8, 5))


def test_no_parents_and_fractions_of_capsules_are_refused() -> None:
    makers: list[Callable[..., Any]] = [functools.partial(DenseCaps, children=5), SharedCaps]
    for make in makers:
        with pytest.raises(ValueError, match=r"parents must be at least 1, got 0"):
            make(parents=0)
        with pytest.raises(ValueError, match=r"child_dim must be a whole number, got 1\.5"):
            make(parents=2, child_dim=1.5)


@pytest.mark.parametrize(("C", "H", "W"), [(1, 28, 28), (3, 5, 7)])
def test_dense_decoder_draws_in_range(C: int, H: int, W: int) -> None:
    decoder = DenseDecoder(4, 6, C, H, W, widths=(10, 11))
    drawn = decoder(torch.randn(1, 4, 6))
    assert drawn.shape == (1, C, H, W)
    assert ((drawn > 0) & (drawn < 1)).all()
    assert [m.out_features for m in decoder.layers if isinstance(m, torch.nn.Linear)] == [10, 11, C * H * W]


@pytest.mark.parametrize("path", ["plain", "fast"])
def test_primary_scale_leaves_bias_unscaled(path: Any) -> None:
    """As in the authors' code: the convolution is divided by the number of types, then the bias is added."""
    layer = PrimaryCaps(2, types=3, dim=4, kernel_size=5, scale=1 / 3)
    x = torch.randn(2, 2, 15, 15)
    maps = torch.nn.functional.conv2d(x, layer.conv.weight, stride=2) / 3
    assert layer.conv.bias is not None
    maps = maps + layer.conv.bias.view(1, -1, 1, 1)
    expected = squash(maps.movedim(1, -1).reshape(2, -1, 4))
    with kernels.using(path):
        torch.testing.assert_close(layer(x).pose, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("squash", ["paper", "exp", "power:3", "unit"])
def test_primary_presence_is_separate_with_unit_squash(squash: str) -> None:
    layer, x = PrimaryCaps(2, types=3, dim=4, kernel_size=3, squash=squash), torch.randn(2, 2, 9, 9)
    capsules, act = layer(x)
    if squash != "unit":
        assert act is None
        return
    square = layer.conv(x).movedim(1, -1).reshape(2, -1, 4).square().sum(dim=-1)
    torch.testing.assert_close(act, square / (1 + square))
    torch.testing.assert_close(capsules.norm(dim=-1), torch.ones(2, capsules.shape[1]))


@pytest.mark.parametrize("path", ["plain", "fast"])
@pytest.mark.parametrize("shape", [(8, 1), (1, 6), (6,)])
@pytest.mark.parametrize("what", ["act", "mask"])
def test_activations_and_masks_of_wrong_shape_are_refused(what: str, shape: tuple[int, ...], path: Any) -> None:
    with kernels.using(path), pytest.raises(ValueError, match=rf"{what} must have shape \(B, I\) = \(8, 6\)"):
        DenseCaps(6, 3)(torch.randn(8, 6, 8), **{what: torch.ones(shape)})


@pytest.mark.parametrize("path", ["plain", "fast"])
def test_masked_children_may_hold_nan(path: Any) -> None:
    layer, mask = DenseCaps(6, 3), torch.arange(6).expand(8, 6) < 4
    u, act = torch.randn(8, 6, 8), torch.rand(8, 6)
    with kernels.using(path):
        expected = layer(u, act, mask=mask).pose
        u[:, 4:], act[:, 4:] = torch.nan, torch.nan
        assert torch.equal(layer(u, act, mask=mask).pose, expected)
