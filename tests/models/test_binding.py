"""Networks whose phases bind pixels to objects."""

from itertools import pairwise

import pytest
import torch

import capsnet
from capsnet.layers import KuramotoLayer
from capsnet.models import AKOrN, AKOrNPyramid, BindingModel, OscillatorModel
from capsnet.models._binding import mask_loss
from capsnet.models.akorn import Quarters, enlarged
from capsnet.training.objective import Objective

NAMES = [name for name in capsnet.list_models() if isinstance(capsnet.create_model(name), BindingModel)]
SMALL = {
    "akorn-small": {"channels": 2, "depth": 1, "steps": 2, "redraw": True},
    "akorn-pyramid": {"channels": 2, "steps": 2, "stem": (4, 4, 8), "blocks": (1, 1), "redraw": True},
    "rotating-small": {"channels": (3,)},
}


def build(name: str, **options) -> BindingModel:
    torch.manual_seed(0)
    model = capsnet.create_model(name, **SMALL[name], **options)
    assert isinstance(model, BindingModel)
    return model


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(28, 28), (13, 18)])
def test_every_pixel_has_unit_phases(name: str, size: tuple[int, int]) -> None:
    model = build(name, image_size=size).eval()
    with torch.no_grad():
        phases, picture, strengths = model.bind(torch.rand(2, 1, *size))
    assert phases.shape[0] == 2
    assert phases.shape[3:] == size
    lengths = phases.square().sum(dim=2).sqrt()
    assert (((lengths - 1).abs() < 1e-6) | (lengths == 0)).all()
    assert picture is not None
    assert picture.shape == (2, 1, *size)
    assert (strengths is None) == isinstance(model, OscillatorModel)  # oscillators have length 1
    assert strengths is None or ((strengths >= 0).all() and strengths.shape == picture.shape)
    assert ((picture >= 0) & (picture <= 1)).all()


