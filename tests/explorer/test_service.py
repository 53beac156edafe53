"""Which models are shown, and under which names."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import capsnet
from capsnet.data import ArrayDataset
from capsnet.explorer import _answers, _first_pair, create_app
from capsnet.explorer._first_pair import first_pair
from capsnet.explorer._gallery import Gallery
from capsnet.explorer._service import ExplorerService, ModelEntry
from capsnet.explorer._wire import Pair, Question
from capsnet.models import Model
from capsnet.serving.problems import Missing
from capsnet.serving.service import load_models
from tests.explorer.conftest import BUNDLED, HOME, OUTLINES, TestClient, as_bytes, unwire, wire


def test_public_names_contain_no_paths(tmp_path: Path, tiny: Model) -> None:
    for run in ("a/run", "b/run"):
        (tmp_path / run).mkdir(parents=True)
        capsnet.save(tiny, tmp_path / run / "model.safetensors")
    capsnet.save(tiny, tmp_path / f"{BUNDLED}.safetensors")
    sources = [tmp_path / "a/run", tmp_path / "b/run/model.safetensors", tmp_path / f"{BUNDLED}.safetensors", BUNDLED]
    models = load_models(sources)
    assert list(models) == ["run", "run-2", f"{BUNDLED}-2", BUNDLED]
    assert models[BUNDLED].num_parameters() > models[f"{BUNDLED}-2"].num_parameters()
    with TestClient(create_app(sources), base_url=HOME) as client:
        assert [model["name"] for model in client.get("/api/models").json()["models"]] == list(models)


def test_default_models_are_all_bundled_ones_the_papers_first() -> None:
    shown = load_models()
    assert next(iter(shown)) == "capsnet-mnist"
    assert sorted(shown) == capsnet.list_weights()


def test_bundled_models_have_a_gallery_without_a_download() -> None:
    for name in capsnet.list_weights():
        model = capsnet.load(name)
        gallery = Gallery(model)
        assert gallery.exists()
        of_digits = len(model.class_names) == 10  # MNIST's test digits and the data sets made from them
        assert gallery.one(3)["labels"] == [0 if of_digits else 1]


@pytest.mark.parametrize(
    "spec", ["affnist:versions=1,source=original", "svhn", "mnist:{folder}", "folder:{folder}", "?"]
)
def test_card_never_makes_the_server_download_or_open_a_folder(tmp_path: Path, spec: str) -> None:
    model = capsnet.load("capsnet-affine")
    model.card = model.card | {"data": spec.format(folder=tmp_path)}
    gallery = Gallery(model)
    assert not gallery.exists()
    with pytest.raises(Missing, match="is not bundled"):
        gallery.measured_on()


def test_data_set_that_the_user_names_is_shown(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("left", "right"):
        for part in ("train", "test"):
            (tmp_path / part / name).mkdir(parents=True)
            for n in range(3):
                noise = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
                Image.fromarray(noise).save(tmp_path / part / name / f"{n}.png")
    spec = f"folder:{tmp_path},size=12"
    frame = capsnet.data.load(spec, "test").image_size
    small: dict[str, Any] = {"conv_channels": 4, "primary_types": 2, "kernel_size": 3, "decoder": False}
    model = capsnet.create_model("capsnet", in_channels=3, image_size=frame, num_classes=2, **small)
    model.card = {"data": spec}
    service = ExplorerService({"mine": model}, spec)
    assert [service.find("mine").gallery.one(n)["labels"] for n in (0, 5)] == [[0], [1]]
    assert not ExplorerService({"mine": model}).find("mine").gallery.exists()
    with pytest.raises(ValueError, match="nothing"):
        ExplorerService({"mine": model}, "nothing")


def test_first_pair_is_one_that_the_networks_read() -> None:
    """The two longest capsules of each are those of the digits."""
    service = ExplorerService(["capsnet-small-mnist", "capsnet-multimnist"])
    small, pairs = service.entries.values()
    number = first_pair(small, service.entries.values())
    made = small.gallery.pair(number)
    for entry in (small, pairs):
        wires = {"first": made["first"], "second": made["second"], "offsets": made["offsets"]}
        seen = _answers.pair(entry, Pair.model_validate({"model": entry.name, **wires}))["seen"]
        answer = _answers.classify(entry, Question.model_validate({"model": entry.name, "seen": seen}))
        assert set(answer["order"][:2]) == set(made["labels"])
        assert answer["lengths"][answer["order"][1]] >= 0.5
    assert first_pair(pairs, service.entries.values()) <= number  # alone it is easier to please
    assert service.entries["capsnet-multimnist"].profile is not None
    assert "overlapping" in _answers.introduce(pairs)["purpose"]


@pytest.fixture(scope="module")
def outlines() -> ModelEntry:
    """The network of docs/synchrony.md, whose data set is generated and has two objects per picture."""
    return ExplorerService([OUTLINES]).find(OUTLINES.stem)


def test_gallery_of_generated_scenes_names_every_object(outlines: ModelEntry) -> None:
    examples = capsnet.data.load("outlines:size=24", "test").batch(range(60))
    page = outlines.gallery.page("2", 0, None)
    assert [item["index"] for item in page["items"]] == examples.targets[:, 2].nonzero()[:24, 0].tolist()
    for item in page["items"]:
        assert item["labels"] == examples.targets[item["index"]].nonzero()[:, 0].tolist()
    assert len(page["items"][0]["labels"]) == 2
    shown = outlines.gallery.one(5)
    assert (unwire(shown["seen"]) == as_bytes(examples.images[5])).all()
    assert outlines.gallery.page("any", 0, None)["pages"] == -(-2000 // 24)


def test_pairs_of_generated_scenes_are_its_examples(outlines: ModelEntry) -> None:
    assert _answers.introduce(outlines)["pairs"]
    examples = capsnet.data.load("outlines:size=24", "test").batch([7, 8])
    for number, image in zip((7, 2008), examples.images, strict=True):  # 2,000 of them: the numbers begin again
        made = outlines.gallery.pair(number)
        wires = {key: made[key] for key in ("first", "second", "offsets")}
        seen = _answers.pair(outlines, Pair.model_validate({"model": outlines.name, **wires}))["seen"]
        assert (unwire(seen) == as_bytes(image)).all()
    assert made["labels"] == examples.sources.classes[1].tolist()  # type: ignore[union-attr]


def test_first_pair_of_a_network_with_phases_is_one_that_it_parts(
    outlines: ModelEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its classes were not trained for: what counts is that two groups of phases are the two objects."""
    assert first_pair(outlines, [outlines]) == 0
    output = outlines.model(capsnet.data.load("outlines:size=24", "test").batch([0]).images)
    assert output.phases is not None
    monkeypatch.setattr(outlines.model, "forward", lambda images: output._replace(phases=noise(images)))
    monkeypatch.setattr(outlines, "first_pair", None)
    assert not len(_first_pair._read(outlines, np.arange(3)))


