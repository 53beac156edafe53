"""``explain``: contributions of children, laid over the picture."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import capsnet
from capsnet.inference.attributions import grad_cam, integrated_gradients
from capsnet.inference.explanation import Explanation, lay_out, spread
from capsnet.models import ReceptiveField
from capsnet.routing import contributions, get, list_forms


def test_contributions_add_up_to_the_length_before_the_squash() -> None:
    votes = torch.randn(2, 6, 3, 4)
    routed = get("dynamic", iterations=2)(votes, trace=True)
    assert routed.trace is not None
    brought = contributions(routed.trace)
    assert brought.shape == (2, 2, 6, 3)
    for r in range(2):
        sums = (routed.trace.couplings[r].unsqueeze(-1) * votes).sum(dim=1)  # s_j, (B, J, D)
        assert torch.allclose(brought[r].sum(dim=1), sums.norm(dim=-1), atol=1e-5)


@pytest.mark.parametrize("name", list_forms())
def test_they_add_up_to_the_length_of_the_sum_if_the_presence_is_the_length(name: str) -> None:
    """Where it is not, they add up to nothing that the routing computes."""
    votes = torch.randn(2, 6, 3, 4, generator=torch.Generator().manual_seed(0))
    routed = get(name)(votes, trace=True)
    assert routed.trace is not None
    sums = (routed.trace.couplings[-1].unsqueeze(-1) * votes).sum(dim=1)  # (B, J, D)
    total = contributions(routed.trace)[-1].sum(dim=1)
    if get(name).presence_is_length:
        assert torch.allclose(total, sums.norm(dim=-1), atol=1e-5)
    else:
        assert not torch.allclose(total, routed.pose.norm(dim=-1), rtol=0.05)
        assert not torch.allclose(total, routed.act, rtol=0.05)


def test_a_contribution_is_spread_over_what_its_child_sees() -> None:
    field = ReceptiveField(size=3, stride=2, start=-1)  # the first child sees pixels -1, 0 and 1
    grid = torch.zeros(1, 2, 2)
    grid[0, 0, 1] = 6
    maps = spread(grid, field, (5, 6))
    expected = torch.zeros(5, 6)
    expected[0:2, 1:4] = 1
    assert torch.allclose(maps[0], expected)
    assert spread(grid, None, (5, 6)).sum() == pytest.approx(6, rel=0.05)


def test_explain_gives_map_class_and_contributions(tiny: capsnet.Model, tmp_path: Path) -> None:
    picture = torch.rand(1, 20, 22)
    seen = capsnet.explain(tiny, picture)
    output = tiny.eval()(picture[None], trace=True)
    best = int(output.lengths.argmax())
    assert (seen.label, seen.map.shape) == (tiny.class_names[best], (20, 22))
    assert seen.contributions.shape == tiny.grid
    last = contributions(output.trace)[-1, 0, :, best].detach()
    assert torch.allclose(seen.contributions.flatten(), last, atol=1e-6)
    assert torch.allclose(seen.map.sum(), last.sum(), atol=1e-5)
    other = capsnet.explain(tiny, picture, label="2")
    assert other.label == capsnet.explain(tiny, picture, label=2).label == "2"
    assert other.length == pytest.approx(output.lengths[0, 2].item(), abs=1e-6)
    with Image.open(seen.save(tmp_path / "map.png")) as drawn:
        assert drawn.size == (22 * 20, 20 * 20)
    assert str(seen).startswith(f"{seen.label} (length ")
    array = (picture[0].numpy() * 255).astype(np.uint8)
    assert capsnet.explain(tiny, array).map.shape == (20, 22)


def test_maps_of_a_batch_are_those_of_its_examples(tiny: capsnet.Model) -> None:
    images = torch.rand(3, 1, 20, 22)
    with torch.no_grad():
        maps = lay_out(tiny, tiny.eval()(images, trace=True), torch.tensor([0, 1, 2]))[1]
    for k in range(3):
        assert torch.allclose(maps[k], capsnet.explain(tiny, images[k], label=k).map, atol=1e-5)


def test_maps_from_gradients_are_drawn_beside(tiny: capsnet.Model) -> None:
    picture = torch.rand(1, 20, 22)
    seen = capsnet.explain(tiny, picture, label=1, beside=True)
    for name, method in (("integrated gradients", integrated_gradients), ("Grad-CAM", grad_cam)):
        assert torch.equal(seen.beside[name], method(tiny, picture[None], torch.tensor([1]))[0])
    alone = capsnet.explain(tiny, picture, label=1)
    assert alone.beside == {}
    assert torch.equal(alone.map, seen.map)
    one, three = np.asarray(alone.picture()), np.asarray(seen.picture())
    height, width = one.shape[:2]
    assert three.shape == (height + 36, 3 * width + 2 * 12, 3)
    assert np.array_equal(three[36:, :width], one)  # the contributions come first
    others = three[36:, width + 12 : 2 * width + 12], three[36:, 2 * width + 24 :]
    for name, drawn in zip(seen.beside, others, strict=True):
        y, x = divmod(int(seen.beside[name].abs().argmax()), 22)
        red, _, blue = drawn[20 * y, 20 * x].astype(int)
        assert (red > blue) == (seen.beside[name][y, x] > 0)  # orange speaks for the class
    assert [(three[:36, x : x + width] < 128).any() for x in (0, width + 12, 2 * width + 24)] == [True] * 3  # words


@pytest.mark.parametrize("name", ["matrix-mnist", "kuramoto-multimnist"])  # EM, and synchronisation
def test_no_pixel_is_named_where_children_see_the_whole_picture(name: str) -> None:
    model = capsnet.load(name)
    height, width = model.image_size
    picture = torch.zeros(1, height, width)
    picture[:, 6:-6, width // 2 - 1 : width // 2 + 2] = 1
    seen = capsnet.explain(model, picture, "1")
    assert seen.field is not None
    assert seen.field.size > width
    assert f"{seen.length:.2f}): it comes from all over the picture; " in str(seen)


def test_a_place_is_named_only_if_it_stands_out() -> None:
    def where(values: torch.Tensor, field: ReceptiveField | None = None) -> str:
        return Explanation("1", 0.9, values, values[..., None], values[None], {}, {}, field).where

    peak = torch.zeros(8, 8)
    peak[2:5, 3:6] = 1
    assert where(peak) == "most of it comes from around pixel (3, 2)"
    assert where(peak, ReceptiveField(size=8, stride=1)) == "it comes from all over the picture"
    assert where(peak + 1.1) == where(torch.full((8, 8), 0.1)) == "it comes from all over the picture"
    assert where(peak - 1) == where(torch.zeros(8, 8)) == "no place speaks for it"


@pytest.mark.parametrize(
    ("model", "label", "message"),
    [
        (capsnet.create_model("cnn-small", channels=[2, 2, 2], widths=[4, 4]), None, "no routed class capsules"),
        (capsnet.create_model("efficient-capsnet"), None, "sees the whole picture"),
        (None, 3, "class must be from 0 to 2, got 3"),
        (None, "cat", "unknown class 'cat'"),
    ],
)
def test_other_networks_and_classes_are_refused(
    model: capsnet.Model | None, label: int | str | None, message: str, tiny: capsnet.Model
) -> None:
    model = model or tiny
    with pytest.raises(ValueError, match=message):
        capsnet.explain(model, torch.rand(1, *model.image_size), label)
