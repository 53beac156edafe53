"""Homogeneous vector capsules and Heinsen routing against loops over single capsules."""

import pytest
import torch
from torch import Tensor

from capsnet import routing
from capsnet.layers import DenseCaps, HomogeneousCaps, SharedCaps
from tests.reference import unrouted

I, J, D = 6, 3, 4


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


VOTES, ACT = 1.5 * normal(0, I, J, D), normal(1, I).sigmoid()


def test_homogeneous_equals_reference_loop() -> None:
    weight = 0.5 * normal(2, I, J, D)
    routed = routing.get("homogeneous")(VOTES[None], ACT[None], params={"weight": weight}, trace=True)
    expected = unrouted.homogeneous(VOTES.tolist(), ACT.tolist(), (1 + weight).tolist())
    torch.testing.assert_close(routed.pose[0], torch.tensor(expected, dtype=torch.float64))
    assert routed.trace is not None
    torch.testing.assert_close(routed.trace.couplings[0, 0], (1 + weight).mean(dim=-1) / J)


def test_homogeneous_without_weights_is_uniform() -> None:
    plain = routing.get("homogeneous")(VOTES[None], ACT[None])
    torch.testing.assert_close(plain.pose, routing.get("uniform")(VOTES[None], ACT[None]).pose)


def test_homogeneous_keeps_dimensions_apart() -> None:
    """A change of one number of the votes changes that number of the sum only: the direction of the rest stays."""
    weight, changed = normal(2, I, J, D), VOTES.clone()
    changed[:, :, 0] += 1
    first, second = (routing.get("homogeneous")(v[None], params={"weight": weight}).pose[0] for v in (VOTES, changed))
    rest = [pose[:, 1:] / pose[:, 1:].norm(dim=1, keepdim=True) for pose in (first, second)]
    torch.testing.assert_close(rest[0], rest[1])


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_heinsen_equals_reference_loop(iterations: int) -> None:
    use, ignore = 0.5 * normal(2, I, J), 0.5 * normal(3, I, J)
    route = routing.get("heinsen", iterations=iterations)
    readout, bias = normal(4, D), normal(5, 1)
    params = {"use": use, "ignore": ignore, "readout": readout, "readout_bias": bias}
    routed = route(VOTES[None], ACT[None], params=params, trace=True)
    poses, couplings = unrouted.heinsen(VOTES.tolist(), ACT.tolist(), (1 + use).tolist(), ignore.tolist(), iterations)
    expected = torch.tensor(poses, dtype=torch.float64)
    torch.testing.assert_close(routed.pose[0], expected)
    torch.testing.assert_close(routed.act[0], (expected @ readout + bias).sigmoid())
    assert routed.trace is not None
    torch.testing.assert_close(routed.trace.couplings[-1, 0], torch.tensor(couplings, dtype=torch.float64))


def test_heinsen_subtracts_what_is_ignored() -> None:
    """With cost 1 the equal couplings of one iteration leave 1 / J - (1 - 1 / J) of each vote."""
    route = routing.get("heinsen", iterations=1)
    plain, costly = (route(VOTES[None], params={"ignore": torch.full((I, J), cost)}) for cost in (0.0, 1.0))
    torch.testing.assert_close(costly.pose, -plain.pose, atol=1e-4, rtol=1e-3)  # J = 3: a factor of -1


def test_layers_own_the_weights_that_do_not_depend_on_the_number_of_children() -> None:
    assert DenseCaps(I, J, 5, D, "homogeneous").routing_params["weight"].shape == (I, J, D)
    assert "weight" not in SharedCaps(J, 5, D, "homogeneous").routing_params
    assert set(SharedCaps(J, 5, D, "heinsen").routing_params.keys()) == {"readout", "readout_bias"}


def test_homogeneous_layer_equals_reference_loop() -> None:
    """The authors' votes are the children themselves: the loop with the same child for all parents."""
    layer, u = HomogeneousCaps(I, J, D, dtype=torch.float64), normal(6, I, D)
    same = u[:, None].expand(I, J, D)
    expected = unrouted.homogeneous(same.tolist(), ACT.tolist(), layer.weight.tolist())
    torch.testing.assert_close(layer(u[None], ACT[None]).pose[0], torch.tensor(expected, dtype=torch.float64))
    assert sum(p.numel() for p in layer.parameters()) == I * J * D


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="iterations must be"):
        routing.get("heinsen", iterations=0)
    with pytest.raises(ValueError, match="squash"):
        routing.get("homogeneous", squash="round")
