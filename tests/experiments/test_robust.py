"""``decoupled`` and ``complex``: attacks on a network whose answer is known, and what their findings say."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from capsnet.experiments import _attacks, _robust, complex, decoupled
from capsnet.experiments._report import Measure, error_measure
from capsnet.experiments.lab import Lab
from capsnet.models import ScoringModel, create_model


class Brighter(ScoringModel):
    """Class 1 where the mean is above one half: a linear network, so the worst images are known."""

    def __init__(self) -> None:
        super().__init__((4, 4), 1, 2)
        self.multi_label = False
        linear = nn.Linear(16, 2)
        with torch.no_grad():
            linear.weight.copy_(torch.stack([torch.zeros(16), torch.full((16,), 1.0)]))
            linear.bias.copy_(torch.tensor([8.0, 0.0]))
        self.head = nn.Sequential(nn.Flatten(), linear)

    def forward_features(self, images: Tensor) -> Tensor:
        return images


def grey(*values: float) -> Tensor:
    return torch.tensor(values)[:, None, None, None].expand(-1, 1, 4, 4).clone()


@pytest.mark.parametrize(("steps", "start"), [(1, False), (10, True), (10, False)])
def test_attack_reaches_the_worst_corner_of_the_box(steps: int, start: bool) -> None:
    images, labels = grey(0.55, 0.8, 0.05, 0.97), torch.tensor([1, 1, 0, 0])
    moved = _attacks.attack(Brighter(), images, labels, 0.1, steps, start=start)
    worst = grey(0.45, 0.7, 0.15, 1.0)  # never outside [0, 1]
    torch.testing.assert_close(moved, worst)
    assert _attacks.accuracy(Brighter(), images, labels)["value"] == 0.75
    assert _attacks.accuracy(Brighter(), moved, labels)["value"] == 0.5


def test_attack_leaves_the_network_as_it_was() -> None:
    model = create_model("complex-cnn-small", channels=(2, 3), width=8).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    images, labels = torch.rand(3, 1, 28, 28), torch.tensor([0, 1, 2])
    first, second = (_attacks.attack(model, images, labels, 0.1, 2) for _ in range(2))
    assert torch.equal(first, second), "the random start is the same in each call"
    assert (first - images).abs().max() <= 0.1 + 1e-6
    assert model.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_bad_attacks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"steps=0 and eps=0\.1"):
        _attacks.attack(Brighter(), grey(0.5), torch.tensor([0]), 0.1, 0)
    with pytest.raises(ValueError, match="positive eps, got steps=1 and eps=0"):
        _attacks.attack(Brighter(), grey(0.5), torch.tensor([0]), 0, 1)


def test_noise_and_contrast() -> None:
    images = torch.rand(4, 1, 28, 28)
    noisy = _attacks.add_noise(images, 0.3)
    assert torch.equal(noisy, _attacks.add_noise(images, 0.3))
    assert noisy.min() >= 0
    assert noisy.max() <= 1
    inside = (noisy > 0) & (noisy < 1)
    assert (noisy - images)[inside].std().item() == pytest.approx(0.2, abs=0.1)
    torch.testing.assert_close(_attacks.lower_contrast(images, 0.3), 0.3 * images)


def errors(**percent: float) -> dict[str, Measure]:
    """Errors of 500 images by condition; what is not given is 50 %."""
    given = {key.replace("_", " "): value for key, value in percent.items()}
    return {
        key: error_measure(key, [{"value": 1 - given.get(key, 50.0) / 100, "n": 500}]) for key in _robust.CONDITIONS
    }


def test_masking_is_named_where_transfer_does_more_harm_than_own_gradients() -> None:
    ordinary = errors(one_step=60, PGD=95, transfer=40)
    table = {
        "ordinary": ordinary,
        "masking": errors(one_step=10, PGD=12, transfer=45),
        "robust": errors(one_step=30, PGD=50, transfer=30),
        "shallow": errors(one_step=30, PGD=97, transfer=40),
        "doubtful": errors(one_step=60, PGD=80, transfer=70),
    }
    sentences = _robust.attack_sentences(table, list(table)[1:])
    [masking] = [s for s in sentences if s.startswith("Gradient masking")]
    assert "masking misreads 12.0 %" in masking
    assert "45.0 % of those attacked on an ordinary network" in masking
    [robust] = [s for s in sentences if "more robust" in s]
    assert robust.endswith(": robust (PGD 50.0 %, transfer 30.0 %).")
    assert "doubtful" not in robust
    assert "masking" not in robust
    assert any(
        "The largest gap between one step and PGD: shallow (one step 30.0 %, PGD 97.0 %)" in s for s in sentences
    )
    assert any("one step is not enough to judge: shallow (one step 30.0 %, PGD 97.0 %)" in s for s in sentences)
    assert any("not counted as robust: doubtful (PGD 80.0 %, transfer 70.0 %)" in s for s in sentences)


def test_equal_networks_are_called_equal() -> None:
    table = {"ordinary": errors(), "same": errors()}
    sentences = _robust.findings(table, {"ordinary": 10, "same": 10}, "operators")
    assert sentences[0] == "All networks have 10 parameters."
    assert any("No gradient masking was found" in s for s in sentences)
    assert any("it is not different beyond chance for 1 of 1" in s for s in sentences)
    assert any("Under PGD it is higher for 0 and lower for 0 of 1" in s for s in sentences)


@pytest.mark.parametrize("budget", ["smoke", "quick", "paper"])
def test_networks_have_equal_parameters(budget: str, tmp_path: Path) -> None:
    for experiment in (decoupled, complex):
        lab = Lab(experiment.__name__.rpartition(".")[2], budget, 1, tmp_path)  # type: ignore[arg-type]
        variants = experiment.variants(lab)
        sizes = {name: create_model(one.model, **one.options).num_parameters() for name, one in variants.items()}
        assert max(sizes.values()) <= 1.02 * min(sizes.values()), sizes
        if experiment is decoupled:
            assert len(set(sizes.values())) == 1
    if budget != "smoke":
        assert len(decoupled.variants(Lab("decoupled", "quick", 1, tmp_path))) == 1 + 6 * 3


def test_real_twin_has_real_numbers_and_as_many_parameters() -> None:
    complex_, twin = (create_model("complex-cnn-small", real=real) for real in (False, True))
    assert twin.num_parameters() == pytest.approx(complex_.num_parameters(), rel=0.01)
    assert not any("imaginary" in name for name, _ in twin.named_parameters())
    assert twin(torch.rand(2, 1, 28, 28)).lengths.shape == (2, 10)
