"""Models: the paper's parameter counts and shapes, losses, options, sizes."""

import pytest
import torch

import capsnet
from capsnet import functional as F
from capsnet import models
from capsnet.models import _registry, model_options
from tests.models.suite import build


def test_parameter_counts_are_the_papers() -> None:
    assert capsnet.create_model("capsnet").num_parameters() == 8_215_568
    assert capsnet.create_model("capsnet", decoder=False).num_parameters() == 6_804_224
    assert capsnet.create_model("capsnet", image_size=(36, 36)).num_parameters() == 11_361_808
    assert capsnet.create_model("baseline-cnn").num_parameters() == 35_445_522


def test_shapes_are_the_papers() -> None:
    model = capsnet.create_model(
        "capsnet", image_size=(28, 28), in_channels=1, num_classes=10, routing="dynamic", iterations=3, decoder=True
    )
    output = model(torch.rand(2, 1, 28, 28), trace=True)
    assert output.lengths.shape == (2, 10)
    assert output.poses is not None
    assert output.poses.shape == (2, 10, 16)
    assert output.trace is not None
    assert output.trace.couplings.shape == (3, 2, 1152, 10)
    assert output.trace.grid == (6, 6, 32)
    assert {name: tuple(p.shape) for name, p in model.named_parameters() if p.ndim > 1} == {
        "conv.weight": (256, 1, 9, 9),
        "primary.conv.weight": (256, 256, 9, 9),
        "classes.weight": (1152, 10, 16, 8),
        "decoder.layers.0.weight": (512, 160),
        "decoder.layers.2.weight": (1024, 512),
        "decoder.layers.4.weight": (784, 1024),
    }


def test_loss_is_margin_plus_summed_reconstruction(tiny: capsnet.Model) -> None:
    images, labels = torch.rand(3, 1, 20, 22), torch.tensor([0, 1, 2])
    output = tiny(images, labels)
    total, parts = tiny.loss(output, labels, images)
    assert output.reconstruction is not None
    assert output.poses is not None
    # no softmax, which could not reach the margins
    torch.testing.assert_close(output.lengths, output.poses.norm(dim=2))
    torch.testing.assert_close(parts["margin"], F.margin_loss(output.lengths, labels))
    expected = 0.0005 * (output.reconstruction - images).square().sum() / 3
    torch.testing.assert_close(parts["reconstruction"], expected)
    torch.testing.assert_close(total, parts["margin"] + expected)


def test_longest_capsule_is_decoded_without_labels(tiny: capsnet.Model) -> None:
    images = torch.rand(4, 1, 20, 22)
    with torch.no_grad():
        for weight in tiny.parameters():
            weight.mul_(3)  # so that classes are drawn differently
    output = tiny(images)
    assert output.poses is not None
    assert output.reconstruction is not None
    longest = output.lengths.argmax(1)
    torch.testing.assert_close(output.reconstruction, tiny.decode(output.poses, longest))
    wrong = tiny(images, (longest + 1) % 3).reconstruction
    assert (output.reconstruction - wrong).abs().amax((1, 2, 3)).min() > 1e-3


def test_decode_gives_one_picture_per_chosen_capsule(tiny: capsnet.Model) -> None:
    poses = torch.randn(2, 3, 16)
    both = tiny.decode(poses, torch.tensor([[0, 2], [1, 1]]))
    assert both.shape == (2, 2, 1, 20, 22)
    torch.testing.assert_close(both[:, 0], tiny.decode(poses, torch.tensor([0, 1])))
    torch.testing.assert_close(both[:, 1], tiny.decode(poses, torch.tensor([2, 1])))


def test_iterations_reach_routing() -> None:
    one, three = build("capsnet", iterations=1), build("capsnet", iterations=3)
    three.load_state_dict(one.state_dict())
    images = torch.rand(2, 1, 28, 28)
    assert not torch.equal(one(images).lengths, three(images).lengths)
    trace = one(images, trace=True).trace
    assert trace is not None
    assert len(trace.couplings) == 1


