"""``/api/v1/predict``: the answers of ``capsnet.predict``, alone and in batches, and its refusals."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import capsnet
from capsnet.data import ArrayDataset
from capsnet.models import Model
from capsnet.serving.app import create_app
from tests.serving.helpers import BUNDLED, HOME, TestClient, png, wire

ADDRESS = "/api/v1/predict"
PNG = {"content-type": "image/png"}
GREY = wire(np.eye(28, dtype=np.uint8) * 255)


def test_files_and_pixels_get_the_answer_of_predict(client: TestClient, bundled: Model, digits: ArrayDataset) -> None:
    picture = np.asarray(Image.fromarray(255 - digits.images[0, 0]).resize((280, 280)))  # ink on paper, another size
    expected = capsnet.predict(picture, bundled)[0]
    for response in (
        client.post(ADDRESS, content=png(picture), headers=PNG),
        client.post(ADDRESS, content=png(picture), headers={"content-type": "application/octet-stream"}),
        client.post(ADDRESS, json=wire(picture)),
        client.post(f"{ADDRESS}?model={BUNDLED}", json=wire(picture)),
    ):
        assert response.status_code == 200, response.text
        answer = response.json()
        assert list(answer) == ["model", "classes", "best", "class_names", "lengths", "poses"]
        assert (answer["model"], answer["best"], answer["classes"]) == (BUNDLED, "7", ["7"])
        assert answer["class_names"] == list("0123456789")
        np.testing.assert_allclose(answer["lengths"], list(expected.lengths.values()), atol=1e-5)
        assert np.shape(answer["poses"]) == (10, 16)
        np.testing.assert_allclose(np.linalg.norm(answer["poses"], axis=1), answer["lengths"], atol=1e-5)


def test_threshold_selects_classes(client: TestClient, digits: ArrayDataset) -> None:
    content = png(digits.images[0, 0])
    none = client.post(f"{ADDRESS}?threshold=1", content=content, headers=PNG).json()
    assert (none["classes"], none["best"]) == ([], "7")
    every = client.post(f"{ADDRESS}?threshold=0", content=content, headers=PNG).json()
    assert every["classes"][0] == "7"
    assert sorted(every["classes"]) == list("0123456789")


def test_cnn_and_colour_models_answer(client: TestClient) -> None:
    picture = np.random.default_rng(0).integers(0, 255, (30, 40, 3), dtype=np.uint8)
    cnn = client.post(f"{ADDRESS}?model=cnn", content=png(picture), headers=PNG).json()
    assert cnn["poses"] is None
    colour = client.post(f"{ADDRESS}?model=colour", content=png(picture), headers=PNG).json()
    assert np.shape(colour["poses"]) == (3, 16)


def test_batched_answers_equal_single_ones(client: TestClient, digits: ArrayDataset) -> None:
    contents = [png(digits.images[n, 0]) for n in range(48)]
    alone = [client.post(ADDRESS, content=content, headers=PNG).json() for content in contents]
    batcher = client.app.state.batchers[BUNDLED]  # type: ignore[attr-defined]
    batcher.batches.clear()
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda c: client.post(ADDRESS, content=c, headers=PNG).json(), contents))
    assert sum(batcher.batches) == 48
    assert max(batcher.batches) > 1  # some were computed together
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one["lengths"], other["lengths"], atol=1e-5)
        np.testing.assert_allclose(one["poses"], other["poses"], atol=1e-5)
        assert (one["best"], one["classes"]) == (other["best"], other["classes"])


def test_several_images_of_a_request_get_the_answers_of_single_ones(client: TestClient, digits: ArrayDataset) -> None:
    pictures = [wire(digits.images[n, 0]) for n in range(40)]
    alone = [client.post(ADDRESS, json=picture).json() for picture in pictures]
    batcher = client.app.state.batchers[BUNDLED]  # type: ignore[attr-defined]
    batcher.batches.clear()
    response = client.post(ADDRESS, json={"images": pictures})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert list(answer) == ["model", "class_names", "answers"]
    assert (answer["model"], answer["class_names"]) == (BUNDLED, list("0123456789"))
    assert list(batcher.batches) == [32, 8]
    for one, other in zip(alone, answer["answers"], strict=True):
        assert list(other) == ["classes", "best", "lengths", "poses"]
        assert (one["best"], one["classes"]) == (other["best"], other["classes"])
        np.testing.assert_allclose(one["lengths"], other["lengths"], atol=1e-5)
        np.testing.assert_allclose(one["poses"], other["poses"], atol=1e-5)
    none = client.post(f"{ADDRESS}?threshold=1&model=cnn", json={"images": pictures[:1]}).json()["answers"]
    assert [(found["classes"], found["poses"]) for found in none] == [([], None)]


def test_bad_images_do_not_disturb_good_ones(client: TestClient, digits: ArrayDataset) -> None:
    good = png(digits.images[0, 0])
    bad = [(b"no picture", 415), (good[:-60], 422), (png(np.zeros((40, 40), np.uint8)), 422)]
    asked = [(good, 200), *bad] * 6
    with ThreadPoolExecutor(12) as pool:
        got = list(pool.map(lambda pair: client.post(ADDRESS, content=pair[0], headers=PNG), asked))
    for response, (_, status) in zip(got, asked, strict=True):
        assert response.status_code == status, response.text
        assert response.json().get("best", "7") == "7"


@pytest.mark.parametrize(
    ("status", "words", "request_"),
    [
        (404, "there is no model", {"url": f"{ADDRESS}?model=nobody", "content": b"x", "headers": PNG}),
        (415, "must be image/* or application/json", {"url": ADDRESS, "content": b"x"}),
        (415, "got text/plain", {"url": ADDRESS, "content": b"x", "headers": {"content-type": "text/plain"}}),
        (415, "not an image", {"url": ADDRESS, "content": b"", "headers": PNG}),
        (422, "threshold", {"url": f"{ADDRESS}?threshold=nan", "content": b"x", "headers": PNG}),
        (422, "threshold", {"url": f"{ADDRESS}?threshold=1.5", "content": b"x", "headers": PNG}),
        (422, "not JSON", {"url": ADDRESS, "content": b"{", "headers": {"content-type": "application/json"}}),
        (422, "height: field required", {"url": ADDRESS, "json": {"width": 3, "channels": 1, "data": ""}}),
        (422, "bytes", {"url": ADDRESS, "json": {"width": 9, "height": 9, "channels": 1, "data": "AAAA"}}),
        (422, "images: list should have at least 1 item", {"url": ADDRESS, "json": {"images": []}}),
        (422, "images: list should have at most 64 items", {"url": ADDRESS, "json": {"images": [GREY] * 65}}),
        (422, "images.1.height: field required", {"url": ADDRESS, "json": {"images": [GREY, {"width": 3}]}}),
        (422, "images.1.data has 3 bytes", {"url": ADDRESS, "json": {"images": [GREY, GREY | {"data": "AAAA"}]}}),
        (422, "images.0: ", {"url": ADDRESS, "json": {"images": [wire(np.zeros((40, 40), np.uint8))]}}),
        (422, "extra", {"url": ADDRESS, "json": {"images": [GREY], "more": 1}}),
        (422, "width: field required", {"url": ADDRESS, "json": {"picture": 1, "images": [GREY]}}),
        (413, "too large", {"url": ADDRESS, "content": bytes(11 * 2**20), "headers": PNG}),
    ],
)
def test_bad_requests_are_refused(client: TestClient, status: int, words: str, request_: dict[str, Any]) -> None:
    response = client.post(**request_)
    assert response.status_code == status, response.text
    assert words in response.json()["error"]


@pytest.fixture
def slow() -> Iterator[tuple[TestClient, threading.Event]]:
    """A server whose network waits for an event, and that admits three images."""

    class Slow(Model):
        def __init__(self) -> None:
            super().__init__((10, 10), 1, 2)
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def forward(self, images: torch.Tensor, labels: Any = None, trace: bool = False) -> capsnet.Output:
            go.wait(20)
            return capsnet.Output(torch.full((len(images), 2), 0.5))

    go = threading.Event()
    go.set()
    app = create_app({"slow": Slow()})
    with TestClient(app, base_url=HOME, raise_server_exceptions=False) as client:
        app.state.batchers["slow"].limits.waiting = 3
        go.clear()
        yield client, go
        go.set()


def test_overload_is_refused_with_retry_after(slow: tuple[TestClient, threading.Event]) -> None:
    client, go = slow
    content = png(np.full((12, 12), 99, np.uint8))
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(client.post, ADDRESS, content=content, headers=PNG) for _ in range(8)]
        while sum(future.done() for future in asked) < 5:
            threading.Event().wait(0.01)
        refused = [future.result() for future in asked if future.done()]
        go.set()
        answered = [future.result() for future in asked if future.result() not in refused]
    assert [response.status_code for response in refused] == [503] * 5
    assert refused[0].headers["retry-after"] == "1"
    assert "try again" in refused[0].json()["error"]
    assert [response.status_code for response in answered] == [200] * 3
    assert client.post(ADDRESS, content=content, headers=PNG).status_code == 200  # it works again afterwards
