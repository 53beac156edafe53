"""PathNet: paths, frozen modules, and a loop over modules as the reference."""

import copy
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import capsnet
from capsnet import weights
from capsnet.layers import PathwayLayer
from capsnet.models.pathnet import PathNet


def build(seed: int = 0) -> PathNet:
    torch.manual_seed(seed)
    return PathNet((6, 5), 1, 4, layers=3, modules=5, active=2, units=7)


def weight(model: PathNet, layer: int, module: int) -> Tensor:
    chosen = model.layers[layer]
    assert isinstance(chosen, PathwayLayer)
    return chosen.weight[module].detach().clone()


def test_features_equal_loop_over_modules() -> None:
    model = build()
    path = [[0, 3], [2, 2], [4, 1]]
    model.choose(path)
    x = torch.rand(3, 1, 6, 5)
    features = x.flatten(1)
    for number, (layer, genes) in enumerate(zip(model.layers, path, strict=True)):
        assert isinstance(layer, PathwayLayer)
        each = [torch.relu(features @ layer.weight[k].T + layer.bias[k]) for k in sorted(set(genes))]
        features = sum(each[1:], each[0])
        if number == 2:
            features = features / len(each)
    torch.testing.assert_close(model.forward_features(x), features)


PATH, OTHER = [[0, 3], [2, 1], [4, 1]], [[3, 4], [1, 0], [1, 2]]  # they share modules


def adam(model: PathNet, weight_decay: float = 0.0) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=weight_decay)


def train(model: PathNet, steps: int = 30, optimizer: torch.optim.Optimizer | None = None) -> None:
    optimizer = optimizer or adam(model)
    x, y = torch.rand(16, 1, 6, 5), torch.arange(16) % 4
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(model(x), y, x).total.backward()
        optimizer.step()


def features(model: PathNet) -> Tensor:
    """What the head of the frozen path's task sees."""
    model.choose(PATH)
    x = torch.rand(5, 1, 6, 5, generator=torch.Generator().manual_seed(1))
    return model.forward_features(x).detach()


def frozen() -> tuple[PathNet, Tensor]:
    """A network with a trained, frozen path, and what that path gives."""
    model = build()
    model.choose(PATH)
    train(model)
    before = features(model)
    model.freeze()
    return model, before


def test_logits_of_a_frozen_path_stay_equal_to_the_bit() -> None:
    model = build()
    model.choose(PATH)
    train(model)
    x = torch.rand(5, 1, 6, 5)
    before, head = model(x).logits, [p.detach().clone() for p in model.head.parameters()]
    others = weight(model, 0, 1)
    model.freeze()
    assert not torch.equal(weight(model, 0, 1), others), "modules that are not on the path start anew"
    model.choose(OTHER)
    train(model)
    model.choose(PATH)
    for parameter, kept in zip(model.head.parameters(), head, strict=True):
        parameter.data.copy_(kept)
    after = model(x).logits
    assert before is not None
    assert after is not None
    assert torch.equal(before, after)


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_frozen_path_stands_weight_decay_and_an_optimiser_that_goes_on(again: bool) -> None:
    model = build()
    model.choose(PATH)
    optimizer = adam(model, 0.01)
    train(model, 10, optimizer)
    before = features(model)
    model.freeze()
    model.choose(OTHER)
    train(model, 10, optimizer)
    if again:
        model.freeze()
        train(model, 10, optimizer)
    assert torch.equal(features(model), before)


def test_frozen_path_stays_in_copies() -> None:
    model, before = frozen()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        twin.choose(OTHER)
        train(twin, 5, adam(twin, 0.01))
        assert torch.equal(features(twin), before)
    changed = twin.state_dict()
    twin.load_state_dict(changed | {"layers.0.weight": 2 * changed["layers.0.weight"]})
    assert not torch.equal(features(twin), before), "loading replaces frozen modules"
    assert torch.equal(features(model), before)


