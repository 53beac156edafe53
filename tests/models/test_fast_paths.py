"""Whole models on the fast and on the plain paths: the same numbers, the same parameters, the same training."""

import copy

import pytest
import torch

import capsnet
from capsnet import kernels
from capsnet.kernels import cost


def small(**options) -> capsnet.Model:
    options = {"conv_channels": 16, "primary_types": 4, "decoder_widths": (32, 48)} | options
    return capsnet.create_model("capsnet", **options)


def train(model: capsnet.Model, path, images: torch.Tensor, labels: torch.Tensor, steps: int) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    losses = []
    with kernels.using(path):
        for _ in range(steps):
            loss = model.loss(model(images, labels), labels, images).total
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    "options", [{}, {"routing_options": {"bias": True, "leaky": True, "gradient": "last"}}], ids=str
)
def test_training_agrees_on_both_paths(options: dict) -> None:
    model = small(**options)
    plain_model = copy.deepcopy(model)
    digits = capsnet.data.load("mnist", "train").batch(range(32))
    fast = train(model, "fast", digits.images, digits.targets, 20)
    plain = train(plain_model, "plain", digits.images, digits.targets, 20)
    assert fast[-1] < 0.8 * fast[0]  # it does learn
    assert fast == pytest.approx(plain, abs=1e-4)
    images = torch.rand(5, 1, 28, 28)
    with torch.inference_mode(), kernels.using("plain"):
        torch.testing.assert_close(model(images).lengths, plain_model(images).lengths, rtol=0, atol=1e-3)


@pytest.mark.parametrize("size", [(28, 28), (21, 30), (17, 17), (36, 36)])
@pytest.mark.parametrize("B", [1, 3, 33])
def test_outputs_and_gradients_agree_on_both_paths(size: tuple[int, int], B: int) -> None:
    model = small(image_size=size, in_channels=2, num_classes=3)
    images, labels = torch.rand(B, 2, *size), torch.arange(B) % 3
    results = {}
    for path in ("fast", "plain"):
        with kernels.using(path):
            model.zero_grad()
            output = model(images, labels)
            model.loss(output, labels, images).total.backward()
            with torch.inference_mode():
                quiet = model(images).lengths
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        results[path] = [output.lengths.detach(), quiet, *gradients]
    for fast, plain in zip(results["fast"], results["plain"], strict=True):
        scale = max(float(plain.abs().max()), 1e-12)
        torch.testing.assert_close(fast / scale, plain / scale, rtol=0, atol=2e-5)


def test_paper_network_takes_fast_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    model = capsnet.create_model("capsnet")
    images = torch.zeros(128, 1, 28, 28)
    first, second = model.get_parameter("conv.weight"), model.get_parameter("primary.conv.weight")
    with kernels.using("auto"):
        assert cost.choose_stem(images, first, second, (2, 2), backward=True) is not None
        assert cost.choose_stem(images[:1], first, second, (2, 2), backward=False, cached=True) is None
        children = torch.zeros(128, 1152, 8)
        assert cost.choose_routing(children, model.get_parameter("classes.weight"), None, None) == "chunks"
    with kernels.using("plain"):
        assert cost.choose_stem(images, first, second, (2, 2), backward=True) is None


def test_both_paths_have_same_weights() -> None:
    model = small()
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}
    images = torch.rand(40, 1, 28, 28)
    with torch.inference_mode(), kernels.using("fast"):
        before = model(images).lengths
        other = small()
        other(images)  # it has used its own weights, and must not keep them
        other.load_state_dict(model.state_dict())
        torch.testing.assert_close(other(images).lengths, before)
        torch.testing.assert_close(copy.deepcopy(model)(images).lengths, before)


def test_compiled_and_exported_models_use_plain_path() -> None:
    model = small().eval()
    images = torch.rand(4, 1, 28, 28)
    with torch.no_grad(), kernels.using("plain"):
        expected = model(images).lengths
    with torch.no_grad(), kernels.using("fast"):
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(images).lengths, expected)
        program = torch.export.export(model, (images,))
        torch.testing.assert_close(program.module()(images).lengths, expected)
        assert any("conv2d" in str(node.target) for node in program.graph.nodes)


def test_hooks_on_convolutions_fire() -> None:
    model, seen = small(), []
    model.get_submodule("conv").register_forward_hook(lambda module, args, output: seen.append(tuple(output.shape)))
    with kernels.using("fast"):
        model(torch.rand(4, 1, 28, 28))
    assert seen == [(4, 16, 20, 20)]


@pytest.mark.parametrize("path", ["plain", "fast"])
@pytest.mark.parametrize("first", [{}, {"stride": 2}, {"padding": 1}, {"dilation": 2}, {"bias": False}], ids=str)
def test_other_first_convolutions_give_same_features(first: dict, path) -> None:
    model = capsnet.create_model("capsnet", conv_channels=6, kernel_size=5, primary_types=2, primary_scale=0.5)
    model.conv = torch.nn.Conv2d(1, 6, 5, **first)
    images = torch.rand(3, 1, 28, 28)
    with kernels.using("plain"), torch.no_grad():
        expected = model.get_submodule("primary")(model.conv(images).relu()).pose
    with kernels.using(path), torch.no_grad():
        torch.testing.assert_close(model.forward_features(images).pose, expected, rtol=1e-4, atol=1e-5)
