"""Every layer passes the suite, and capsule layers work on a backbone."""

import pytest
import torch
from torch import nn

import capsnet
from capsnet import layers, routing
from tests.layers import suite


@pytest.mark.parametrize("check", suite.CHECKS)
@pytest.mark.parametrize("case", suite.CASES)
def test_layer_keeps_contract(case: str, check: str) -> None:
    suite.CHECKS[check](suite.CASES[case])


def test_suite_knows_every_layer() -> None:
    kinds = {type(suite.build(case)).__name__ for case in suite.CASES.values()}
    public = {name: getattr(layers, name) for name in layers.__all__}
    modules = {name for name, one in public.items() if isinstance(one, type) and issubclass(one, nn.Module)}
    assert kinds == modules - {"Lengths", "Poses", "CReLU", "ZReLU"}


@pytest.mark.parametrize("name", ["dynamic", "em"])
def test_sequential_of_backbone_and_capsules_learns(name: str) -> None:
    """The example of docs/routings.md."""
    torch.manual_seed(0)
    route = routing.get(name, **routing.get(name).dense_options)
    squash = "unit" if route.wants_presence else "paper"
    backbone = nn.Sequential(nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU())
    network = nn.Sequential(
        backbone,  # (B, 16, 10, 10)
        layers.PrimaryCaps(16, types=4, dim=8, kernel_size=5, stride=2, squash=squash),
        layers.DenseCaps(children=3 * 3 * 4, parents=10, routing=route),
        layers.Lengths(),
    )
    images, labels = torch.rand(8, 1, 28, 28), torch.arange(8)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        loss = capsnet.functional.margin_loss(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert network(images).shape == (8, 10)
    assert losses[-1] < 0.9 * losses[0]


def test_sequential_of_convolutional_capsules() -> None:
    network = nn.Sequential(
        layers.PrimaryCaps(2, types=3, dim=4, kernel_size=3, flatten=False),
        layers.ConvCaps(3, 2, 3, 1, 4, 4),
        layers.ClassCaps(2, 5, 4, 6),
        layers.Lengths(),
    )
    assert network(torch.rand(2, 2, 15, 17)).shape == (2, 5)


def test_poses_module_leaves_presence_out() -> None:
    first, second = layers.DenseCaps(6, 4, 4, 5), layers.DenseCaps(4, 3, 5, 5)
    u = torch.randn(2, 6, 4)
    parents = first(u)
    assert torch.equal(nn.Sequential(first, layers.Poses(), second)(u).pose, second(parents.pose).pose)
    assert torch.equal(nn.Sequential(first, second)(u).pose, second(parents.pose, parents.act).pose)
