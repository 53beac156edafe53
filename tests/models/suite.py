"""One suite for all models: checks that take a registered name and raise AssertionError.

They are plain functions, so that a model that is registered outside the package can be checked too:

    for check in suite.CHECKS.values():
        check("my-model")

``options`` make the model smaller where its defaults take long.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import capsnet
from capsnet import kernels
from capsnet.models import Model, Output, ReceptiveField, describe, model_options, replacements, reroute
from capsnet.routing import get

SMALL: dict[str, dict[str, Any]] = {  # for speed
    "capsnet": {"conv_channels": 4, "primary_types": 2, "decoder_widths": (8, 9)},
    "capsnet-small": {"conv_channels": 4, "primary_types": 2, "decoder_widths": (8, 9)},
    "baseline-cnn": {"channels": (4, 4, 4), "widths": (8, 8)},
    "cnn-small": {"channels": (4, 4), "kernel_sizes": (5, 5), "widths": (8,)},
    "efficient-capsnet": {"channels": (4, 4, 4, 16), "decoder_widths": (8, 9)},
    "residual-capsnet": {"channels": (4, 4, 16), "blocks": (1, 1), "decoder_widths": (8, 9)},
    "residual-cnn": {"channels": (4, 4, 16), "blocks": (1, 1), "widths": (8,)},
    "akorn-small": {"channels": 2, "depth": 1, "steps": 2},
    "akorn-pyramid": {"channels": 2, "steps": 2, "stem": (4, 4, 8), "blocks": (1, 1)},
    "rotating-small": {"channels": (2, 3), "latent": 6, "n": 2},
    "complex-cnn-small": {"channels": (2, 3), "width": 8},
    "decoupled-cnn-small": {"channels": (4, 4), "kernel_sizes": (5, 5), "widths": (8,)},
    "pathnet": {"layers": 2, "modules": 3, "active": 2, "units": 5},
    "capsnet-image": {"image_size": (28, 28), "in_channels": 1, "width": 16, "primary_types": 2, "decoder_width": 8},
    "cnn-image": {"image_size": (28, 28), "in_channels": 1, "width": 16},
    "matrix-capsnet": {"widths": (4, 2, 2, 2)},
    "matrix-capsnet-small": {"widths": (4, 2, 2, 2)},
    "text-capsnet": {"vocabulary": 30, "embedding": 8, "channels": 8},
    "text-cnn": {"vocabulary": 30, "embedding": 8, "channels": 8},
}


def build(name: str, **options: Any) -> Model:
    """The model in evaluation mode, small where the suite knows how, always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return capsnet.create_model(name, **(SMALL.get(name, {}) | options)).eval()


def inputs(model: Model, count: int) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return model.example_inputs(count)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    return nn.functional.one_hot(labels, classes)


def describes_itself(name: str, **options: Any) -> None:
    assert len(describe(name)) > 10
    model = build(name, **options)
    assert f"classes={model.num_classes}" in repr(model)
    assert set(model.config) == {"name", *model_options(name)}
    again = capsnet.create_model(**json.loads(json.dumps(model.config)))
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in model.state_dict().items()}
    again.load_state_dict(model.state_dict())
    images = inputs(model, 2)
    assert torch.equal(again.eval()(images).lengths, model(images).lengths)


def outputs(name: str, **options: Any) -> None:
    """Shapes of the output, with and without labels, as declared."""
    for B in (1, 3):
        model = build(name, **options)
        J, images = model.num_classes, inputs(model, B)
        labels = torch.arange(B) % J
        for chosen in (None, labels, one_hot(labels, J)):
            output = model(images, chosen)
            assert output.lengths.shape == (B, J)
            assert ((output.lengths >= 0) & (output.lengths <= 1)).all()
            if model.pose_dim is not None:
                assert output.poses is not None
                assert output.poses.shape == (B, J, model.pose_dim)
            assert output.reconstruction is not None or not model.draws  # an autoencoder draws without class poses
            assert output.reconstruction is None or output.reconstruction.shape == images.shape
            assert output.trace is None


def classes(name: str, **options: Any) -> None:
    """Any number of classes, one included."""
    for J in (1, 2):
        model = build(name, num_classes=J, **options)
        assert model(inputs(model, 2)).lengths.shape == (2, J)
        assert len(model.class_names) == J


