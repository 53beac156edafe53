"""Routings replaced for one call, and looked into: against networks that were built so."""

import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import capsnet
from capsnet.data import ArrayDataset
from capsnet.explorer import create_app
from capsnet.explorer._rerouting import listening, reroute
from capsnet.models import Model

from .conftest import BUNDLED, HOME, TestClient, tensor, wire

Ask = Callable[..., dict[str, Any]]
Refuse = Callable[..., str]


def with_routing(routing: str, iterations: int | None = None) -> Model:
    """The bundled weights in a network that was built with another routing."""
    model = capsnet.load(BUNDLED)
    built = capsnet.create_model(**{**model.config, "routing": routing, "iterations": iterations})
    built.load_state_dict(model.state_dict())
    return built.eval()


@pytest.mark.parametrize("routing", ["attention", "dynamic", "kmeans", "uniform"])
def test_another_routing_for_one_call(ask: Ask, digits: ArrayDataset, routing: str) -> None:
    """The answer is that of a network built so, and the next call has the model's own routing again."""
    seen = wire(digits.images[5, 0])
    before = ask("classify", seen=seen)["lengths"]
    options: dict[str, Any] = {"routing": routing} | ({} if routing == "uniform" else {"iterations": 2})
    swapped = ask("classify", seen=seen, **options)
    with torch.inference_mode():
        expected = with_routing(routing, options.get("iterations"))(tensor(digits.images[5, 0]))
    assert swapped["lengths"] == pytest.approx(expected.lengths[0].tolist(), abs=1e-6)
    assert swapped["lengths"] != before
    assert ask("classify", seen=seen)["lengths"] == before


def test_many_visitors_with_different_routings(ask: Ask, digits: ArrayDataset) -> None:
    ways: list[dict[str, Any]] = [
        {},
        {"iterations": 1},
        {"iterations": 5},
        {"routing": "kmeans"},
        {"routing": "uniform"},
    ]
    jobs = [(n, way) for n in range(4) for way in ways]

    def lengths(job: tuple[int, dict[str, Any]]) -> list[float]:
        return ask("classify", seen=wire(digits.images[job[0], 0]), **job[1])["lengths"]

    alone = [lengths(job) for job in jobs]
    with ThreadPoolExecutor(10) as visitors:
        together = list(visitors.map(lengths, jobs * 4))
    for one, many in zip(alone * 4, together, strict=True):
        assert many == pytest.approx(one, abs=1e-6)


def test_trace(ask: Ask, bundled: Model, digits: ArrayDataset) -> None:
    answer = ask("trace", seen=wire(digits.images[0, 0]))
    with torch.inference_mode():
        output = bundled(tensor(digits.images[0, 0]), trace=True)
    couplings = output.trace.couplings[:, 0].double().numpy()  # (R, I, J)
    sent = np.frombuffer(base64.b64decode(answer["couplings"]), np.uint8).reshape(3, 288, 10)
    assert np.abs(sent - 255 * couplings).max() <= 0.501
    assert (answer["iterations"], answer["grid"]) == (3, [6, 6, 8])
    assert (answer["offset"], answer["scale"], answer["start"]) == (0, 1, 0.1)
    entropy = -(couplings * np.log(couplings)).sum(-1).mean(-1) / np.log(10)
    assert answer["entropy"] == pytest.approx(entropy.tolist(), abs=1e-6)
    assert answer["entropy"][0] == pytest.approx(1)
    lengths = output.trace.poses[:, 0].norm(dim=-1)
    assert np.array(answer["lengths"]) == pytest.approx(lengths.numpy(), abs=1e-6)
    assert answer["lengths"][-1] == pytest.approx(ask("classify", seen=wire(digits.images[0, 0]))["lengths"], abs=1e-5)
    assert ask("trace", seen=wire(digits.images[0, 0]), iterations=7)["iterations"] == 7


