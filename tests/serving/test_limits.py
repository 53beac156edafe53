"""Limits and bad input: large bodies, many fields, full lanes, broken JSON."""

import copy
import json
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from capsnet.models import Model
from capsnet.serving.access import LARGEST
from capsnet.serving.app import create_app
from capsnet.serving.wire import write
from tests.serving.helpers import BUNDLED, HOME, TestClient, wire

ADDRESS = "/api/v1/predict"
JSON = {"content-type": "application/json"}
BLANK = wire(np.zeros((28, 28), np.uint8))


@pytest.mark.parametrize("kind", ["image/png", "application/json"])
def test_bodies_beyond_the_limit_are_refused(client: TestClient, kind: str) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(LARGEST // 2**16 + 2):
            yield bytes(2**16)

    for content in (bytes(LARGEST + 1), endless()):  # with a length, and without one
        response = client.post(ADDRESS, content=content, headers={"content-type": kind})
        assert response.status_code == 413, response.text
        assert "too large" in response.json()["error"]
    response = client.post(ADDRESS, content=b"", headers={"content-length": "9" * 30})
    assert response.status_code == 413


def test_many_unknown_fields_are_one_error(client: TestClient) -> None:
    """An error for each of them would keep the server busy."""
    body = {**BLANK, **{f"x{n}": 0 for n in range(100_000)}}
    response = client.post(ADDRESS, content=json.dumps(body), headers=JSON)
    assert response.status_code == 422
    assert "at most 20 fields" in response.json()["error"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'"x"', b"[" * 100_000, b"1" * 5000])
def test_broken_json_is_one_sentence(client: TestClient, body: bytes) -> None:
    response = client.post(ADDRESS, content=body, headers=JSON)
    assert response.status_code in (400, 422)
    assert list(response.json()) == ["error"]


def test_nan_from_a_network_is_one_sentence(bundled: Model) -> None:
    broken = copy.deepcopy(bundled)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(float("nan"))
    stroke = np.pad(np.full((40, 6), 255, np.uint8), ((12, 12), (29, 29)))
    client = TestClient(create_app({BUNDLED: broken}), base_url=HOME)
    response = client.post(ADDRESS, json=wire(stroke))
    assert response.status_code == 422, response.text
    assert response.json()["error"] == "the network's answer is not a number"


def test_answers_are_written_as_json_writes_them() -> None:
    answer = {"a": [0.1, 1e-7, 1e22, -0.0, 3.0, float(np.float32(0.1))], "é": [None, True, 7, "NaN", 'q"\n\u2028']}
    body = bytes(write(answer).body)
    assert json.loads(body) == answer
    assert json.loads(body)["a"][3].hex() == "-0x0.0p+0"
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="not a number"):
            write({"a": [[1.0, bad]]})