def test_blank_images_have_finite_gradients(tiny: capsnet.Model) -> None:
    """With zero biases a blank image gives zero vectors, where a naive squash gives NaN."""
    with torch.no_grad():
        for name, p in tiny.named_parameters():
            if name.endswith("bias"):
                p.zero_()
    images, labels = torch.zeros(2, 1, 20, 22), torch.tensor([0, 1])
    tiny.loss(tiny(images, labels), labels, images).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in tiny.parameters())


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(2, 3, 20, 22), r"expected images of shape \(B, 1, 20, 22\), got \(2, 3, 20, 22\)"),
        (torch.rand(20, 22), "expected images of shape"),
        (torch.zeros(2, 1, 20, 22, dtype=torch.uint8), "divide pixels by 255"),
        (torch.rand(2, 1, 20, 22, dtype=torch.float64), "expected images of torch.float32"),
    ],
)
def test_wrong_images_are_refused(tiny: capsnet.Model, images: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(images)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown model 'capsnett'.*'capsnet'"):
        capsnet.create_model("capsnett")
    with pytest.raises(ValueError, match=r"'iterations'"):
        capsnet.create_model("capsnet", iteration=3)
    with pytest.raises(ValueError, match="at least 17 x 17"):
        capsnet.create_model("capsnet", image_size=(16, 28))
    for wrong in ({"num_classes": 0}, {"pose_dim": -3}, {"pose_dim": "abc"}, {"kernel_size": 0}, {"image_size": 28},
                  {"image_size": (28.5, 28)}, {"decoder": "no"}, {"reconstruction_weight": float("nan")},
                  {"decoder_widths": 5}, {"iterations": True}, {"routing": 3}):  # fmt: skip
        with pytest.raises(ValueError, match=f"option '{next(iter(wrong))}' of capsnet must be .*got "):
            capsnet.create_model("capsnet", **wrong)
    with pytest.raises(ValueError, match="unknown routing"):
        capsnet.create_model("capsnet", routing="static")
    with pytest.raises(ValueError, match="too small to pool"):
        capsnet.create_model("cnn-small", image_size=(4, 4))
    with pytest.raises(ValueError, match="has no decoder"):
        capsnet.create_model("capsnet-small", decoder=False).decode(torch.rand(1, 10, 16), torch.tensor([0]))


@pytest.mark.parametrize(("name", "options"), [("cnn-small", {}), ("decoupled-cnn-small", {"length": None})])
def test_angle_without_length_is_refused(name: str, options: dict) -> None:
    with pytest.raises(ValueError, match="set length, too, got angle='linear' alone"):
        capsnet.create_model(name, angle="linear", **options)
    assert capsnet.create_model(name, angle="cosine", **options).config["length"] is None  # as in files of weights


def test_options_without_annotation_have_the_type_of_their_default(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(capsnet.Model):
        def __init__(self, image_size=(28, 28), in_channels=1, num_classes=10, width=8, start: object = None):
            super().__init__(image_size, in_channels, num_classes)
            self.linear = torch.nn.Linear(width, num_classes)

    monkeypatch.setattr(_registry, "_MODELS", dict(_registry._MODELS))
    models.register("plain", Plain, "Without annotations")
    assert capsnet.create_model("plain", image_size=[8, 8], width=4).config["image_size"] == (8, 8)
    with pytest.raises(ValueError, match="option 'width' of plain must be a valid integer, got 'wide'"):
        capsnet.create_model("plain", width="wide")


def test_labels_of_wrong_batch_size_are_refused(tiny: capsnet.Model) -> None:
    with pytest.raises(ValueError, match="4 examples but 1 labels"):
        tiny(torch.rand(4, 1, 20, 22), torch.tensor([0]))


def test_empty_batch_gives_empty_output(tiny: capsnet.Model) -> None:
    output = tiny(torch.rand(0, 1, 20, 22))
    assert output.lengths.shape == (0, 3)


@pytest.mark.parametrize("name", ["capsnet", "capsnet-image", "efficient-capsnet"])
@pytest.mark.parametrize("squash", ["paper", "unit"])
def test_class_layer_gets_presence_with_unit_squash(name: str, squash: str) -> None:
    model, heard = build(name, squash=squash), []
    model.get_submodule("classes").register_forward_pre_hook(lambda module, args: heard.append(args))
    output = model(model.example_inputs(3))
    children, act = heard[0]
    if squash == "paper":
        assert act is None
        return
    assert act.shape == children.shape[:2]
    assert ((act >= 0) & (act < 1)).all()
    assert act.std() > 0
    torch.testing.assert_close(model.get_submodule("classes")(children, act).act, output.lengths)


def test_steepest_squash_trains_on_short_vectors() -> None:
    """Primary capsules divided by 32, as in the authors' code: |s|^8 is below the smallest float."""
    model = build("capsnet", squash="power:8", primary_scale=1 / 32).train()
    images, labels = torch.rand(4, 1, 28, 28), torch.arange(4)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model.loss(model(images, labels), labels, images).total.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
    assert model(images).lengths.isfinite().all()


@pytest.mark.parametrize("name", capsnet.list_models())
def test_decode_without_decoder_suggests_option(name: str) -> None:
    can = "decoder" in model_options(name)
    model = build(name, **({"decoder": False} if can else {}))
    with pytest.raises(ValueError, match=rf"^{name} has no decoder{': build it with decoder=True' if can else ''}$"):
        model.decode(torch.rand(1, model.num_classes, 16), torch.tensor([0]))


def test_most_present_capsule_is_decoded_though_another_is_longer() -> None:
    """With EM the presence is no length: parents of votes of another size are longer without being more present."""
    model = build("capsnet", routing="em", num_classes=3)
    with torch.no_grad():
        model.classes.weight[:, 0].mul_(9)  # type: ignore[operator,union-attr]
        output = model(torch.rand(3, 1, 28, 28))
    assert output.poses is not None
    present, longest = output.lengths.argmax(dim=1), output.poses.norm(dim=-1).argmax(dim=1)
    assert (present != longest).all()
    torch.testing.assert_close(output.reconstruction, model.decode(output.poses, present))
    assert not torch.allclose(output.reconstruction, model.decode(output.poses, longest))