def test_frozen_path_is_saved_after_the_parameters_have_moved(tmp_path: Path) -> None:
    sizes = {"image_size": (6, 5), "num_classes": 4, "modules": 5, "active": 2, "units": 7}
    model, before = frozen()
    saved = capsnet.create_model("pathnet", **sizes)
    assert isinstance(saved, PathNet)
    saved.load_state_dict(model.state_dict())
    saved.choose(OTHER)
    train(saved, 5, adam(saved, 0.01))
    capsnet.save(saved, tmp_path / "m.safetensors")
    loaded, begun = capsnet.load(tmp_path / "m.safetensors"), capsnet.create_model("pathnet", **sizes)
    assert weights.transfer(begun, tmp_path / "m.safetensors") == []
    for model in (loaded, begun):
        assert isinstance(model, PathNet)
        assert model.path.tolist() == OTHER
        assert torch.equal(model.frozen, saved.frozen)
        train(model, 5, adam(model, 0.01))
        assert torch.equal(features(model), before)


def test_state_has_the_tensors_of_earlier_versions() -> None:
    """Fixed weights are in the place of the parameters: older files load, and older versions read these."""
    model, before = frozen()
    layers = [f"layers.{k}.{name}" for k in range(3) for name in ("weight", "bias")]
    state = model.state_dict()
    assert sorted(state) == sorted(["path", "frozen", *layers, "head.0.weight", "head.0.bias"])
    other = build(1)
    other.load_state_dict(state)
    train(other, 5, adam(other, 0.01))
    other.load_state_dict({"head.0.bias": state["head.0.bias"]}, strict=False)
    assert torch.equal(features(other), before)


def test_file_with_a_path_of_another_network_is_refused(tmp_path: Path) -> None:
    model = capsnet.create_model("pathnet", units=2)
    assert isinstance(model, PathNet)
    model.path.fill_(10)
    path = capsnet.save(model, tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=r"m\.safetensors does not fit .* a path has 3 x 3 module numbers from 0 to 9"):
        capsnet.load(path)


def test_modules_that_are_not_frozen_learn() -> None:
    model = build()
    model.freeze()
    model.choose([[3, 4], [3, 4], [3, 4]])
    before = weight(model, 1, 3)
    train(model, 3)
    assert not torch.equal(weight(model, 1, 3), before)


@pytest.mark.parametrize(
    "path",
    [
        [[0, 1], [0, 1]],
        [[0, 1], [0, 1], [0, 5]],
        [[0, 1], [0, 1], [-1, 2]],
        [[0, 1], [0, 1], [0.5, 1]],
        [[0, 1], [0, 1], [0]],
        [[0, 1], [0, 1], ["a", 1]],
        [0, 1, 2],
        [],
    ],
)
def test_bad_paths_are_refused(path: list) -> None:
    model = build()
    with pytest.raises(ValueError, match=re.escape(f"a path has 3 x 2 module numbers from 0 to 4, got {path}")):
        model.choose(path)
    assert model.path.tolist() == [[0, 1]] * 3


def test_path_may_be_a_tensor_or_an_array() -> None:
    model = build()
    for path in (torch.tensor(PATH), np.array(PATH), [tuple(genes) for genes in PATH]):
        model.choose(OTHER)
        model.choose(path)  # type: ignore[arg-type]
        assert model.path.tolist() == PATH


def test_more_active_modules_than_there_are_are_refused() -> None:
    with pytest.raises(ValueError, match="12 modules cannot be active in a layer of 10"):
        capsnet.create_model("pathnet", active=12)


@pytest.mark.parametrize("active", [[0, 5], [-1], [1, 1], [0, 1, 2, 3, 4, 0], [], [True, False], [[0]], [0.5]])
def test_layer_refuses_unknown_repeated_and_too_many_modules(active: list) -> None:
    with pytest.raises(ValueError, match="expected distinct module numbers from 0 to 4, at least one, got"):
        PathwayLayer(2, 3, 5)(torch.zeros(1, 2), active)


@pytest.mark.parametrize("mask", [torch.ones(4).bool(), torch.ones(1, 5).bool(), torch.tensor(True), torch.arange(5)])
def test_layer_refuses_masks_of_other_sizes(mask: Tensor) -> None:
    layer = PathwayLayer(2, 3, 5)
    with pytest.raises(ValueError, match="expected a mask of 5 bools, got"):
        layer.fix(mask)
    assert layer.fixed is None


def test_layer_takes_lists_and_by_default_all_modules() -> None:
    layer, x = PathwayLayer(2, 3, 5, mean=True), torch.rand(4, 2)
    torch.testing.assert_close(layer(x), torch.stack([layer(x, [k]) for k in range(5)]).mean(dim=0))