def test_trace_of_other_routings(ask: Ask, others: dict[str, Model], digits: ArrayDataset) -> None:
    """EM's presence is not a pose's length, attention's shares of a parent are too small for a byte as they are."""
    seen = wire(digits.images[0, 0])
    answer = ask("trace", model="em", seen=seen)
    for r in range(3):
        with torch.inference_mode():
            expected = reroute(others["em"], None, r + 1)(tensor(digits.images[0, 0])).lengths[0]
        assert answer["lengths"][r] == pytest.approx(expected.tolist(), abs=1e-5)
    answer = ask("trace", seen=seen, routing="attention")
    sent = np.frombuffer(base64.b64decode(answer["couplings"]), np.uint8).reshape(3, 288, 10) / 255 * answer["scale"]
    assert sent.sum(axis=1) == pytest.approx(np.ones((3, 10)), abs=0.02)
    assert (answer["offset"], answer["start"]) == (0, pytest.approx(1 / 288))
    with torch.inference_mode():
        attention = with_routing("attention")(tensor(digits.images[0, 0]), trace=True).trace.couplings[:, 0].numpy()
    among_children = -(attention * np.log(attention)).sum(axis=1).mean(axis=-1) / np.log(288)
    assert answer["entropy"] == pytest.approx(among_children.tolist(), abs=1e-5)
    answer = ask("trace", model="attentive", seen=seen)
    assert (answer["grid"], answer["offset"], answer["scale"], answer["start"]) == ([1, 1, 16], 0, 1, 0.1)


def test_a_learned_prior_takes_couplings_below_zero(digits: ArrayDataset) -> None:
    """Self-attention adds its prior after the softmax: what was shared out is the softmax, the couplings are not."""
    model, seen = capsnet.load("efficient-mnist"), wire(digits.images[0, 0])
    with torch.inference_mode():
        past = model(tensor(digits.images[0, 0]), trace=True).trace
    couplings, logits = past.couplings[0, 0].double().numpy(), past.logits[0, 0].double()
    assert couplings.min() < -0.1
    with TestClient(create_app({"own": model}), base_url=HOME) as client:
        answer = client.post("/api/trace", json={"model": "own", "seen": seen}).json()
        votes = [client.post("/api/votes", json={"model": "own", "seen": seen, "class": j}).json() for j in range(10)]
        told = client.get("/api/models").json()["models"][0]
    sent = answer["offset"] + answer["scale"] * read(answer["couplings"]).reshape(16, 10) / 255
    assert np.abs(sent - couplings).max() <= answer["scale"] / 500
    assert answer["start"] is None
    shares = logits.softmax(dim=-1)
    entropy = float(-(shares * shares.log()).sum(dim=-1).mean()) / np.log(10)
    assert 0.5 < entropy < 0.99
    assert answer["entropy"] == pytest.approx([entropy], abs=1e-5)
    for j, vote in enumerate(votes):
        points = np.frombuffer(base64.b64decode(vote["points"]), "<f4").reshape(16, 2)
        assert np.abs(points).max() < 100  # centred among the votes, not far away where weights cancel out
        assert vote["explained"] < 0.95
        weights = vote["offset"] + vote["scale"] * read(vote["weights"]) / 255
        assert np.abs(weights - couplings[:, j]).max() <= vote["scale"] / 500
    assert told["receptive"] == {"size": 27, "stride": 2, "start": 0}


def read(text: str) -> NDArray[np.float64]:
    return np.frombuffer(base64.b64decode(text), np.uint8).astype(np.float64)


def test_trace_of_children_on_a_grid(ask: Ask, others: dict[str, Model], digits: ArrayDataset) -> None:
    """Matrix capsules: what comes is the network's own trace, and how active each class is after each iteration."""
    seen, model = wire(digits.images[0, 0]), others["matrix"]
    answer = ask("trace", model="matrix", seen=seen)
    with torch.inference_mode():
        output = model(tensor(digits.images[0, 0]), trace=True)
    sent = np.frombuffer(base64.b64decode(answer["couplings"]), np.uint8).reshape(answer["iterations"], 18, 10)
    assert np.abs(sent - 255 * output.trace.couplings[:, 0].double().numpy()).max() <= 0.501
    assert tuple(answer["grid"]) == output.trace.grid == (3, 3, 2)
    assert answer["lengths"][-1] == pytest.approx(output.lengths[0].tolist(), abs=1e-6)
    votes = ask("votes", model="matrix", seen=seen, klass=3)
    assert len(base64.b64decode(votes["points"])) == 18 * 2 * 4
    # a parent is the mean of its votes, each with its share and its child's presence: it lies among them
    points = np.frombuffer(base64.b64decode(votes["points"]), "<f4").reshape(18, 2)
    for parent in votes["parents"]:
        assert (points.min(axis=0) - 1e-5 <= parent).all()
        assert (parent <= points.max(axis=0) + 1e-5).all()


