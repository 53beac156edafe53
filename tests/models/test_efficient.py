"""Efficient-CapsNet: the paper's parameter count, shapes, BatchNorm."""

import pytest
import torch

import capsnet
from capsnet.models.efficient import EfficientCapsNet, map_size


def small(**options) -> capsnet.Model:
    return capsnet.create_model(
        "efficient-capsnet", **({"channels": (4, 4, 4, 16), "decoder_widths": (8, 9)} | options)
    )


def test_parameter_count_is_the_papers() -> None:
    model = capsnet.create_model("efficient-capsnet", decoder=False)
    assert model.num_parameters() == 161_824
    assert {name: tuple(p.shape) for name, p in model.named_parameters() if p.ndim > 1} == {
        "features.0.weight": (32, 1, 5, 5),
        "features.3.weight": (64, 32, 3, 3),
        "features.6.weight": (64, 64, 3, 3),
        "features.9.weight": (128, 64, 3, 3),
        "depthwise.weight": (128, 1, 9, 9),
        "classes.weight": (16, 10, 16, 8),
        "classes.routing_params.prior": (16, 10),
    }


def test_prior_changes_couplings_of_16_children() -> None:
    model = capsnet.create_model("efficient-capsnet").eval()
    assert isinstance(model, EfficientCapsNet)
    images = torch.rand(2, 1, 28, 28)
    output = model(images, trace=True)
    assert output.poses is not None
    assert output.poses.shape == (2, 10, 16)
    assert output.trace is not None
    assert output.trace.couplings.shape == (1, 2, 16, 10)
    assert output.trace.grid == (1, 1, 16)
    with torch.no_grad():
        model.classes.routing_params["prior"][:, 3] += 5.0
    assert (model(images).lengths[:, 3] > output.lengths[:, 3]).all()


def test_primary_capsule_groups_neighbouring_channels() -> None:
    """Child i is channels 8 i to 8 i + 7 of the depthwise convolution: zeroing them zeroes this child only."""
    model = small()
    assert isinstance(model, EfficientCapsNet)
    seen: list[torch.Tensor] = []
    model.classes.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model.depthwise.weight[8:] = 0
        model.depthwise.bias[8:] = 0  # type: ignore[index]
    model.eval()(torch.rand(3, 1, 28, 28))
    assert seen[0].shape == (3, 2, 8)
    assert (seen[0][:, 0].norm(dim=-1) > 0).all()
    assert (seen[0][:, 1] == 0).all()


def test_batch_norm_mixes_examples_in_training_only() -> None:
    model = small().train()
    images = torch.rand(8, 1, 28, 28)
    for _ in range(5):
        model(images)  # so that the running statistics are not their initial values
    other = torch.cat([images[:1], torch.rand(7, 1, 28, 28) ** 3])
    assert not torch.allclose(model(images).lengths[0], model(other).lengths[0], atol=1e-5)
    model.eval()
    together = model(images)
    alone = model(images[:1])
    torch.testing.assert_close(together.lengths[:1], alone.lengths, rtol=0, atol=1e-6)
    assert together.reconstruction is not None
    assert alone.reconstruction is not None
    torch.testing.assert_close(together.reconstruction[:1], alone.reconstruction, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [(13, 13), (14, 40), (28, 28), (33, 21)])
def test_depthwise_kernel_covers_map_of_any_size(size: tuple[int, int]) -> None:
    model = small(image_size=size).train()
    assert isinstance(model, EfficientCapsNet)
    images, labels = torch.rand(1, 1, *size), torch.tensor([1])
    assert model.features(images).shape[2:] == model.depthwise.kernel_size == map_size(*size)
    model.loss(model(images, labels), labels, images).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_strides_change_map_size() -> None:
    """At 40 x 40 with a stride in the second convolution too: 36, 17, 15, 7; smaller images are refused."""
    model = small(image_size=(40, 40), strides=(1, 2, 1, 2), decoder=False)
    assert isinstance(model, EfficientCapsNet)
    assert model.features(torch.rand(2, 1, 40, 40)).shape[2:] == model.depthwise.kernel_size == (7, 7)
    assert model(torch.rand(2, 1, 40, 40)).lengths.shape == (2, 10)
    assert map_size(19, 19, (1, 2, 1, 2)) == (2, 2)
    with pytest.raises(ValueError, match="at least 19 x 19"):
        small(image_size=(18, 30), strides=(1, 2, 1, 2))


def test_efficient_cnn_has_same_convolutions() -> None:
    """157,728 parameters with capsules, 193,418 without, and equal features from equal weights."""
    options = {"image_size": (40, 40), "strides": (1, 2, 1, 2)}
    capsules = capsnet.create_model("efficient-capsnet", **options, decoder=False).eval()
    plain = capsnet.create_model("efficient-cnn", **options).eval()
    assert (capsules.num_parameters(), plain.num_parameters()) == (157_728, 193_418)
    images = torch.rand(2, 1, 40, 40)
    assert isinstance(capsules, EfficientCapsNet)
    assert isinstance(plain, capsnet.models.CNN)
    plain.features.load_state_dict(capsules.features.state_dict())
    torch.testing.assert_close(plain.features(images), capsules.features(images))


def test_cnn_strides_are_checked() -> None:
    with pytest.raises(ValueError, match="4 convolutions but 3 strides"):
        capsnet.create_model("efficient-cnn", strides=(1, 2, 1))
    with pytest.raises(ValueError, match="padded=False"):
        capsnet.create_model("efficient-cnn", padded=True)
    with pytest.raises(ValueError, match="too small to convolve 4 times"):
        capsnet.create_model("efficient-cnn", image_size=(10, 10))


@pytest.mark.parametrize("routing", capsnet.routing.list_routings())
def test_model_takes_any_routing(routing: str) -> None:
    assert small(routing=routing).eval()(torch.rand(2, 1, 28, 28)).lengths.shape == (2, 10)


def test_squash_applies_to_children_and_parents() -> None:
    one, other = small().eval(), small(squash="paper").eval()
    other.load_state_dict(one.state_dict())
    assert isinstance(other, EfficientCapsNet)
    assert other.classes.routing.options()["squash"] == "paper"
    images = torch.rand(2, 1, 28, 28)
    assert not torch.allclose(one(images).lengths, other(images).lengths)
    unit = small(squash="unit").eval()(images)
    assert unit.poses is not None
    torch.testing.assert_close(unit.poses.norm(dim=-1), torch.ones(2, 10))


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"images of 12 x 28 are too small .* at least 13 x 13"):
        small(image_size=(12, 28))
    with pytest.raises(ValueError, match="multiple of primary_dim"):
        small(primary_dim=7)
    with pytest.raises(ValueError, match="iterations"):
        small(iterations=3)  # self-attention has none
    with pytest.raises(ValueError, match="unknown squash"):
        small(squash="cube")
