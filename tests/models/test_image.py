"""The image network: sizes, parameters, reconstruction weight, both views of the stem."""

import pytest
import torch

import capsnet
from capsnet import functional as F
from capsnet.layers.stem import both_views
from capsnet.models.image import ImageCapsNet

SMALL = {"width": 16, "primary_types": 2, "decoder_width": 8}


def test_parameters_hardly_depend_on_image_size() -> None:
    counts = [capsnet.create_model("capsnet-image", image_size=(s, s)).num_parameters() for s in (32, 64, 128, 224)]
    assert max(counts) < 1.1 * min(counts[:3])
    assert counts[3] < 1.1 * max(counts[:3])


@pytest.mark.parametrize(("size", "weight"), [((28, 28), 0.0005), ((56, 28), 0.00025)])
def test_reconstruction_weight_is_per_784_pixels(size: tuple[int, int], weight: float) -> None:
    model = capsnet.create_model("capsnet-image", image_size=size, in_channels=1, **SMALL).eval()
    images, labels = torch.rand(2, 1, *size), torch.tensor([0, 1])
    output = model(images, labels)
    assert output.reconstruction is not None
    _, parts = model.loss(output, labels, images)
    torch.testing.assert_close(parts["margin"], F.margin_loss(output.lengths, labels))
    expected = weight * (output.reconstruction - images).square().sum() / 2
    torch.testing.assert_close(parts["reconstruction"], expected)


def test_grid_agrees_with_trace() -> None:
    model = capsnet.create_model("capsnet-image", image_size=(48, 96), **SMALL).eval()
    output = model(torch.rand(2, 3, 48, 96), trace=True)
    assert output.trace is not None
    assert output.trace.grid == (6, 6, 2)
    assert output.trace.couplings.shape == (3, 2, 6 * 6 * 2, 2)
    assert output.poses is not None
    assert model.decode(output.poses, torch.tensor([[0, 1], [1, 1]])).shape == (2, 2, 3, 48, 96)


def test_receptive_field_follows_the_strides_of_the_stem() -> None:
    """Worked out by hand: two blocks of stride 2 on an image of 28; a first convolution of stride 2 above 80 pixels."""
    field = capsnet.create_model("capsnet-image", image_size=(28, 28), **SMALL).receptive_field
    assert field == (1 + 2 + (2 + 4) + (4 + 8), 4, -(1 + (1 + 2) + (2 + 4)))
    wider = capsnet.create_model("capsnet-image", image_size=(28, 28), kernel_size=3, **SMALL).receptive_field
    assert wider == (21 + 2 * 4, 4, -10)
    assert capsnet.create_model("capsnet-image", image_size=(96, 90), **SMALL).receptive_field == (87, 16, -43)
    assert capsnet.create_model("capsnet-image", image_size=(48, 96), **SMALL).receptive_field is None  # other strides


def test_large_blank_image_has_finite_gradients() -> None:
    model = capsnet.create_model("capsnet-image", image_size=(224, 224), **SMALL).train()
    images, labels = torch.zeros(2, 3, 224, 224), torch.tensor([0, 1])
    model.loss(model(images, labels), labels, images).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_stem_sees_image_and_standardised_image() -> None:
    images = torch.rand(2, 3, 12, 10)
    darker = 0.2 + 0.5 * images
    raw, standard = both_views(images).chunk(2, dim=1)
    torch.testing.assert_close(raw, images - 0.5)
    torch.testing.assert_close(standard.mean((2, 3)), torch.zeros(2, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(both_views(darker)[:, 3:], standard, atol=0.15, rtol=0)
    assert both_views(torch.full((1, 3, 5, 5), 0.7))[:, 3:].abs().max() < 1e-3


def test_evaluation_does_not_depend_on_batch() -> None:
    model = capsnet.create_model("capsnet-image", image_size=(32, 32), **SMALL).train()
    images = torch.rand(6, 3, 32, 32)
    for _ in range(3):
        model(images)
    model.eval()
    torch.testing.assert_close(model(images).lengths[:1], model(images[:1]).lengths, rtol=0, atol=1e-6)


def test_options_reach_layers() -> None:
    options = SMALL | {"routing": "kmeans", "iterations": 2, "routing_options": {"distance": "inner"}, "squash": "exp"}
    model = capsnet.create_model("capsnet-image", decoder=False, **options).eval()
    assert isinstance(model, ImageCapsNet)
    assert model.decoder is None
    assert model.primary.squash.name == "exp"
    routing_options = model.classes.routing.options()
    assert (routing_options["iterations"], routing_options["distance"], routing_options["squash"]) == (
        2,
        "inner",
        "exp",
    )
    assert model(torch.rand(1, 3, 64, 64)).reconstruction is None
    with pytest.raises(ValueError, match=r"images of 4 x 64 leave a map of 4 x 8, too small .* kernel_size 5"):
        capsnet.create_model("capsnet-image", image_size=(4, 64), kernel_size=5)


@pytest.mark.parametrize(("size", "channels", "classes"), [((28, 28), 1, 2), ((64, 48), 3, 3), ((224, 224), 3, 10)])
def test_plain_twin_has_as_many_parameters(size: tuple[int, int], channels: int, classes: int) -> None:
    options = {"image_size": size, "in_channels": channels, "num_classes": classes, "width": 64}
    capsules = capsnet.create_model("capsnet-image", decoder=False, **options)
    twin = capsnet.create_model("cnn-image", **options)
    assert twin.num_parameters() == pytest.approx(capsules.num_parameters(), rel=0.005)
    count = [sum(weight.numel() for weight in model.stem.parameters()) for model in (capsules, twin)]  # type: ignore
    assert count[0] == count[1]