def neighbours(name: str, **options: Any) -> None:
    """In evaluation mode an example's output does not depend on the other examples, and is deterministic."""
    model = build(name, **options)
    images = inputs(model, 4)
    together = model(images).lengths
    assert torch.equal(model(images).lengths, together)
    alone = torch.cat([model(images[b : b + 1]).lengths for b in range(4)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


def empty_batch(name: str, **options: Any) -> None:
    model = build(name, **options)
    for nothing, something in zip(model(inputs(model, 0))[:4], model(inputs(model, 1))[:4], strict=True):
        assert (nothing is None) == (something is None)
        assert nothing is None or nothing.shape == (0, *something.shape[1:])


def wrong_inputs(name: str, **options: Any) -> None:
    model = build(name, **options)
    images = inputs(model, 2)
    for wrong in (images[0], images[..., None], images.to(torch.bool), images[None]):
        with pytest.raises(ValueError, match="expected"):
            model(wrong)


def loss(name: str, **options: Any) -> None:
    """The parts sum to the total, all parameters get finite gradients, and with weights of zero the loss is zero."""
    model = build(name, **options)
    J, images = model.num_classes, inputs(model, 4)
    labels = torch.arange(4) % J
    for targets in (labels, one_hot(labels, J).float()):
        for step in (None, 0, 5):
            total, parts = model.loss(model(images, targets), targets, images, step=step)
            assert total.ndim == 0
            torch.testing.assert_close(total, torch.stack(list(parts.values())).sum())
    total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    weighted = model.loss(model(images, labels), labels, images, torch.tensor([1.0, 0, 0, 0])).total
    alone = model.loss(model(images[:1], labels[:1]), labels[:1], images[:1]).total
    torch.testing.assert_close(weighted, alone / 4, rtol=1e-4, atol=1e-6)


def margins(name: str, **options: Any) -> None:
    """The declared margins are those of the loss: it is zero at the margins and positive beyond."""
    model = build(name, **options)
    if model.margins is None:
        return
    images, labels = inputs(model, 3), torch.arange(3) % model.num_classes
    present = one_hot(labels, model.num_classes).bool()
    for miss in (0.0, 0.05):
        lengths = torch.where(present, model.margins.present - miss, model.margins.absent + miss)
        assert (model.loss(Output(lengths), labels, images).total > 1e-6) == (miss > 0)


def decoding(name: str, **options: Any) -> None:
    model = build(name, **options)
    J, D = model.num_classes, model.pose_dim or 16
    poses = torch.randn(2, J, D)
    if not model.draws:
        with pytest.raises(ValueError, match="has no decoder"):
            model.decode(poses, torch.tensor([0, 0]))
        return
    picture = (model.in_channels, *model.image_size)
    many = model.decode(poses, torch.tensor([[0, J - 1], [J - 1, 0]]))
    assert many.shape == (2, 2, *picture)
    first = model.decode(poses, torch.tensor([0, J - 1]))
    assert first.shape == (2, *picture)
    torch.testing.assert_close(many[:, 0], first)
    images = inputs(model, 3)
    output = model(images)
    assert output.poses is not None
    torch.testing.assert_close(output.reconstruction, model.decode(output.poses, output.lengths.argmax(dim=1)))
    for wrong in (torch.tensor(0), torch.tensor([0])):
        with pytest.raises(ValueError, match="classes must have shape"):
            model.decode(poses, wrong)


def features(name: str, **options: Any) -> None:
    """``forward_features`` gives one row per example, of which the class layer makes the output."""
    model = build(name, **options)
    images = inputs(model, 3)
    if type(model).forward_features is Model.forward_features:
        assert model.grid is None
        with pytest.raises(ValueError, match="no features"):
            model.forward_features(images)
        return
    result = model.forward_features(images)
    poses = result if isinstance(result, Tensor) else result.pose
    assert len(poses) == 3
    if model.grid is not None:
        H, W, T = model.grid
        assert poses.flatten(1, -2).shape[1] == H * W * T
    with pytest.raises(ValueError, match="expected"):
        model.forward_features(images[0])


def receptive_field(name: str, **options: Any) -> None:
    """A child depends on the pixels of its receptive field and, without competition between children, on no other.

    Other pixels change places instead of values: a network may standardise images by their mean and contrast.
    """
    model = build(name, **options)
    field, grid = model.receptive_field, model.grid
    if field is None or grid is None:
        return
    if model.class_routing is not None and model.class_routing.iterates:
        model = reroute(model, iterations=1)
    model = model.double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)  # a residual block that starts at zero only has its shortcut
    H, W, _ = grid
    images = inputs(model, 1).double()

    def child(y: int, x: int, moved: Tensor) -> Tensor:
        """The child at (y, x) after the pixels ``moved`` (H, W) have changed their places."""
        changed = images.clone()
        pixels = changed[:, :, moved]
        changed[:, :, moved] = pixels.roll(pixels.shape[-1] // 2 + 1, dims=-1)
        return model.forward_features(changed).pose.reshape(H, W, -1)[y, x]

    for y, x in {(0, 0), (H - 1, W - 1), (H // 2, W // 2)}:
        axes = zip((y, x), model.image_size, strict=True)
        (top, bottom), (left, right) = (_seen(field, position, side) for position, side in axes)
        outside = torch.ones(model.image_size, dtype=torch.bool)
        expected = child(y, x, ~outside)
        outside[top:bottom, left:right] = False
        torch.testing.assert_close(child(y, x, outside), expected, rtol=1e-9, atol=1e-12)
        rows, columns = slice(top, bottom), slice(left, right)
        for border in ((top, columns), (bottom - 1, columns), (rows, left), (rows, right - 1)):
            moved = outside.clone()
            moved[border] = True
            assert not torch.allclose(child(y, x, moved), expected, rtol=1e-9, atol=1e-12)


def _seen(field: ReceptiveField, position: int, side: int) -> tuple[int, int]:
    """First and last pixel plus one; with padding a part of the field is outside of the image."""
    start = field.start + field.stride * position
    return max(0, start), min(side, start + field.size)


def trace(name: str, **options: Any) -> None:
    """The trace holds all iterations of the class capsules, ends in the output, and changes nothing."""
    model = build(name, **options)
    images = inputs(model, 2)
    plain, traced = model(images), model(images, trace=True)
    torch.testing.assert_close(traced.lengths, plain.lengths)
    assert (traced.trace is not None) == (model.class_routing is not None)
    if traced.trace is None:
        return
    history, J = traced.trace, model.num_classes
    R, B, I, _ = history.couplings.shape
    assert history.couplings.shape == history.logits.shape == (R, B, I, J)
    assert history.activations.shape == (R, B, J)
    assert history.poses.shape[:3] == (R, B, J)
    assert history.votes.shape == (B, I, J, history.poses.shape[-1])
    torch.testing.assert_close(history.activations[-1], traced.lengths)
    torch.testing.assert_close(history.poses[-1], traced.poses)
    if model.grid is not None:
        assert history.grid == model.grid
        assert model.grid[0] * model.grid[1] * model.grid[2] == I


def rerouting(name: str, **options: Any) -> None:
    """Another routing in a copy: the weights are shared, the original is not changed."""
    model = build(name, **options)
    images = inputs(model, 2)
    before = model(images).lengths
    routed, original = model.routed_layers(), model.class_routing
    assert (original is None) == (not routed)
    if original is None:
        assert replacements(model) == []
        with pytest.raises(ValueError, match="no routing"):
            reroute(model, "uniform")
        return
    for other in replacements(model):
        copy = reroute(model, other)
        assert copy.class_routing is not None
        assert copy.class_routing.name == other
        assert copy(images).lengths.shape == before.shape
        assert all(a is b for a, b in zip(copy.parameters(), model.parameters(), strict=True))
    if original.iterates:
        once = reroute(model, iterations=1).class_routing
        assert once == get(original, iterations=1)
    assert model.class_routing == original
    assert torch.equal(model(images).lengths, before)


def compiles(name: str, **options: Any) -> None:
    model = build(name, **options)
    images = inputs(model, 2)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images).lengths, model(images).lengths)


def learns(name: str, **options: Any) -> None:
    """Eight inputs of two classes are learned."""
    model = build(name, num_classes=2, **options).train()
    images, labels = inputs(model, 8), torch.arange(8) % 2
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for step in range(60):
        value = model.loss(model(images, labels), labels, images, step=step).total
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < 0.7 * losses[0]


def hooks(name: str, **options: Any) -> None:
    """A hook on any module fires, on the fast paths too."""
    model = build(name, **options)
    images = inputs(model, 4)
    lists = (nn.ModuleList, nn.ParameterDict)  # which hold parts and are never called
    with kernels.using("fast"), torch.no_grad():
        for part, module in model.named_modules():
            if isinstance(module, lists):
                continue
            fired = []
            handle = module.register_forward_hook(lambda module, args, output, fired=fired: fired.append(module))
            model(images)
            handle.remove()
            assert fired, f"{part} of {name}"


CHECKS: Mapping[str, Callable[..., None]] = {
    check.__name__: check
    for check in (
        describes_itself,
        outputs,
        classes,
        neighbours,
        empty_batch,
        wrong_inputs,
        loss,
        margins,
        decoding,
        features,
        receptive_field,
        trace,
        rerouting,
        compiles,
        learns,
        hooks,
    )
}
