"""Every endpoint against the same computation made directly with the library."""

import io
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient

import capsnet
from capsnet import routing
from capsnet.data import ArrayDataset
from capsnet.explorer import create_app
from capsnet.inference import OFFSETS, preprocessing_of, sweep_dimensions
from capsnet.models import Model, replacements, reroute
from capsnet.routing import Routing
from tests.explorer.conftest import BUNDLED, HOME, as_bytes, tensor, unwire, wire

Ask = Callable[..., dict[str, Any]]
Refuse = Callable[..., str]

# the models of docs/synchrony.md, and whether their pixels have phases
SYNCHRONISED = {
    "akorn-small": True,
    "akorn-pyramid": True,
    "rotating-small": True,
    "complex-cnn-small": False,
    "decoupled-cnn-small": False,
    "pathnet": False,
}


def check_routing(info: dict[str, Any] | None, own: Routing | None) -> None:
    if info is None or own is None:
        assert info is own is None
        return
    for fact in ("name", "sentence", "iteration_name", "normalised", "decides", "presence_is_length"):
        assert info[fact] == getattr(own, fact)
    assert (info["iterations"] is not None) == own.iterates
    assert (info["coupling"], info["presence"]) == own.formula


def test_models_and_routings_are_described(client: TestClient, bundled: Model, others: dict[str, Model]) -> None:
    answer = client.get("/api/models").json()
    for info in answer["routings"]:
        own = routing.get(info["name"])
        check_routing(info | {"name": own.name}, own)
    assert [info["name"] for info in answer["routings"]] == routing.list_forms()
    models = {model["name"]: model for model in answer["models"]}
    first = next(iter(models.values()))
    assert first["name"] == BUNDLED
    assert (first["image_size"], first["channels"], first["dims"], first["decoder"]) == ([28, 28], 1, 16, True)
    assert first["parameters"] == bundled.num_parameters()
    for name, model in {BUNDLED: bundled, **others}.items():
        check_routing(models[name]["routing"], model.class_routing)
        assert models[name]["routings"] == replacements(model)
    assert first["grid"] == [6, 6, 8]
    assert first["test_accuracy"] == pytest.approx(0.9948)
    assert first["margins"] == models["em"]["margins"] == {"present": 0.9, "absent": 0.1}
    assert models["matrix"]["margins"] is None  # spread loss
    assert models["cnn"]["margins"] is None  # cross entropy
    assert first["receptive"] == {"size": 17, "stride": 2, "start": 0}
    assert models["attentive"]["receptive"] == {"size": 27, "stride": 2, "start": 0}
    assert models["cnn"]["receptive"] is None
    assert [name for name, model in models.items() if model["gallery"]] == [BUNDLED, "pairs"]
    assert [name for name, model in models.items() if model["pairs"]] == [BUNDLED, "pairs"]
    ranges, means = np.array(first["ranges"]), np.array(first["means"])
    assert ranges.shape == (10, 16, 2)
    assert (ranges[..., 0] < means).all()
    assert (means < ranges[..., 1]).all()
    assert np.array(first["names"]).shape == (10, 16)
    assert models["pairs"]["multi"]
    assert not first["multi"]
    assert (models["cnn"]["dims"], models["cnn"]["routing"], models["cnn"]["grid"]) == (None, None, None)
    assert models["matrix"]["grid"] == [3, 3, 2]
    assert models["attentive"]["grid"] == [1, 1, 16]
    assert models["colour"]["ranges"] is None


def test_see_is_what_predict_sees(ask: Ask, bundled: Model, digits: ArrayDataset) -> None:
    canvas = np.zeros((200, 200), np.uint8)
    canvas[30:142, 60:172] = np.kron(digits.images[4, 0], np.ones((4, 4), np.uint8))
    answer = ask("see", image=wire(canvas), centre=True)
    assert (unwire(answer["seen"]) == as_bytes(preprocessing_of(bundled)(canvas))).all()
    plain = unwire(ask("see", image=wire(canvas), centre=False)["seen"])[:, :, 0]
    small = np.asarray(Image.fromarray(canvas).resize((28, 28), Image.Resampling.BILINEAR))
    assert np.abs(plain.astype(int) - small).max() <= 1


