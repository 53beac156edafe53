"""Bad requests to the page's endpoints: one sentence each, and no harm to other models."""

import copy
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from capsnet.explorer import create_app
from capsnet.models import Model
from capsnet.serving.service import WAITING
from tests.explorer.conftest import BUNDLED, HOME, TestClient, service_of, wire

Refuse = Callable[..., str]
BLANK = wire(np.zeros((28, 28), np.uint8))


def test_other_content_types_are_refused(client: TestClient) -> None:
    """Another page can send a form without permission, but not JSON."""
    body = json.dumps({"model": BUNDLED, "seen": BLANK})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        response = client.post("/api/classify", content=body, headers={"content-type": kind})
        assert response.status_code == 415, response.text
    fine = {"content-type": "application/json; charset=utf-8"}
    assert client.post("/api/classify", content=body, headers=fine).status_code == 200


@pytest.mark.parametrize(
    "name",
    ["../secrets", "/etc/passwd", "C:\\x", f"{BUNDLED}.safetensors", "runs/mine", "", "a" * 201, "\x00", "\ud800"],
)
def test_paths_are_no_model_names(client: TestClient, name: str) -> None:
    body = json.dumps({"model": name, "seen": BLANK})
    response = client.post("/api/classify", content=body, headers={"content-type": "application/json"})
    assert response.status_code in (404, 422)
    if response.status_code == 404:
        assert BUNDLED in response.json()["error"]  # the sentence lists the known ones


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "1e300", "1001", "1" * 400, "null", '"0.1"', "true", "[]"]
)
def test_invalid_numbers_are_refused(client: TestClient, number: str) -> None:
    body = f'{{"model": "{BUNDLED}", "poses": [[{number}{", 0" * 15}]], "classes": [1]}}'
    response = client.post("/api/decode", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert response.json()["error"].startswith("poses.0.0: ")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'"x"', b"[" * 100_000, b'{"model": 1}', b"1" * 5000, b'{"a":' * 50_000],
)
def test_broken_json_is_one_sentence(client: TestClient, body: bytes) -> None:
    response = client.post("/api/classify", content=body, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422)
    assert list(response.json()) == ["error"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": "!!!!"}, "base64"),
        ({"data": "AAAA"}, "has 3 bytes, 28 x 28 x 1 are 784"),
        ({"data": "ä"}, "base64"),
        ({"width": 27}, "28 x 28"),
        ({"width": 0}, "seen.width"),
        ({"width": 10**9}, "seen.width"),
        ({"width": "28"}, "seen.width"),
        ({"width": 28.0}, "seen.width"),
        ({"width": True}, "seen.width"),
        ({"channels": 2}, "seen.channels"),
        ({"channels": 3}, "3"),
        ({"path": "/etc/passwd"}, "seen.path"),
    ],
)
def test_invalid_pixels_are_refused(refuse: Refuse, change: dict[str, Any], words: str) -> None:
    assert words in refuse(422, "classify", seen=BLANK | change)


@pytest.mark.parametrize("lane", ["slow", "quick", "upload"])
def test_full_lane_is_refused_with_retry_after(client: TestClient, lane: str) -> None:
    inside, full = service_of(client).inside, WAITING[lane]
    before, inside[lane] = inside[lane], full
    try:
        response = {
            "slow": lambda: client.get("/api/models"),
            "quick": lambda: client.post("/api/decode", json={"model": BUNDLED, "poses": [[0.0] * 16], "classes": [1]}),
            "upload": lambda: client.post(f"/api/upload?model={BUNDLED}", content=b""),
        }[lane]()
    finally:
        inside[lane] = before
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert "waiting" in response.json()["error"]
    assert set(inside.values()) == {0}


def test_nan_from_a_network_is_one_sentence(bundled: Model) -> None:
    broken = copy.deepcopy(bundled)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(float("nan"))
    broken.card = {"data": "svhn"}
    with TestClient(create_app({"broken": broken}), base_url=HOME, raise_server_exceptions=False) as client:
        ask = {"model": "broken", "seen": BLANK}
        for response in (
            client.post("/api/classify", json=ask),
            client.post("/api/trace", json=ask),
            client.post("/api/trace", json=ask | {"class": 3}),
        ):
            assert response.status_code == 422, response.text
            assert response.json()["error"] == "the network's answer is not a number"


def test_nan_from_a_network_leaves_other_models_alone(bundled: Model) -> None:
    """Its profile cannot be measured, but the list of all models works."""
    broken = copy.deepcopy(bundled)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(float("nan"))
    broken.card = {"data": "mnist"}
    with TestClient(create_app({BUNDLED: bundled, "broken": broken}), base_url=HOME) as client:
        entry = service_of(client).find("broken")
        end = time.monotonic() + 60
        while not entry.prepared and time.monotonic() < end:
            time.sleep(0.05)
        assert entry.prepared
        response = client.get("/api/models")
        assert response.status_code == 200
        assert [model["ranges"] is None for model in response.json()["models"]] == [False, True]
