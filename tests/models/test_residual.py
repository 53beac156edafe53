"""Networks on the residual stem: sizes, order of the capsules, what they see, and the plain twin."""

from typing import Any

import pytest
import torch

import capsnet
from capsnet.models import ResidualCapsNet, ResidualCNN

SMALL: dict[str, Any] = {"channels": (4, 4, 16), "blocks": (1, 2), "decoder": False}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [28, 36, 40])
def test_twin_has_as_many_parameters_as_the_capsules(size: int, channels: int) -> None:
    shape: dict[str, Any] = {"image_size": (size, size), "in_channels": channels}
    capsules = capsnet.create_model("residual-capsnet", **shape, decoder=False).num_parameters()
    plain = capsnet.create_model("residual-cnn", **shape).num_parameters()
    assert abs(plain / capsules - 1) < 1e-3


@pytest.mark.parametrize("primary", ["whole", "grid"])
@pytest.mark.parametrize(("channels", "size"), [(1, (28, 28)), (1, (36, 36)), (3, (40, 33)), (3, (9, 64))])
def test_images_of_any_size_and_colour_are_classified(primary: str, channels: int, size: tuple[int, int]) -> None:
    model = capsnet.create_model(
        "residual-capsnet", image_size=size, in_channels=channels, primary=primary, channels=(4, 4, 16)
    )
    output = model(torch.rand(2, channels, *size))
    assert output.lengths.shape == (2, 10)
    assert output.reconstruction is not None
    assert output.reconstruction.shape == (2, channels, *size)


@pytest.mark.parametrize("blocks", [(0, 0), (1, 2)])
def test_receptive_field_is_where_gradients_arrive(blocks: tuple[int, int]) -> None:
    """Without negative weights no ReLU stops a gradient: it is zero outside of the field, and nowhere in it."""
    torch.manual_seed(0)
    model = ResidualCapsNet((72, 72), **(SMALL | {"blocks": blocks, "primary": "grid"})).double().eval()
    with torch.no_grad():
        for weight in model.features.parameters():
            weight.abs_().add_(0.01)
    field, (_, width, types) = model.receptive_field, model.grid
    assert field is not None
    y, x = 4, 5
    images = torch.rand(1, 1, 72, 72, dtype=torch.float64, requires_grad=True)
    children = model.forward_features(images).pose  # (1, I, D)
    first = (y * width + x) * types
    children[:, first : first + types].abs().sum().backward()
    assert images.grad is not None
    seen = images.grad[0, 0].abs() > 0
    rows, columns = seen.any(1).nonzero().flatten().tolist(), seen.any(0).nonzero().flatten().tolist()
    for position, touched in ((y, rows), (x, columns)):
        start = field.start + field.stride * position
        assert (touched[0], touched[-1]) == (max(0, start), min(71, start + field.size - 1))


def test_grid_children_lie_in_the_order_of_the_grid() -> None:
    """A child's pose is that of its position and type: channel = type * primary_dim + d."""
    torch.manual_seed(0)
    model = ResidualCapsNet((40, 24), **SMALL, primary="grid").eval()
    images = torch.rand(2, 1, 40, 24)
    H, W, T = model.grid
    assert (H, W, T) == (5, 3, 2)
    maps = model.features(images)  # (B, T * D, H, W)
    poses = model.forward_features(images).pose.unflatten(1, model.grid)  # (B, H, W, T, D)
    expected = model.squash.function(maps[:, 8:16, 3, 1], -1)  # type 1 at (3, 1)
    torch.testing.assert_close(poses[:, 3, 1, 1], expected)


def test_channels_that_cannot_be_grouped_are_refused() -> None:
    with pytest.raises(ValueError, match="must be a multiple of primary_dim"):
        ResidualCapsNet(channels=(4, 4, 12))


def test_twin_has_the_same_stem() -> None:
    capsules, plain = ResidualCapsNet(), ResidualCNN()
    shapes = {name: tensor.shape for name, tensor in capsules.features.state_dict().items()}
    assert shapes == {name: tensor.shape for name, tensor in plain.features.state_dict().items()}