@pytest.mark.parametrize("centre", [True, False])
def test_empty_canvas_is_black_and_no_error(ask: Ask, centre: bool) -> None:
    answer = ask("see", image=wire(np.zeros((280, 280), np.uint8)), centre=centre)
    assert not unwire(answer["seen"]).any()


def test_first_dot_is_no_error(ask: Ask) -> None:
    canvas = np.zeros((560, 560), np.uint8)
    canvas[100:102, 100:102] = 255
    assert unwire(ask("see", image=wire(canvas), centre=True)["seen"]).shape == (28, 28, 1)


def test_colour_and_odd_sizes_are_seen(ask: Ask, others: dict[str, Model]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (37, 61, 3), dtype=np.uint8)
    for centre in (True, False):
        seen = ask("see", model="colour", image=wire(picture), centre=centre)["seen"]
        assert unwire(seen).shape == (20, 24, 3)
        answer = ask("classify", model="colour", seen=seen)
        with torch.inference_mode():
            image = torch.from_numpy(unwire(seen).transpose(2, 0, 1).astype(np.float32))[None] / 255
            output = others["colour"](image)
        assert answer["lengths"] == output.lengths[0].tolist()
        assert (unwire(answer["reconstruction"]) == as_bytes(output.reconstruction[0])).all()
    for shape in ((1, 1, 3), (1, 40, 1), (1024, 2, 1)):
        seen = ask("see", image=wire(np.full(shape, 200, np.uint8)), centre=False)["seen"]
        assert unwire(seen).shape == (28, 28, 1)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_upload_is_prepared_as_by_predict(client: TestClient, bundled: Model, digits: ArrayDataset, form: str) -> None:
    photo = Image.fromarray(255 - digits.images[3, 0]).resize((300, 300))
    file = io.BytesIO()
    photo.save(file, form)
    for centre in ("true", "false"):
        response = client.post(f"/api/upload?model={BUNDLED}&centre={centre}", content=file.getvalue())
        assert response.status_code == 200, response.text
        seen = unwire(response.json()["seen"])
        if centre == "true":
            expected = as_bytes(preprocessing_of(bundled)(Image.open(io.BytesIO(file.getvalue()))))
            assert (seen == expected).all()
            assert capsnet.predict(seen[:, :, 0], bundled)[0].label == str(digits.targets[3])


def test_upload_is_turned_upright(client: TestClient, digits: ArrayDataset) -> None:
    """Phones store pictures lying down and say so in the EXIF data."""
    upright = Image.fromarray(255 - digits.images[0, 0]).resize((280, 280))
    lying, straight = io.BytesIO(), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to the right to see it upright
    upright.rotate(90).save(lying, "PNG", exif=exif)
    upright.save(straight, "PNG")
    seen = [
        client.post(f"/api/upload?model={BUNDLED}&centre=true", content=file.getvalue()).json()["seen"]
        for file in (lying, straight)
    ]
    assert seen[0] == seen[1]


def test_classify_is_the_models_answer(ask: Ask, bundled: Model, digits: ArrayDataset) -> None:
    for n in (0, 1, 2597):
        answer = ask("classify", seen=wire(digits.images[n, 0]))
        with torch.inference_mode():
            output = bundled(tensor(digits.images[n, 0]))
        assert answer["lengths"] == output.lengths[0].tolist()
        assert answer["poses"] == output.poses[0].tolist()
        assert answer["order"] == sorted(range(10), key=lambda j: -answer["lengths"][j])
        assert (unwire(answer["reconstruction"]) == as_bytes(output.reconstruction[0])).all()
        assert answer["milliseconds"] > 0
        assert answer["parameters"] == bundled.num_parameters()


