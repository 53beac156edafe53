"""Shares of children that go to their object, on couplings made by hand."""

import numpy as np
import pytest
import torch

from capsnet import data, routing
from capsnet.inference.coupling import averaged, coupling_share, coupling_shares, first_choice, objects
from capsnet.models import CapsNet, child_centres, create_model
from capsnet.routing import divided


def test_coupling_share_matches_a_case_by_hand() -> None:
    couplings = np.array(  # R = 1, B = 1, I = 4, J = 3
        [[[[0.8, 0.1, 0.1], [0.4, 0.2, 0.4], [0.1, 0.3, 0.6], [1.0, 0.0, 0.0]]]]
    )
    owner = np.array([[0, 0, 1, -1]])  # the last child lies on nothing
    classes = np.array([[0, 2]])  # object 0 is of class 0, object 1 of class 2; class 1 is absent
    share = coupling_share(couplings, np.array([[3.0, 1.0, 5.0, 9.0]]), owner, classes)
    np.testing.assert_allclose(share["own"], [[[(3 * 0.8 + 0.4) / 4, 0.6]]])
    np.testing.assert_allclose(share["others"], [[[(3 * 0.1 + 0.4) / 4, 0.1]]])
    np.testing.assert_allclose(share["absent"], [[[(3 * 0.1 + 0.2) / 4, 0.3]]])


def test_object_without_children_is_left_out() -> None:
    couplings = np.full((2, 1, 2, 2), 0.5)
    share = coupling_share(couplings, np.ones((1, 2)), np.array([[0, -1]]), np.array([[0, 1]]))
    assert np.isnan(share["own"][:, 0, 1]).all()
    assert np.isnan(share["absent"]).all()  # both classes are present
    assert averaged(share["own"]) == ([0.5, 0.5], [0.0, 0.0])


def test_averaged_takes_pictures_as_independent() -> None:
    share = np.array([[[0.2, 0.4], [0.5, np.nan]]])  # one iteration, two pictures of 0.3 and 0.5
    mean, reach = averaged(share)
    assert mean == [pytest.approx(0.4)]
    assert reach == [pytest.approx(1.96 * 0.1)]


def test_child_centres_are_the_middle_of_receptive_fields() -> None:
    """Light one pixel: of the children that notice, the middle one must be centred on it."""
    model = create_model("capsnet", image_size=(40, 40), conv_channels=3, primary_types=2, decoder=False).eval()
    assert isinstance(model, CapsNet)
    rows, columns = child_centres(model).numpy()
    dark = torch.zeros(1, 1, 40, 40)
    lit = dark.clone()
    lit[0, 0, 18, 22] = 100.0
    with torch.no_grad():
        lit, dark = (model.forward_features(images).pose for images in (lit, dark))
    moved = (lit - dark)[0].norm(dim=-1).numpy()
    noticed = moved > 1e-6
    assert (rows[noticed].min() + rows[noticed].max(), columns[noticed].min() + columns[noticed].max()) == (36, 44)


def test_objects_are_the_sources_or_the_picture_itself() -> None:
    alone, classes = objects(data.load("multimnist", "test").batch([0, 1]))
    assert (alone.shape, classes.shape) == ((2, 2, 36, 36), (2, 2))
    digits = data.load("mnist", "test").batch([3, 4])
    alone, classes = objects(digits)
    np.testing.assert_array_equal(alone[:, 0], digits.images[:, 0])
    assert classes[:, 0].tolist() == digits.targets.tolist()


def test_shares_are_not_known_for_photographs() -> None:
    """The same digits on black and on a grey ground, by a network with a receptive field."""
    digits = data.load("mnist", "test").batch(range(8))
    model = create_model("capsnet-image", image_size=(28, 28), in_channels=1, num_classes=10, width=8, decoder=False)
    on_black, on_grey = (
        data.ArrayDataset(images.numpy(), digits.targets.numpy(), [str(k) for k in range(10)])
        for images in (digits.images, 0.3 + 0.7 * digits.images)
    )
    shares = coupling_shares(model, on_black, 8)
    assert shares is not None
    assert 0 < shares["counted"] < 1
    assert coupling_shares(model, on_grey, 8) is None


def test_first_choice_shares_ties() -> None:
    couplings = np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(first_choice(couplings), [[0, 1, 0], [0.5, 0.5, 0], [1 / 3] * 3])


@pytest.mark.parametrize("name", routing.list_routings())
def test_every_routing_divides_each_child(name: str) -> None:
    route = routing.get(name)
    trace = route(torch.randn(2, 6, 3, 4), trace=True).trace
    assert trace is not None
    torch.testing.assert_close(divided(trace, route).sum(dim=-1), torch.ones(len(trace.couplings), 2, 6))


GRID = {"primary": "grid", "primary_dim": 4, "channels": (4, 4, 8), "blocks": (0, 0), "decoder": False}


def test_uniform_routing_is_at_chance() -> None:
    model = create_model("residual-capsnet", image_size=(36, 36), routing="uniform", **GRID)
    measured = coupling_shares(model, data.load("multimnist", "test"), 20)
    assert measured is not None
    for name in ("own", "first", "others"):
        assert measured[name] == [pytest.approx(0.1)]
        assert measured[f"{name} interval"] == [pytest.approx(0.0, abs=1e-6)]
    assert measured["entropy"] == [pytest.approx(1.0)]
    assert 0.05 < measured["counted"] < 0.5
    assert measured["pictures"] == 20


def test_share_is_not_measured_where_objects_are_not_known() -> None:
    whole = create_model("residual-capsnet", image_size=(28, 28), **(GRID | {"primary": "grid"}))
    plain = create_model("cnn-small", channels=(4,), kernel_sizes=(5,), widths=(7,))
    digits = data.load("mnist", "test")
    assert coupling_shares(whole, digits, 5) is not None
    assert coupling_shares(plain, digits, 5) is None
