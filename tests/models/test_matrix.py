"""Matrix capsules: the paper's size, the spread loss by hand, and a margin that resumes exactly."""

from typing import Any

import pytest
import torch

import capsnet
from capsnet.functional import spread_loss, spread_margin
from capsnet.models import MatrixCapsNet, reroute
from tests.models import suite
from tests.reference import inverted

TINY = {"widths": (4, 2, 3, 2), "num_classes": 3, "image_size": (19, 21)}


CONCURRENT = {"routing": "inverted-attention", "concurrent": True}
RESIDUAL = {"blocks": 1, "image_size": (23, 29)}  # of even sides the convolution leaves out the last pixel


def build(**options) -> MatrixCapsNet:
    model = capsnet.create_model("matrix-capsnet-small", **(TINY | options))
    assert isinstance(model, MatrixCapsNet)
    return model


def test_spread_loss_matches_hand_computed_value() -> None:
    activations, targets = torch.rand(5, 4), torch.tensor([0, 3, 1, 1, 2])
    expected = 0.0
    for a, t in zip(activations.tolist(), targets.tolist(), strict=True):
        expected += sum(max(0.0, 0.5 - (a[t] - a[i])) ** 2 for i in range(4) if i != t) / 5
    torch.testing.assert_close(spread_loss(activations, targets, 0.5), torch.tensor(expected))


def test_spread_loss_compares_each_present_class_with_each_absent_one() -> None:
    activations = torch.tensor([[0.9, 0.5, 0.3, 0.6]])
    present = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    pairs = [0.4, 0.6, 0.1, 0.3]  # 0.9 and 0.6, each minus 0.5 and minus 0.3
    expected = torch.tensor(sum(max(0.0, 0.5 - ahead) ** 2 for ahead in pairs))
    torch.testing.assert_close(spread_loss(activations, present, 0.5), expected)
    for nothing_to_hold_apart in (torch.zeros(1, 4), torch.ones(1, 4)):
        assert spread_loss(activations, nothing_to_hold_apart, 0.5) == 0


def test_spread_loss_is_zero_beyond_margin() -> None:
    assert spread_loss(torch.tensor([[0.95, 0.04]]), torch.tensor([0]), 0.9) == 0
    torch.testing.assert_close(spread_loss(torch.tensor([[0.5, 0.5]]), torch.tensor([0]), 0.9), torch.tensor(0.81))


def test_spread_loss_weights_examples() -> None:
    activations, targets = torch.rand(3, 4), torch.tensor([0, 3, 1])
    each = torch.stack([spread_loss(activations[b : b + 1], targets[b : b + 1], 0.9) for b in range(3)])
    weights = torch.tensor([0.0, 1.0, 2.5])
    torch.testing.assert_close(spread_loss(activations, targets, 0.9, weights=weights), (each * weights).mean())
    model = build()
    images = torch.rand(3, 1, 19, 21)
    output = model(images)
    assert model.loss(output, targets % 3, images, torch.zeros(3)).total == 0


def test_wrong_spread_loss_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"activations must have shape \(B, J\), got \(3,\)"):
        spread_loss(torch.rand(3), torch.tensor([0]))
    with pytest.raises(ValueError, match="3 examples but 2 targets"):
        spread_loss(torch.rand(3, 4), torch.tensor([0, 1]))


def test_spread_margin_grows_from_0_2_to_0_9() -> None:
    margins = spread_margin(torch.linspace(0, 1, 101))
    torch.testing.assert_close(margins[[0, -1]], torch.tensor([0.2, 0.9]))
    assert (margins.diff() > 0).all()
    official = 0.2 + 0.79 * torch.sigmoid(14 * torch.linspace(0, 1, 101) - 4)  # ends at 0.99
    assert (margins - official).abs().max() < 0.1