def noise(images: torch.Tensor) -> torch.Tensor:
    """Phases (B, 1, 2, H, W) that know nothing."""
    angles = 6.28 * torch.rand(len(images), *images.shape[2:], generator=torch.Generator().manual_seed(0))
    return torch.stack([angles.cos(), angles.sin()], dim=1)[:, None]


def test_generated_pictures_of_other_classes_make_no_pairs() -> None:
    """Three objects, or a digit among them: two plain outlines have other labels."""
    model = capsnet.create_model("cnn-small", image_size=(32, 32), num_classes=4)
    for spec, pairs in (("outlines", True), ("outlines:objects=3", False), ("shapes", False)):
        model.card = {"data": spec}
        assert Gallery(model).has_pairs() == pairs


def test_models_of_texts_are_refused(tmp_path: Path) -> None:
    capsnet.save(capsnet.create_model("text-cnn"), tmp_path / "text.safetensors")
    with pytest.raises(ValueError, match=r"text.safetensors takes texts"):
        load_models([tmp_path / "text.safetensors"])
    with pytest.raises(ValueError, match="at least one model"):
        create_app({})


def test_ensembles_and_onnx_files_answer_like_models(bundled: Model, digits: ArrayDataset, tmp_path: Path) -> None:
    """Without a routing to look into, but with lengths, a picture and an answer for programs."""
    pytest.importorskip("onnxruntime")
    from capsnet.export import export

    both = capsnet.ensemble([bundled, bundled])
    export(bundled, tmp_path / "digits.onnx")
    models = {"both": both, "digits": capsnet.load(tmp_path / "digits.onnx")}
    for model in models.values():
        model.card = {"data": "svhn"}  # nothing is measured in the background
    picture = digits.images[0, 0]
    with TestClient(create_app(models), base_url=HOME) as client:
        for info in client.get("/api/models").json()["models"]:
            assert (info["grid"], info["routing"], info["decoder"]) == (None, None, models[info["name"]].draws)
            body = {"model": info["name"], "seen": wire(picture)}
            drawn = client.post("/api/classify", json=body).json()
            assert drawn["order"][0] == 7
            assert drawn["reconstruction"] is not None
            if info["decoder"]:
                decode = {"model": info["name"], "poses": [drawn["poses"][7]], "classes": [7]}
                assert client.post("/api/decode", json=decode).json()["pictures"] == [drawn["reconstruction"]]
            assert client.post("/api/trace", json=body).status_code == 422
            answer = client.post(f"/api/v1/predict?model={info['name']}", json=wire(picture)).json()
            expected = capsnet.predict(picture, models[info["name"]])[0].lengths
            np.testing.assert_allclose(answer["lengths"], list(expected.values()), atol=1e-5)
