"""PathNet: paths, frozen modules, and a loop over modules as the reference."""

import pytest
import torch
from torch import Tensor

import capsnet
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


def train(model: PathNet, steps: int = 30) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.0)
    x, y = torch.rand(16, 1, 6, 5), torch.arange(16) % 4
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(model(x), y, x).total.backward()
        optimizer.step()


def test_frozen_path_stays_equal_to_the_bit() -> None:
    model = build()
    model.choose([[0, 3], [2, 1], [4, 1]])
    train(model)
    x = torch.rand(5, 1, 6, 5)
    before, head = model(x).logits, [p.detach().clone() for p in model.head.parameters()]
    others = weight(model, 0, 1)
    model.freeze()
    assert not torch.equal(weight(model, 0, 1), others), "modules that are not on the path start anew"
    model.choose([[3, 4], [1, 0], [1, 2]])  # shares modules with the frozen path
    train(model)
    model.choose([[0, 3], [2, 1], [4, 1]])
    for parameter, kept in zip(model.head.parameters(), head, strict=True):
        parameter.data.copy_(kept)
    after = model(x).logits
    assert before is not None
    assert after is not None
    assert torch.equal(before, after)


def test_modules_that_are_not_frozen_learn() -> None:
    model = build()
    model.freeze()
    model.choose([[3, 4], [3, 4], [3, 4]])
    before = weight(model, 1, 3)
    train(model, 3)
    assert not torch.equal(weight(model, 1, 3), before)


def test_path_and_frozen_modules_are_saved_with_the_weights() -> None:
    model, other = build(), build(1)
    model.choose([[1, 2], [3, 4], [0, 4]])
    model.freeze()
    other.load_state_dict(model.state_dict())
    x = torch.rand(2, 1, 6, 5)
    assert torch.equal(other(x).lengths, model(x).lengths)
    assert torch.equal(other.frozen, model.frozen)


@pytest.mark.parametrize("path", [[[0, 1], [0, 1]], [[0, 1], [0, 1], [0, 5]], [[0, 1], [0, 1], [-1, 2]]])
def test_bad_paths_are_refused(path: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="a path has 3 x 2 module numbers from 0 to 4"):
        build().choose(path)


def test_more_active_modules_than_there_are_are_refused() -> None:
    with pytest.raises(ValueError, match="12 modules cannot be active in a layer of 10"):
        capsnet.create_model("pathnet", active=12)