def test_margin_grows_with_training_step() -> None:
    images, labels = torch.rand(4, 1, 19, 21), torch.tensor([0, 1, 2, 0])
    model = build(margin_steps=4)
    output = model(images)
    losses = [model.loss(output, labels, images, step=step).total.item() for step in range(6)]
    torch.testing.assert_close(losses[0], spread_loss(output.lengths, labels, 0.2).item())
    assert losses[:5] == sorted(set(losses[:5]))
    torch.testing.assert_close(losses[4], spread_loss(output.lengths, labels, 0.9).item())
    assert losses[5] == losses[4] == model.loss(output, labels, images).total.item()


def test_shapes_are_the_papers() -> None:
    """The paper says 310 K for smallNORB's two 32 x 32 images and five classes."""
    model = capsnet.create_model("matrix-capsnet", image_size=(32, 32), in_channels=2, num_classes=5)
    assert model.num_parameters() == 317_194
    assert {name: tuple(p.shape) for name, p in model.named_parameters() if p.ndim > 1} == {
        "conv.weight": (32, 2, 5, 5),
        "poses.weight": (512, 32, 1, 1),
        "presence.weight": (32, 32, 1, 1),
        "first.weight": (288, 32, 4, 4),
        "second.weight": (288, 32, 4, 4),
        "classes.weight": (32, 5, 4, 4),
    }


def test_primary_capsule_comes_from_one_position() -> None:
    model = build()
    seen = []
    model.first.register_forward_hook(lambda _, inputs, __: seen.append(inputs))
    images = torch.rand(2, 1, 19, 21)
    model(images)
    poses, presence = seen[0]
    maps = torch.relu(model.conv(images))
    assert poses.shape == (2, 8, 9, 2, 16)
    for t in range(2):
        torch.testing.assert_close(poses[:, :, :, t, 5], model.poses(maps)[:, t * 16 + 5])
        torch.testing.assert_close(presence[..., t], model.presence(maps)[:, t].sigmoid())


@pytest.mark.parametrize("routing", ["em", "dynamic", "uniform"])
def test_model_takes_other_routings(routing: str) -> None:
    model = build(routing=routing, iterations=None)
    output = model(torch.rand(2, 1, 19, 21), trace=True)
    assert output.trace is not None
    assert output.trace.grid == (1, 2, 2)
    assert output.trace.couplings.shape[1:] == (2, 4, 3)
    assert output.poses is not None
    assert output.poses.shape == (2, 3, 16)
    assert output.reconstruction is None


def test_smallest_image_is_17_pixels() -> None:
    assert build(image_size=(17, 17))(torch.rand(1, 1, 17, 17)).lengths.shape == (1, 3)
    with pytest.raises(ValueError, match=r"images of 16 x 40 are too small .* at least 17 x 17 are needed"):
        build(image_size=(16, 40))


def test_blank_images_have_finite_gradients() -> None:
    model = build()
    images, labels = torch.zeros(2, 1, 19, 21), torch.tensor([0, 1])
    model.loss(model(images), labels, images).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_older_weights_with_step_counter_load(tmp_path) -> None:
    model = build()
    older = build()
    older.load_state_dict(model.state_dict() | {"steps": torch.tensor(7)})
    assert torch.equal(older.conv.weight, model.conv.weight)
    older.register_buffer("steps", torch.tensor(7))
    again = capsnet.load(capsnet.save(older, tmp_path / "m.safetensors"))
    assert "steps" not in again.state_dict()
    images = torch.rand(2, 1, 19, 21)
    torch.testing.assert_close(again(images).lengths, model.eval()(images).lengths)