def test_models_without_poses_or_decoder_are_refused_decoding(
    ask: Ask, refuse: Refuse, others: dict[str, Model], digits: ArrayDataset
) -> None:
    seen = wire(digits.images[0, 0])
    answer = ask("classify", model="cnn", seen=seen)
    assert answer["poses"] is None
    assert answer["reconstruction"] is None
    assert sum(answer["lengths"]) == pytest.approx(1, abs=1e-5)
    answer = ask("classify", model="matrix", seen=seen, iterations=1)
    with torch.inference_mode():
        expected = reroute(others["matrix"], None, 1)(tensor(digits.images[0, 0]))
    assert answer["lengths"] == expected.lengths[0].tolist()
    assert "decoder" in refuse(422, "decode", model="cnn", poses=[[0.0] * 16], classes=[0])
    assert "decoder" in refuse(422, "sweep", model="matrix", pose=[0.0] * 16, klass=0)
    assert "class capsules" in refuse(422, "trace", model="cnn", seen=seen)
    assert "class capsules" in refuse(422, "trace", model="cnn", seen=seen, klass=0)
    assert "no routing" in refuse(422, "classify", model="cnn", seen=seen, iterations=2)
    assert "learned tensors" in refuse(422, "classify", model="em", seen=seen, routing="dynamic")


def test_decode_draws_poses(ask: Ask, refuse: Refuse, bundled: Model) -> None:
    poses = torch.randn(16, 16) / 4
    classes = [n % 10 for n in range(16)]
    capsules = torch.zeros(16, 10, 16)
    capsules[torch.arange(16), classes] = poses
    with torch.inference_mode():
        expected = as_bytes(bundled.decode(capsules, torch.tensor(classes)))
    answer = ask("decode", poses=poses.tolist(), classes=classes)
    assert (np.stack([unwire(p) for p in answer["pictures"]]) == expected).all()
    assert "as many classes" in refuse(422, "decode", poses=[[0.0] * 16], classes=[1, 2])
    assert "has 16 numbers" in refuse(422, "decode", poses=[[0.0] * 15], classes=[1])
    assert "from 0 to 9" in refuse(422, "decode", poses=[[0.0] * 16], classes=[10])
    assert "poses" in refuse(422, "decode", poses=[[0.0] * 16] * 17, classes=[1] * 17)


def test_sweep_moves_each_dimension(ask: Ask, bundled: Model) -> None:
    pose = torch.randn(16) / 4
    capsules = torch.zeros(10, 16)
    capsules[4] = pose
    pictures = as_bytes(sweep_dimensions(bundled, capsules, 4))  # (16, 11, 28, 28, 1)
    answer = ask("sweep", pose=pose.tolist(), klass=4)
    assert answer["offsets"] == list(OFFSETS)
    sprite = unwire(answer["pictures"])
    assert sprite.shape == (16 * 28, 11 * 28, 1)
    for row in (0, 7, 15):
        for column in (0, 5, 10):
            cell = sprite[28 * row : 28 * (row + 1), 28 * column : 28 * (column + 1)]
            assert (cell == pictures[row, column]).all()


def test_pair_is_multimnist(ask: Ask, client: TestClient, refuse: Refuse) -> None:
    pairs = capsnet.data.multimnist("test")
    for number in (0, 17, 9_999):
        drawn = client.get(f"/api/pair/random?model=pairs&number={number}").json()
        batch = pairs.batch([number])
        assert drawn["labels"] == batch.sources.classes[0].tolist()  # type: ignore[union-attr]
        made = ask("pair", model="pairs", first=drawn["first"], second=drawn["second"], offsets=drawn["offsets"])
        assert (unwire(made["seen"]) == as_bytes(batch.images[0])).all()
        alone = np.stack([unwire(picture) for picture in made["alone"]])
        assert (alone == as_bytes(batch.sources.images[0])).all()  # type: ignore[union-attr]
    drawn = client.get("/api/pair/random?model=pairs&number=9999999").json()
    assert drawn["labels"][0] != drawn["labels"][1]
    first = wire(np.full((30, 36), 200, np.uint8))
    made = ask("pair", model="pairs", first=first, second=first, offsets=[[12, -12], [-12, 12]])
    assert unwire(made["seen"]).max() == 255
    assert unwire(made["alone"][0])[:, :, 0].sum() == 200 * (36 - 15) * (36 - 12)
    assert "offsets" in refuse(422, "pair", model="pairs", first=first, second=first, offsets=[[13, 0], [0, 0]])
    assert "must fit" in refuse(422, "pair", first=first, second=first, offsets=[[0, 0], [0, 0]])