@pytest.mark.parametrize(("name", "y", "x"), [(BUNDLED, 1, 2), ("matrix", 1, 2), ("attentive", 0, 0)])
def test_a_child_sees_what_is_outlined(
    client: TestClient, bundled: Model, others: dict[str, Model], name: str, y: int, x: int
) -> None:
    """The children of one row and column depend on the pixels of their square (in one iteration nobody competes)."""
    told = next(model for model in client.get("/api/models").json()["models"] if model["name"] == name)
    model = reroute({BUNDLED: bundled, **others}[name], None, None if name == "attentive" else 1)
    image = torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(0)).requires_grad_()  # black moves nothing
    heard: list[tuple[torch.Tensor, torch.Tensor | None]] = []
    listening(model, heard)(image)
    H, W, T = told["grid"]
    child = heard[0][0].reshape(H, W, T, -1)[y, x].sum()
    moved = torch.autograd.grad(child, image)[0][0, 0].nonzero()
    size, stride = told["receptive"]["size"], told["receptive"]["stride"]
    assert moved.min(dim=0).values.tolist() == [stride * y, stride * x]
    assert moved.max(dim=0).values.tolist() == [stride * y + size - 1, stride * x + size - 1]


def test_votes(ask: Ask, refuse: Refuse, bundled: Model, digits: ArrayDataset) -> None:
    seen = wire(digits.images[0, 0])
    answer = ask("votes", seen=seen, klass=7)
    heard: list[torch.Tensor] = []
    layer = bundled.get_submodule("classes")
    hook = layer.register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0]))
    with torch.inference_mode():
        output = bundled(tensor(digits.images[0, 0]), trace=True)
        votes = layer.votes(heard[0])[0, :, 7].double().numpy()  # type: ignore[operator]
    hook.remove()
    points = np.frombuffer(base64.b64decode(answer["points"]), "<f4").reshape(288, 2).astype(np.float64)
    coupling = output.trace.couplings[:, 0, :, 7].double().numpy()  # (R, I)
    weights = np.frombuffer(base64.b64decode(answer["weights"]), np.uint8).reshape(3, 288)
    assert np.abs(weights - 255 * coupling).max() <= 0.501
    norms = np.linalg.norm(votes, axis=1)
    assert (answer["offset"], answer["scale"]) == (0, 1)
    # the plane: centred at the weighted mean, axes uncorrelated, the first with more spread, no distance stretched
    w = coupling[-1] * norms
    assert w @ points / w.sum() == pytest.approx(np.zeros(2), abs=1e-5)
    spread = (points * w[:, None]).T @ points / w.sum()
    away = votes - w @ votes / w.sum()
    values = np.linalg.eigvalsh((away * w[:, None]).T @ away / w.sum())
    assert spread == pytest.approx(np.diag(values[::-1][:2]), abs=1e-5)
    assert answer["explained"] == pytest.approx(values[-2:].sum() / values.sum())
    # the parents lie in the same plane: with dynamic routing each is on the ray from zero through the coupled votes
    origin, parents = np.array(answer["origin"]), np.array(answer["parents"])
    for r in range(3):
        mean = coupling[r] @ points / coupling[r].sum() - origin
        way = parents[r] - origin
        assert mean @ way / (np.linalg.norm(mean) * np.linalg.norm(way)) == pytest.approx(1, abs=1e-4)
    assert ask("votes", seen=seen, klass=7) == answer  # no flipped axes
    assert "from 0 to 9" in refuse(422, "votes", seen=seen, klass=10)
