"""Routings replaced for one call and looked into, against networks that were built so."""

import base64
import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import capsnet
from capsnet import routing
from capsnet.data import ArrayDataset
from capsnet.explorer import create_app
from capsnet.models import Model, replacements, reroute
from capsnet.routing import Dynamic, Trace, _registry, undecided
from tests.explorer.conftest import BUNDLED, HOME, TestClient, tensor, wire

Ask = Callable[..., dict[str, Any]]
Refuse = Callable[..., str]


def with_routing(name: str, iterations: int | None = None) -> Model:
    """The bundled weights in a network that was built with another routing."""
    model = capsnet.load(BUNDLED)
    built = capsnet.create_model(**{**model.config, "routing": name, "iterations": iterations})
    built.load_state_dict(model.state_dict())
    return built.eval()


def traced(model: Model, picture: NDArray) -> tuple[Trace, list[float]]:
    """The library's own trace of a picture (H, W), and the lengths of the class capsules."""
    with torch.inference_mode():
        output = model(tensor(picture), trace=True)
    return output.trace, output.lengths[0].tolist()


def read(text: str) -> NDArray[np.float64]:
    return np.frombuffer(base64.b64decode(text), np.uint8).astype(np.float64)


def test_replaced_routing_holds_for_one_call(ask: Ask, bundled: Model, digits: ArrayDataset) -> None:
    seen = wire(digits.images[5, 0])
    before = ask("classify", seen=seen)["lengths"]
    for name in replacements(bundled):
        iterations = 2 if routing.get(name).iterates else None
        swapped = ask("classify", seen=seen, routing=name, iterations=iterations)
        with torch.inference_mode():
            expected = with_routing(name, iterations)(tensor(digits.images[5, 0]))
        assert swapped["lengths"] == pytest.approx(expected.lengths[0].tolist(), abs=5e-6)  # roundings of float32
        assert swapped["lengths"] != before
        assert ask("classify", seen=seen)["lengths"] == before


def test_concurrent_requests_keep_their_routings_apart(ask: Ask, bundled: Model, digits: ArrayDataset) -> None:
    ways = [{}, {"iterations": 1}, {"iterations": 5}, *({"routing": name} for name in replacements(bundled))]
    jobs = [(n, way) for n in range(4) for way in ways]

    def lengths(job: tuple[int, dict[str, Any]]) -> list[float]:
        return ask("classify", seen=wire(digits.images[job[0], 0]), **job[1])["lengths"]

    alone = [lengths(job) for job in jobs]
    with ThreadPoolExecutor(10) as visitors:
        together = list(visitors.map(lengths, jobs * 3))
    for one, many in zip(alone * 3, together, strict=True):
        assert many == pytest.approx(one, abs=1e-6)


def check_trace(answer: dict[str, Any], model: Model, picture: NDArray) -> None:
    """The answer is the library's trace, packed as the routing's declared normalisation asks."""
    own = model.class_routing
    assert own is not None
    trace, lengths = traced(model, picture)
    couplings = trace.couplings[:, 0].double().numpy()  # (R, I, J)
    R, I, J = couplings.shape
    sent = answer["offset"] + answer["scale"] * read(answer["couplings"]).reshape(R, I, J) / 255
    assert np.abs(sent - couplings).max() <= answer["scale"] / 500
    assert (answer["iterations"], tuple(answer["grid"])) == (R, model.grid)
    assert answer["start"] == {"parents": 1 / J, "children": 1 / I, "none": None}[own.normalised]
    expected = undecided(trace.couplings[:, 0], trace.logits[:, 0], own.normalised)
    assert answer["entropy"] == pytest.approx(expected.tolist(), abs=1e-6)
    assert np.array(answer["lengths"]) == pytest.approx(trace.activations[:, 0].numpy(), abs=1e-6)
    assert answer["lengths"][-1] == pytest.approx(lengths, abs=1e-5)