def reference_layers(model: MatrixCapsNet, grid: tuple[int, int, int]) -> list[tuple]:
    """The three layers as ``inverted.concurrent`` takes them, for a grid of primary capsules."""
    found = []
    for layer in (model.first, model.second):
        votes, grid = inverted.window_votes(layer.weight.tolist(), grid, layer.kernel_size, layer.stride)
        found.append((votes, grid[0] * grid[1] * grid[2], layer))
    found.append((inverted.class_votes(model.classes.weight.tolist(), grid), model.num_classes, model.classes))
    return [
        (votes, parents, {name: tensor.tolist() for name, tensor in layer.routing_params.items()})
        for votes, parents, layer in found
    ]


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_concurrent_routing_equals_reference_loop(iterations: int) -> None:
    """The reference updates all layers in every iteration, also where the classes do not see it any more."""
    model = build(**CONCURRENT, iterations=iterations, image_size=(17, 19)).double().eval()
    generator = torch.Generator().manual_seed(0)
    for layer in (model.first, model.second, model.classes):
        for tensor in layer.routing_params.values():
            tensor.data.copy_(0.5 * torch.randn(tensor.shape, dtype=torch.float64, generator=generator))
    seen = []
    model.first.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    images = torch.rand(1, 1, 17, 19, dtype=torch.float64, generator=generator)
    output = model(images, trace=True)
    poses, act = seen[0]  # (1, H, W, T, 16), (1, H, W, T)
    primary = inverted.Capsules(poses[0].flatten(0, 2).tolist(), act[0].flatten().tolist())
    history = inverted.concurrent(reference_layers(model, tuple(act.shape[1:])), primary, iterations)

    def close(found: torch.Tensor, expected: list) -> None:
        values = torch.tensor(expected, dtype=torch.float64)
        torch.testing.assert_close(found.detach(), values.reshape(found.shape), rtol=1e-8, atol=1e-8)

    assert output.trace is not None
    close(output.lengths[0], history[-1][-1].act)
    close(output.trace.poses[:, 0], [values[-1].poses for values in history])
    close(output.trace.activations[:, 0], [values[-1].act for values in history])
    close(output.trace.couplings[:, 0], [values[-1].couplings for values in history])
    children = history[max(0, iterations - 2)][-2]
    features = model.forward_features(images)
    close(features.pose[0], children.poses)
    assert features.act is not None
    close(features.act[0], children.act)


def test_one_concurrent_iteration_equals_a_sequential_one() -> None:
    images = torch.rand(2, 1, 19, 21)
    together = build(**CONCURRENT).eval()
    apart = build(**CONCURRENT | {"concurrent": False}).eval()
    apart.load_state_dict(together.state_dict())
    one, other = (reroute(model, iterations=1)(images) for model in (together, apart))
    torch.testing.assert_close(one.lengths, other.lengths)
    torch.testing.assert_close(one.poses, other.poses)
    assert not torch.allclose(together(images).poses, apart(images).poses, atol=1e-3)


def test_concurrent_needs_a_routing_that_continues() -> None:
    with pytest.raises(ValueError, match=r"start from given parents \(inverted-attention\), which em cannot"):
        build(concurrent=True)
    with pytest.raises(ValueError, match="concurrent"):
        build(**CONCURRENT | {"concurrent": "perhaps"})


@pytest.mark.parametrize(
    "check", [pytest.param(check, marks=[pytest.mark.slow] * (check == "compiles")) for check in suite.CHECKS]
)
@pytest.mark.parametrize("options", [CONCURRENT, RESIDUAL], ids=["concurrent", "residual"])
def test_model_with_options_keeps_contract(check: str, options: dict[str, Any]) -> None:
    suite.CHECKS[check]("matrix-capsnet-small", **options)


def test_residual_blocks_follow_the_convolution() -> None:
    plain, residual = build(), build(blocks=2)
    added = residual.num_parameters() - plain.num_parameters()
    channels = plain.conv.out_channels
    assert added == 2 * channels + 2 * (2 * 9 * channels**2 + 4 * channels)  # BatchNorm, and two blocks
    assert plain.receptive_field is not None
    assert residual.receptive_field is not None
    assert residual.receptive_field.size == plain.receptive_field.size + 2 * 2 * 2 * 2  # 4 windows of 3, stride 2


def test_concurrent_model_is_saved_and_loaded(tmp_path) -> None:
    model = build(**CONCURRENT, iterations=2).eval()
    again = capsnet.load(capsnet.save(model, tmp_path / "m.safetensors"))
    assert isinstance(again, MatrixCapsNet)
    assert again.concurrent
    images = torch.rand(2, 1, 19, 21)
    torch.testing.assert_close(again(images).lengths, model(images).lengths)