def test_gallery_pages_hold_the_examples_of_their_kind(client: TestClient, digits: ArrayDataset) -> None:
    page = client.get(f"/api/gallery?model={BUNDLED}&kind=3&page=1").json()
    expected = np.flatnonzero(digits.targets == 3)[24:48]
    assert [item["index"] for item in page["items"]] == expected.tolist()
    assert page["pages"] == -(-int((digits.targets == 3).sum()) // 24)
    sprite = unwire(page["sprite"])
    assert (sprite[:, 28:56, 0] == digits.images[expected[1], 0]).all()
    wrong = client.get(f"/api/gallery?model={BUNDLED}&kind=wrong").json()["items"]
    hard = client.get(f"/api/gallery?model={BUNDLED}&kind=hard").json()["items"]
    assert len(wrong) == len(hard) == 24
    for item in wrong[:3] + hard[:3]:
        answer = client.get(f"/api/digit/{item['index']}?model={BUNDLED}").json()
        assert answer["labels"] == item["labels"] == [digits.targets[item["index"]]]
        best = client.post("/api/classify", json={"model": BUNDLED, "seen": answer["seen"]}).json()["order"][0]
        assert best == (item["labels"][0] if item["seen_as"] is None else item["seen_as"])
        assert (item["seen_as"] is None) == (item in hard)
    assert len(client.get(f"/api/gallery?model={BUNDLED}&kind=hard&page=3").json()["items"]) == 24
    assert client.get(f"/api/gallery?model={BUNDLED}&kind=any").json()["pages"] == 417
    middle = unwire(client.get("/api/digit/0?model=pairs").json()["seen"])[4:32, 4:32, 0]
    assert (middle == digits.images[0, 0]).all()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("gallery?model=nobody", 404),
        (f"gallery?model={BUNDLED}&kind=10", 422),
        (f"gallery?model={BUNDLED}&kind=easy", 422),
        (f"gallery?model={BUNDLED}&page=417", 404),
        (f"gallery?model={BUNDLED}&page=-1", 422),
        ("gallery?model=colour", 404),
        ("pair/random?model=colour", 404),
        (f"digit/10000?model={BUNDLED}", 404),
        (f"digit/-1?model={BUNDLED}", 422),
        (f"digit/x?model={BUNDLED}", 422),
        ("digit/1", 422),
        (f"pair/random?model={BUNDLED}&number=10000000", 422),
        ("nothing", 404),
    ],
)
def test_missing_things_are_refused(client: TestClient, path: str, status: int) -> None:
    response = client.get(f"/api/{path}")
    assert response.status_code == status
    assert len(response.json()["error"]) > 10


def test_profiles_of_other_models_are_measured_later(client: TestClient) -> None:
    for _ in range(300):
        model = next(m for m in client.get("/api/models").json()["models"] if m["name"] == "pairs")
        if model["ranges"] is not None:
            break
        time.sleep(0.1)
    assert np.array(model["ranges"]).shape == (10, 16, 2)
    assert np.array(model["means"]).shape == (10, 16)
    assert client.get("/api/gallery?model=pairs&kind=hard").json()["items"] == []  # its examples have two classes


@pytest.fixture(scope="module")
def synchronised() -> Iterator[TestClient]:
    """Every model of docs/synchrony.md, untrained."""
    models = {name: capsnet.create_model(name).eval() for name in SYNCHRONISED}
    for model in models.values():
        model.card = {"data": "svhn"}  # not bundled, so nothing is measured in the background
    with TestClient(create_app(models), base_url=HOME) as client:
        yield client


@pytest.mark.parametrize("name", SYNCHRONISED)
def test_synchronisation_networks_answer_but_route_nothing(
    synchronised: TestClient, digits: ArrayDataset, name: str
) -> None:
    asked = {"model": name, "seen": wire(digits.images[0, 0])}
    answer = synchronised.post("/api/classify", json=asked)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["lengths"]) == 10
    assert (answer.json()["phases"] is not None) == SYNCHRONISED[name]
    refused = synchronised.post("/api/trace", json=asked)
    assert refused.status_code == 422
    assert refused.json() == {"error": "this model has no layer of class capsules to look into"}