def test_trace_is_the_librarys(ask: Ask, bundled: Model, others: dict[str, Model], digits: ArrayDataset) -> None:
    picture = digits.images[0, 0]
    check_trace(ask("trace", seen=wire(picture)), bundled, picture)
    for name in replacements(bundled):
        check_trace(ask("trace", seen=wire(picture), routing=name), with_routing(name), picture)
    for name in ("em", "attentive", "matrix"):
        check_trace(ask("trace", model=name, seen=wire(picture)), others[name], picture)
    assert ask("trace", seen=wire(picture), iterations=7)["iterations"] == 7


def test_trace_starts_undecided_with_equal_couplings(ask: Ask, digits: ArrayDataset) -> None:
    answer = ask("trace", seen=wire(digits.images[0, 0]))
    couplings = read(answer["couplings"]).reshape(3, 288, 10)
    assert np.ptp(couplings[0]) == 0
    assert answer["entropy"][0] == pytest.approx(1)
    shares = couplings / couplings.sum(axis=-1, keepdims=True)  # of rounded couplings
    entropy = -(shares * np.log(shares)).sum(axis=-1).mean(axis=-1) / np.log(10)
    assert answer["entropy"] == pytest.approx(entropy.tolist(), abs=2e-3)


def test_presence_of_each_iteration_is_that_of_a_shorter_run(
    ask: Ask, bundled: Model, others: dict[str, Model], digits: ArrayDataset
) -> None:
    for name, model in {BUNDLED: bundled, **others}.items():
        own = model.class_routing
        if own is None or not own.iterates or len(model.routed_layers()) > 1 or model.image_size != (28, 28):
            continue
        answer = ask("trace", model=name, seen=wire(digits.images[0, 0]))
        for r, lengths in enumerate(answer["lengths"]):
            with torch.inference_mode():
                expected = reroute(model, None, r + 1)(tensor(digits.images[0, 0])).lengths[0]
            assert lengths == pytest.approx(expected.tolist(), abs=1e-5)


def test_learned_prior_makes_couplings_negative(digits: ArrayDataset) -> None:
    """The prior is added after the softmax: the entropy is that of the softmax."""
    model, seen = capsnet.load("efficient-mnist"), wire(digits.images[0, 0])
    with torch.inference_mode():
        past = model(tensor(digits.images[0, 0]), trace=True).trace
    couplings, logits = past.couplings[0, 0].double().numpy(), past.logits[0, 0].double()
    assert couplings.min() < -0.1
    with TestClient(create_app({"own": model}), base_url=HOME) as client:
        answer = client.post("/api/trace", json={"model": "own", "seen": seen}).json()
        traces = [client.post("/api/trace", json={"model": "own", "seen": seen, "class": j}).json() for j in range(10)]
    sent = answer["offset"] + answer["scale"] * read(answer["couplings"]).reshape(16, 10) / 255
    assert np.abs(sent - couplings).max() <= answer["scale"] / 500
    assert answer["start"] is None
    shares = logits.softmax(dim=-1)
    entropy = float(-(shares * shares.log()).sum(dim=-1).mean()) / np.log(10)
    assert 0.5 < entropy < 0.99
    assert answer["entropy"] == pytest.approx([entropy], abs=1e-5)
    for trace in traces:
        vote = trace["votes"]
        points = np.frombuffer(base64.b64decode(vote["points"]), "<f4").reshape(16, 2)
        assert np.abs(points).max() < 100  # centred among the votes, also where weights cancel out
        assert vote["explained"] < 0.95


def test_parents_of_children_on_a_grid_lie_among_their_votes(ask: Ask, digits: ArrayDataset) -> None:
    """A parent of matrix capsules is a weighted mean of its votes."""
    votes = ask("trace", model="matrix", seen=wire(digits.images[0, 0]), klass=3)["votes"]
    points = np.frombuffer(base64.b64decode(votes["points"]), "<f4").reshape(18, 2)
    for parent in votes["parents"]:
        assert (points.min(axis=0) - 1e-5 <= parent).all()
        assert (parent <= points.max(axis=0) + 1e-5).all()


