"""The API for programs without the explorer: an application in-process, and its client."""

from collections.abc import Iterator

import pytest
import torch

import capsnet
from capsnet.data import ArrayDataset
from capsnet.models import Model
from capsnet.serving.app import create_app
from tests.serving.helpers import BUNDLED, HOME, TestClient


@pytest.fixture(scope="session")
def bundled() -> Model:
    return capsnet.load(BUNDLED)


@pytest.fixture(scope="session")
def digits() -> ArrayDataset:
    dataset = capsnet.data.load("mnist", "test")
    assert isinstance(dataset, ArrayDataset)
    return dataset


@pytest.fixture(scope="session")
def client(bundled: Model) -> Iterator[TestClient]:
    torch.manual_seed(0)
    small = {"conv_channels": 4, "primary_types": 2, "decoder_widths": (8, 9)}
    models = {
        BUNDLED: bundled,
        "cnn": capsnet.create_model("cnn-small"),
        "colour": capsnet.create_model("capsnet", in_channels=3, image_size=(20, 24), num_classes=3, **small),
    }
    with TestClient(create_app(models), base_url=HOME, raise_server_exceptions=False) as client:
        yield client
