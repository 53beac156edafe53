"""The explorer in-process: an application with a bundled model and small ones of other kinds, and its client."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import capsnet
from capsnet.explorer import create_app
from capsnet.models import Model
from tests.serving.conftest import bundled, digits
from tests.serving.helpers import BUNDLED, HOME, TestClient, png, service_of, unwire, wire

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.explorer.browser import Visit

__all__ = ["BUNDLED", "HOME", "OUTLINES", "TestClient", "as_bytes", "bundled", "digits", "png", "service_of", "tensor"]
__all__ += ["unwire", "wire"]


OUTLINES = Path(__file__).parents[2] / "docs" / "networks" / "rotating-two-outlines.safetensors"


def as_bytes(pictures: torch.Tensor) -> NDArray:
    """(..., C, H, W) in [0, 1] as (..., H, W, C) bytes, written independently of the explorer's own."""
    return np.moveaxis(np.rint(pictures.double().numpy() * 255).clip(0, 255).astype(np.uint8), -3, -1)


def tensor(picture: NDArray) -> torch.Tensor:
    """(H, W) bytes as a network takes them."""
    return torch.from_numpy(picture.astype(np.float32))[None, None] / 255


@pytest.fixture(scope="session")
def others() -> dict[str, Model]:
    """One model of each kind."""
    torch.manual_seed(0)
    small: dict[str, Any] = {"conv_channels": 4, "primary_types": 2, "decoder_widths": (8, 9)}
    made = {
        "pairs": capsnet.create_model("capsnet", image_size=(36, 36), **small),
        "colour": capsnet.create_model("capsnet", in_channels=3, image_size=(20, 24), num_classes=3, **small),
        "em": capsnet.create_model("capsnet", routing="em", **small),
        "attentive": capsnet.create_model("efficient-capsnet"),
        "cnn": capsnet.create_model("cnn-small"),
        "matrix": capsnet.create_model("matrix-capsnet-small", widths=(4, 2, 2, 2)),
    }
    made["pairs"].card = {"data": "multimnist", "test_accuracy": {"value": 0.5, "n": 10}}
    made["colour"].card = {"data": "cifar10"}
    for name in ("em", "attentive", "cnn", "matrix"):
        made[name].card = {"data": "svhn"}  # not bundled, so nothing is measured in the background
    return made


@pytest.fixture(scope="session")
def client(bundled: Model, others: dict[str, Model]) -> Iterator[TestClient]:
    with TestClient(create_app({BUNDLED: bundled, **others}), base_url=HOME, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="session")
def ask(client: TestClient) -> Callable[..., dict[str, Any]]:
    """POST a request about the bundled model (or another) that must succeed."""

    def call(what: str, **body: Any) -> dict[str, Any]:
        named = {"class" if key == "klass" else key: value for key, value in body.items()}
        response = client.post(f"/api/{what}", json={"model": BUNDLED, **named})
        assert response.status_code == 200, response.text
        return response.json()

    return call


@pytest.fixture(scope="session")
def refuse(client: TestClient) -> Callable[..., str]:
    """POST a request that must be refused with this status; returns the sentence."""

    def call(status: int, what: str, **body: Any) -> str:
        named = {"class" if key == "klass" else key: value for key, value in body.items()}
        response = client.post(f"/api/{what}", json={"model": BUNDLED, **named})
        assert response.status_code == status, response.text
        assert list(response.json()) == ["error"]
        return response.json()["error"]

    return call


# A real browser: imported only where it is used, because Playwright is not available on every machine.


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    from tests.explorer.browser import launched

    with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def home(bundled: Model) -> Iterator[str]:
    """The address of a server with the small bundled model, one without capsules, matrix capsules on a grid, and two
    whose children see the whole picture, one of them of another frame."""
    from tests.explorer.browser import serving

    cnn = capsnet.create_model("cnn-small")
    cnn.card = {"data": "svhn"}
    loaded = {name: capsnet.load(name) for name in ("matrix-mnist", "efficient-mnist", "capsnet-multimnist")}
    models = {BUNDLED: bundled, "cnn": cnn, **loaded}
    with serving(create_app(models)) as address:
        yield address


@pytest.fixture(scope="session")
def tab(chromium: "Browser", home: str) -> "Page":
    """A page that visits without options of their own use one after the other."""
    from tests.explorer.browser import new_context

    return new_context(chromium, home).new_page()


@pytest.fixture
def visits(chromium: "Browser", home: str, tab: "Page") -> Iterator[Callable[..., "Visit"]]:
    """Makes visits: the first without options on the common page, others with a fresh browser context. Each is checked
    at its end (``Visit.close``)."""
    from tests.explorer.browser import Visit, new_context

    made: list[Visit] = []

    def make(**options: Any) -> Visit:
        shared = not options and all(visit.page is not tab for visit in made)
        made.append(Visit(tab if shared else new_context(chromium, home, **options).new_page(), home))
        return made[-1]

    yield make
    try:
        for visit in made:
            visit.close()
    finally:
        for visit in made:
            visit.reset() if visit.page is tab else visit.context.close()


@pytest.fixture
def visit(visits: Callable[..., "Visit"]) -> "Visit":
    """A visit of a returning user, who sees the example."""
    return visits().open()