@pytest.mark.parametrize(("name", "y", "x"), [(BUNDLED, 1, 2), ("matrix", 1, 2), ("attentive", 0, 0)])
def test_child_depends_on_its_receptive_field_only(
    client: TestClient, bundled: Model, others: dict[str, Model], name: str, y: int, x: int
) -> None:
    """With one iteration children do not compete, so neighbours have no influence."""
    info = next(model for model in client.get("/api/models").json()["models"] if model["name"] == name)
    model = {BUNDLED: bundled, **others}[name]
    model = reroute(model, None, 1) if info["routing"]["iterations"] else model
    image = torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(0)).requires_grad_()  # black moves nothing
    inputs: list[torch.Tensor] = []
    layer = list(model.routed_layers().values())[-1]
    hook = layer.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    model(image)
    hook.remove()
    H, W, T = info["grid"]
    child = inputs[0].reshape(H, W, T, -1)[y, x].sum()
    moved = torch.autograd.grad(child, image)[0][0, 0].nonzero()
    size, stride = info["receptive"]["size"], info["receptive"]["stride"]
    assert moved.min(dim=0).values.tolist() == [stride * y, stride * x]
    assert moved.max(dim=0).values.tolist() == [stride * y + size - 1, stride * x + size - 1]


def test_votes_lie_in_the_plane_of_their_principal_components(
    ask: Ask, refuse: Refuse, bundled: Model, digits: ArrayDataset
) -> None:
    seen = wire(digits.images[0, 0])
    answer = ask("trace", seen=seen, klass=7)["votes"]
    trace, _ = traced(bundled, digits.images[0, 0])
    votes = trace.votes[0, :, 7].double().numpy()
    points = np.frombuffer(base64.b64decode(answer["points"]), "<f4").reshape(288, 2).astype(np.float64)
    coupling = trace.couplings[:, 0, :, 7].double().numpy()  # (R, I)
    norms = np.linalg.norm(votes, axis=1)
    # the plane: centred at the weighted mean, axes uncorrelated, the first with more spread, no distance stretched
    w = coupling[-1] * norms
    assert w @ points / w.sum() == pytest.approx(np.zeros(2), abs=1e-5)
    spread = (points * w[:, None]).T @ points / w.sum()
    away = votes - w @ votes / w.sum()
    values = np.linalg.eigvalsh((away * w[:, None]).T @ away / w.sum())
    assert spread == pytest.approx(np.diag(values[::-1][:2]), abs=1e-5)
    assert answer["explained"] == pytest.approx(values[-2:].sum() / values.sum())
    # the parents lie in the same plane: with dynamic routing each lies on the ray from zero through the coupled votes
    origin, parents = np.array(answer["origin"]), np.array(answer["parents"])
    for r in range(3):
        mean = coupling[r] @ points / coupling[r].sum() - origin
        way = parents[r] - origin
        assert mean @ way / (np.linalg.norm(mean) * np.linalg.norm(way)) == pytest.approx(1, abs=1e-4)
    assert ask("trace", seen=seen, klass=7)["votes"] == answer  # no flipped axes
    assert ask("trace", seen=seen)["votes"] is None
    assert "from 0 to 9" in refuse(422, "trace", seen=seen, klass=10)


# The toy: votes in the plane


