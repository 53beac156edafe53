"""Models with 8-bit convolutions: their answers, what they leave alone, and models that cannot be quantised."""

import pytest
import torch

import capsnet
from capsnet.inference import int8, to_int8
from capsnet.kernels import int8_conv, using

needs_vnni = pytest.mark.skipif(not int8_conv.available(), reason="no VNNI, or no oneDNN")


@pytest.fixture(scope="module")
def digits() -> torch.Tensor:
    return capsnet.data.load("mnist", "test").batch(range(200)).images


@needs_vnni
def test_answers_are_those_of_the_model_up_to_rounding(digits: torch.Tensor) -> None:
    model = capsnet.load("capsnet-small-mnist")
    light = to_int8(model)
    assert isinstance(light.get_submodule("primary.conv"), int8.Int8Conv2d)
    assert type(light.get_submodule("conv")) is torch.nn.Conv2d  # too few weights per filter
    with torch.inference_mode():
        exact, rounded = model(digits), light(digits)
        assert not torch.equal(exact.lengths, rounded.lengths)
        torch.testing.assert_close(rounded.lengths, exact.lengths, rtol=0, atol=0.02)
        assert torch.equal(exact.lengths.argmax(1), rounded.lengths.argmax(1))
        one = light(digits[:1])
        torch.testing.assert_close(one.lengths, rounded.lengths[:1], rtol=0, atol=1e-5)
        with using("plain"):
            torch.testing.assert_close(light(digits[:3]).lengths, model(digits[:3]).lengths)


@needs_vnni
def test_model_itself_and_its_weights_stay_as_they_are(tmp_path) -> None:
    model = capsnet.load("capsnet-small-mnist")
    light = to_int8(model)
    assert not any(isinstance(part, int8.Int8Conv2d) for part in model.modules())
    assert {name: value.dtype for name, value in light.state_dict().items()} == {
        name: value.dtype for name, value in model.state_dict().items()
    }
    saved = capsnet.load(capsnet.save(light, tmp_path / "light.safetensors"))
    for name, value in saved.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])
    light(torch.rand(2, 1, 28, 28)).lengths.sum().backward()  # with gradients it is the ordinary convolution
    conv = light.get_submodule("primary.conv")
    assert isinstance(conv, int8.Int8Conv2d)
    assert conv.weight.grad is not None
    assert conv.weight.grad.abs().sum() > 0


@needs_vnni
def test_ensemble_is_quantised_member_by_member(digits: torch.Tensor) -> None:
    pair = capsnet.ensemble(["capsnet-small-mnist", "capsnet-small-mnist"])
    light = to_int8(pair)
    assert sum(isinstance(part, int8.Int8Conv2d) for part in light.modules()) == 2
    with torch.inference_mode():
        torch.testing.assert_close(light(digits[:20]).lengths, pair(digits[:20]).lengths, rtol=0, atol=0.02)


def test_model_without_deep_convolutions_is_refused() -> None:
    message = "matrix-capsnet-small cannot be quantised: none of its convolutions has 512 weights or more per filter"
    with pytest.raises(ValueError, match=message):
        to_int8(capsnet.create_model("matrix-capsnet-small"))


def test_cpu_without_the_instructions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "available", lambda: False)
    with pytest.raises(ValueError, match="this CPU has no instructions for sums of 8-bit products"):
        to_int8(capsnet.create_model("capsnet-small"))
