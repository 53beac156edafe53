"""On which object a child lies, and the loss that teaches it to go to that object's capsule."""

import math
from typing import Any

import pytest
import torch

import capsnet
from capsnet import data, functional
from capsnet.models import Model, child_centres, child_owners
from capsnet.routing import divided
from capsnet.training import loss_inputs

SMALL: dict[str, Any] = {"channels": (4, 4, 16), "blocks": (0, 0), "decoder": False, "primary": "grid"}


CENTRES = torch.tensor([[1, 1, 5, 5], [1, 5, 1, 5]])  # four children, four pixels apart


def test_child_lies_on_the_only_object_around_it() -> None:
    alone = torch.zeros(1, 2, 8, 8)
    alone[0, 0, 0, 0] = alone[0, 0, 2, 6] = 1.0  # the first object: around the first two children
    alone[0, 1, 2, 4] = 0.5  # the second: around the second child too
    alone[0, 1, 6, 0] = 0.4  # too faint to be ink
    alone[0, 1, 6, 6] = 0.9
    assert child_owners(alone, CENTRES, 4).tolist() == [[0, -1, -1, 1]]
    outside = CENTRES + 5  # the middle of three squares is not in the picture
    assert child_owners(torch.ones(1, 1, 8, 8), outside, 4).tolist() == [[0, -1, -1, -1]]


def test_squares_do_not_overlap() -> None:
    """Of the pixels in a row, each is ink for one child only."""
    centres = torch.tensor([[3, 3], [3, 11]])
    seen = []
    for x in range(16):
        alone = torch.zeros(1, 1, 8, 16)
        alone[0, 0, 3, x] = 1.0
        seen.append(child_owners(alone, centres, 8)[0].tolist())
    assert sorted(map(tuple, seen)) == [(-1, -1)] + [(-1, 0)] * 8 + [(0, -1)] * 7


def test_coupling_loss_matches_a_case_by_hand() -> None:
    couplings = torch.tensor([[[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]], [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]])
    parents = torch.tensor([[0, 1, -1], [-1, -1, -1]])
    each = [-(math.log(0.5) + math.log(0.75)) / 2, 0.0]  # no child of the second example is known
    assert functional.coupling_loss(couplings, parents).item() == pytest.approx(sum(each) / 2)
    weights = torch.tensor([3.0, 1.0])
    assert functional.coupling_loss(couplings, parents, weights=weights).item() == pytest.approx(3 * each[0] / 2)
    presence = torch.tensor([[3.0, 1.0, 7.0], [0.0, 0.0, 0.0]], requires_grad=True)
    seen = -(3 * math.log(0.5) + math.log(0.75)) / 4
    loss = functional.coupling_loss(couplings.requires_grad_(), parents, presence)
    assert loss.item() == pytest.approx(seen / 2)
    loss.backward()
    assert presence.grad is None, "children are not to hide from the loss"
    with pytest.raises(ValueError, match=r"and parents \(B, I\), got \(2, 3, 2\) and \(2, 2\)"):
        functional.coupling_loss(couplings, parents[:, :2])
    with pytest.raises(ValueError, match=r"and presence \(B, I\), got \(2, 3, 2\) and \(2, 2\)"):
        functional.coupling_loss(couplings, parents, presence[:, :2])


def test_coupling_loss_of_a_coupling_of_zero_is_finite() -> None:
    couplings = torch.tensor([[[1.0, 0.0]]], requires_grad=True)
    loss = functional.coupling_loss(couplings, torch.tensor([[1]]))
    loss.backward()
    assert loss.isfinite()
    assert couplings.grad is not None
    assert couplings.grad.isfinite().all()


def taught(spec: str, routing: str = "kuramoto", **options: Any) -> tuple[Model, data.Batch]:
    torch.manual_seed(0)
    training = data.load(spec, "train")
    net = SMALL | {"num_classes": len(training.class_names), "routing": routing, "coupling_weight": 0.5} | options
    return capsnet.create_model("residual-capsnet", image_size=training.image_size, **net), training.batch(range(6))


@pytest.mark.parametrize("spec", ["mnist", "multimnist", "shapes:kind=crowded"])
def test_loss_asks_each_child_for_the_class_of_its_object(spec: str) -> None:
    """Child by child, in plain loops."""
    model, batch = taught(spec)
    for norm in model.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            norm.eval()  # a picture alone has the same children
    images, labels, targets, pictures, _ = loss_inputs(batch, model)
    output = model(images, labels=labels)
    part = model.loss(output, targets, pictures).parts["coupling"]
    assert output.trace is not None
    assert model.class_routing is not None
    assert model.receptive_field is not None
    couplings = divided(output.trace, model.class_routing)[-1]
    single = batch.sources is None
    total = 0.0
    for b in range(len(images)):
        alone = batch.images[b] if batch.sources is None else batch.sources.images[b].amax(dim=1)
        classes = [int(batch.targets[b])] if batch.sources is None else batch.sources.classes[b].tolist()
        owner = child_owners(alone[None], child_centres(model), model.receptive_field.stride)[0]
        presence = model.forward_features(images[b : b + 1]).pose[0].norm(dim=-1)
        known = [(presence[i], -couplings[b, i, classes[k]].log()) for i, k in enumerate(owner.tolist()) if k >= 0]
        total += sum(a * one for a, one in known) / max(1e-9, sum(a for a, _ in known))
    assert single == (spec == "mnist")
    torch.testing.assert_close(part, 0.5 * torch.as_tensor(total) / len(images))
    part.backward()
    assert model.classes.weight.grad.abs().sum() > 0  # type: ignore[union-attr]


def test_loss_is_for_training_only() -> None:
    model, batch = taught("mnist")
    images, labels, targets, pictures, _ = loss_inputs(batch, model.eval())
    output = model(images, labels=labels)
    assert (output.trace, output.labels) == (None, None)
    assert set(model.loss(output, targets, pictures).parts) == {"margin"}


def test_wrong_settings_get_a_sentence() -> None:
    with pytest.raises(ValueError, match='choose primary="grid"'):
        taught("mnist", primary="whole")
    model, batch = taught("multimnist")
    output = model(batch.images, labels=batch.targets)  # which object is which class is not said
    with pytest.raises(ValueError, match="needs the class of each object"):
        model.loss(output, batch.targets, batch.images)


def test_couplings_learn_where_objects_are() -> None:
    """A few steps on single digits: the loss of the couplings falls below that of equal ones."""
    model, _ = taught("mnist", coupling_weight=1.0)
    training, optimizer = data.load("mnist", "train"), torch.optim.AdamW(model.parameters(), 3e-3)
    for step in range(40):
        images, labels, targets, pictures, _ = loss_inputs(training.batch(range(32 * step, 32 * step + 32)), model)
        loss = model.loss(model(images, labels=labels), targets, pictures)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
    assert loss.parts["coupling"] < 0.9 * math.log(10)