def test_toy_runs_every_routing_and_form(client: TestClient) -> None:
    votes = np.random.default_rng(3).normal(0, 0.8, (9, 3, 2))
    for name in routing.list_forms():
        iterates = routing.get(name).iterates
        options = {"iterations": 6} if iterates else {}
        response = client.post("/api/toy/route", json={"votes": votes.tolist(), "routing": name, **options})
        assert response.status_code == 200, response.text
        answer, own = response.json(), routing.get(name, **options)
        trace = own(torch.from_numpy(votes)[None], trace=True).trace
        assert trace is not None
        assert len(answer["couplings"]) == (6 if iterates else 1)
        np.testing.assert_allclose(answer["couplings"], trace.couplings[:, 0], atol=1e-9)
        np.testing.assert_allclose(answer["poses"], trace.poses[:, 0], atol=1e-9)
        np.testing.assert_allclose(answer["presences"], trace.activations[:, 0], atol=1e-9)
        expected = undecided(trace.couplings[:, 0], trace.logits[:, 0], own.normalised)
        np.testing.assert_allclose(answer["entropy"], expected, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"routing": "nobody"}, "nobody"),
        ({"routing": "uniform", "iterations": 2}, "iterations"),
        ({"iterations": 11}, "iterations"),
        ({"votes": []}, "votes"),
        ({"votes": [[[0.0]]]}, "votes"),
        ({"votes": [[[0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]}, "every child needs a vote for each parent"),
        ({"votes": [[[0.0, 0.0]]] * 33}, "votes"),
        ({"votes": [[[0.0, 0.0]] * 9]}, "votes"),
        ({"votes": [[[0.0, 1e9]]]}, "votes"),
    ],
)
def test_toy_refuses_bad_votes(client: TestClient, change: dict[str, Any], words: str) -> None:
    body = {"votes": [[[0.1, 0.2], [0.3, 0.4]]], "routing": "dynamic", **change}
    response = client.post("/api/toy/route", json=body)
    assert response.status_code == 422, response.text
    assert words in response.json()["error"]


@pytest.fixture
def sharper() -> Iterator[str]:
    """A routing that is registered while the server runs."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Sharper(Dynamic):
        name: ClassVar[str] = "sharper"
        sentence: ClassVar[str] = "Each child doubles its vote."
        forms: ClassVar[dict[str, dict[str, Any]]] = {"sharper-still": {"update": "set"}}

        def route(self, votes: torch.Tensor, *rest: Any) -> Any:
            return super().route(2 * votes, *rest)

    routing.register(Sharper)
    yield "sharper"
    del _registry._ROUTINGS["sharper"]


def test_routing_registered_later_is_offered(client: TestClient, ask: Ask, sharper: str, digits: ArrayDataset) -> None:
    known = client.get("/api/models").json()
    info = {routing["name"]: routing for routing in known["routings"]}
    assert info[sharper]["sentence"] == "Each child doubles its vote."
    assert info["sharper-still"]["iterations"] == 3
    assert sharper in known["models"][0]["routings"]
    seen = wire(digits.images[0, 0])
    assert ask("trace", seen=seen, routing=sharper)["iterations"] == 3
    assert ask("classify", seen=seen, routing=sharper)["lengths"] != ask("classify", seen=seen)["lengths"]
    body = {"votes": [[[0.5, 0.2], [0.3, -0.4]]], "routing": "sharper-still", "iterations": 4}
    assert len(client.post("/api/toy/route", json=body).json()["entropy"]) == 4


def test_contributions_add_up_to_the_unsquashed_length(ask: Ask, bundled: Model, digits: ArrayDataset) -> None:
    seen = wire(digits.images[0, 0])
    answer = ask("trace", seen=seen)
    trace, lengths = traced(bundled, digits.images[0, 0])
    sent = np.frombuffer(base64.b64decode(answer["contributions"]), dtype="<i2").reshape(3, 288, 10)
    brought = sent * (answer["contribution"] / 32767)  # (R, I, J)
    votes, couplings = trace.votes[0].double().numpy(), trace.couplings[:, 0].double().numpy()
    for r in range(3):
        for j in (3, 7):
            pose = trace.poses[r, 0, j].double().numpy()
            expected = [couplings[r, i, j] * (votes[i, j] @ pose) / np.linalg.norm(pose) for i in range(288)]
            np.testing.assert_allclose(brought[r, :, j], expected, atol=answer["contribution"] / 32767)
            total = sum(couplings[r, i, j] * votes[i, j] for i in range(288))
            assert brought[r, :, j].sum() == pytest.approx(np.linalg.norm(total), abs=0.01)
    squared = brought[-1, :, 7].sum() ** 2
    assert squared / (1 + squared) == pytest.approx(lengths[7], abs=1e-3)  # the paper's squash