@pytest.mark.parametrize("name", NAMES)
def test_unsupervised_classifier_only_reads(name: str) -> None:
    model = build(name, supervised=False).train()
    labels = torch.tensor([1, 2, 3])
    output = model(torch.rand(3, 1, 28, 28))
    parts = model.loss(output, labels, torch.rand(3, 1, 28, 28)).parts
    head = set(model.head.parameters())
    inputs = list(model.parameters())
    gradients = torch.autograd.grad(parts["cross_entropy"], inputs, allow_unused=True)
    assert all((p in head) == (g is not None) for p, g in zip(inputs, gradients, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_pixels_are_hidden_in_training_only(name: str) -> None:
    model = build(name, hidden=0.9).eval()
    images = torch.rand(4, 1, 28, 28)
    torch.testing.assert_close(model(images).reconstruction, model.bind(images).picture)
    seen = []
    encode = model.encode
    model.encode = lambda given: (seen.append(given), encode(given))[1]  # type: ignore[method-assign]
    model.train()(images)
    assert 0.8 < (seen[0] == 0).float().mean() < 0.97


@pytest.mark.parametrize("name", NAMES)
def test_loss_of_objects_alone_is_that_of_their_sum(name: str) -> None:
    model = build(name, mask_weight=2.0).eval()
    alone = torch.rand(3, 2, 1, 28, 28)
    whole, labels = alone.sum(dim=1).clamp(max=1), torch.tensor([0, 1, 2])
    output = model(whole)
    told, plain = (model.loss(output, labels, images).parts for images in (alone, whole))
    torch.testing.assert_close(told["reconstruction"], plain["reconstruction"])
    assert output.phases is not None
    torch.testing.assert_close(told["masks"], 2 * mask_loss(output.phases, alone).mean())
    assert "masks" not in plain


def test_bf16_objective_keeps_phases() -> None:
    model = build("rotating-small", mask_weight=1.0)
    alone, labels = torch.rand(2, 2, 1, 28, 28), torch.tensor([0, 1])
    total, parts = Objective(model, "bf16")(alone.sum(dim=1).clamp(max=1), labels, labels, alone, None, 0)
    assert total.dtype == torch.float32
    assert parts["masks"].isfinite()


def test_mask_loss_by_hand() -> None:
    """Two pixels of each of two objects, one of both, one of none; one oscillator on the circle."""
    alone = torch.tensor([[[1.0, 1, 0, 0, 1, 0]], [[0, 0, 1, 1, 1, 0]]]).reshape(1, 2, 1, 1, 6)

    def loss(*angles: float) -> float:
        phase = torch.tensor(angles, dtype=torch.float64) * torch.pi
        return float(mask_loss(torch.stack([phase.cos(), phase.sin()]).reshape(1, 1, 2, 1, 6), alone.double()))

    assert loss(0, 0, 1, 1, 0.3, 0.7) == pytest.approx(0)  # in phase within, opposite between
    assert loss(0, 0, 0, 0, 0.3, 0.7) == pytest.approx(2)  # one phase for all: (1 + 1)^2 / 2
    assert loss(0, 0, 0.5, 0.5, 0, 0) == pytest.approx(0.5)
    spread = 1 - (1 + 2**-0.5) / 2  # the first object's pixels are a quarter turn apart: |m| = 1 / sqrt 2
    assert loss(0.25, -0.25, 1, 1, 0, 0) == pytest.approx(spread)


def test_even_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="kernel_size must be odd, got 4"):
        capsnet.create_model("rotating-small", kernel_size=4)


def test_akorn_couples_alike_in_both_directions_on_request() -> None:
    model = capsnet.create_model("akorn-small", channels=2, depth=2, kernel_size=3, symmetric=True).eval()
    assert isinstance(model, AKOrN)
    basis = torch.eye(8 * 3 * 4).reshape(-1, 2, 4, 3, 4)
    for layer in model.layers:
        assert isinstance(layer, KuramotoLayer)
        matrix = layer.couple(basis).flatten(1)
        torch.testing.assert_close(matrix, matrix.T)
    with pytest.raises(ValueError, match='cannot be symmetric: set coupling="conv"'):
        capsnet.create_model("akorn-small", coupling="attention", symmetric=True)


def test_akorn_has_as_many_heads_of_attention_as_asked_for() -> None:
    odd = {"channels": 3, "n": 3, "coupling": "attention", "image_size": (8, 8)}
    with pytest.raises(ValueError, match="4 heads cannot divide 9 channels: set heads to a divisor of 9"):
        capsnet.create_model("akorn-small", **odd)
    model = capsnet.create_model("akorn-small", **odd, heads=3).eval()
    assert model(model.example_inputs(2)).lengths.shape == (2, 10)


def test_akorn_learns_natural_frequencies_on_request() -> None:
    model = build("akorn-small", frequencies=True).train()
    images, labels = torch.rand(4, 1, 28, 28), torch.arange(4)
    model.loss(model(images), labels, images).total.backward()
    rates = {name: p for name, p in model.named_parameters() if name.endswith("rates")}
    assert list(rates) == ["layers.0.rates"]
    assert all(p.grad is not None and (p.grad != 0).all() for p in rates.values())
    assert not any(name.endswith("rates") for name, _ in build("akorn-small").named_parameters())


def test_pyramid_hands_phases_down() -> None:
    """With steps that hardly move, the finest oscillators stay where the coarsest began, 8 x 8 pixels alike."""
    model = build("akorn-pyramid", gamma=1e-6, image_size=(20, 20)).eval()
    assert isinstance(model, AKOrNPyramid)
    coarse, middle, fine = (one.x for one in model.oscillate(torch.rand(2, 1, 20, 20)))
    assert [one.shape[3:] for one in (coarse, middle, fine)] == [(3, 3), (5, 5), (10, 10)]
    torch.testing.assert_close(middle, enlarged(coarse, 2, 5, 5), atol=1e-4, rtol=0)
    torch.testing.assert_close(fine, enlarged(coarse, 4, 10, 10), atol=1e-4, rtol=0)


def test_pyramid_starts_from_the_stem_of_the_plain_network() -> None:
    small = {"blocks": (1, 1), "image_size": (20, 20)}
    plain = capsnet.create_model("residual-cnn", channels=(4, 4, 8), **small)
    ours = capsnet.create_model("akorn-pyramid", stem=(4, 4, 8), **small)
    mine, theirs = ours.state_dict(), plain.state_dict()
    shared = {name for name in theirs if name.startswith("features.")}
    assert shared == {name for name in mine if name.startswith("features.")}
    assert all(mine[name].shape == theirs[name].shape for name in shared)


def test_pyramid_learns_masks() -> None:
    """Two bars, always the same: after some steps pixels of one are in phase, and of the other in antiphase."""
    alone = torch.zeros(4, 2, 1, 16, 16)
    alone[:, 0, 0, 2:14, 3], alone[:, 1, 0, 2:14, 11] = 1, 1
    model = build("akorn-pyramid", image_size=(16, 16), mask_weight=1.0).train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(40):
        loss = model.loss(model(alone.sum(dim=1)), torch.tensor([0, 1, 2, 3]), alone).parts["masks"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.2  # 2 for one phase everywhere, and about 1 for phases at random


@pytest.mark.parametrize("size", [(15, 15), (6, 7), (1, 1), (3, 2), (14, 14)])
def test_quarters_are_what_adaptive_pooling_gives(size: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *size)
    assert torch.equal(Quarters()(x), torch.nn.AdaptiveMaxPool2d(2)(x))


def test_rotating_features_begin_with_phases() -> None:
    """Pictures enter as one component: without a bias nothing would ever leave that line, and no pixel had a phase."""
    phases = build("rotating-small").eval().bind(torch.rand(2, 1, 28, 28)).phases  # (B, C, n, H, W)
    assert phases[:, :, 1:].abs().mean() > 1e-2


def test_layers_of_oscillators_start_at_phases_of_their_own() -> None:
    model = capsnet.create_model("akorn-small", channels=2, depth=3).eval()
    assert isinstance(model, AKOrN)
    starts = [layer.start(torch.empty(1, 2, 4, 5, 5)) for layer in model.layers]  # type: ignore[operator]
    assert not any(torch.allclose(one, other) for one, other in pairwise(starts))
