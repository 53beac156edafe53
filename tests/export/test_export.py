"""Every registered model leaves: the file agrees with torch, says what it takes, and the table in the guide is true."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import capsnet
from capsnet.data import Preprocess
from capsnet.export import TOLERANCE, export
from capsnet.export import _export as exporting
from capsnet.export._program import made_up, reason
from capsnet.models import Model

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
GUIDE = Path(__file__).parents[2] / "docs" / "export.md"
FRAME: dict[str, Any] = {"image_size": (20, 22), "num_classes": 3}
CAPSNET = FRAME | {"conv_channels": 4, "primary_types": 2, "decoder_widths": (8, 9)}
SMALL: dict[str, dict[str, Any]] = {
    "capsnet": CAPSNET,
    "capsnet-small": CAPSNET,
    "baseline-cnn": FRAME | {"channels": (4, 4, 4), "widths": (8, 8)},
    "cnn-small": FRAME | {"channels": (4, 4, 4), "widths": (8, 8)},
    "efficient-capsnet": FRAME | {"channels": (4, 4, 4, 16), "decoder_widths": (8, 9)},
    "capsnet-image": {"image_size": (40, 44), "width": 16, "decoder_width": 8},
    "matrix-capsnet": FRAME | {"widths": (4, 2, 2, 2)},
    "matrix-capsnet-small": FRAME | {"widths": (4, 2, 2, 2)},
    "text-capsnet": {"vocabulary": 30, "embedding": 8, "channels": 8},
    "text-cnn": {"vocabulary": 30, "embedding": 8, "channels": 8},
}
ROUTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in capsnet.routing.list_routings()),
    ("em", {"covariance": "full"}),
]


def build(name: str, **options: Any) -> Model:
    """A small one; models that were registered since are taken as they are."""
    torch.manual_seed(0)
    model = capsnet.create_model(name, **SMALL.get(name, {}) | options)
    if model.takes_texts:
        words = ["<padding>", "<unknown>", *(f"w{k}" for k in range(2, 30))]
        model.preprocessing = {"vocabulary": words}
    return model.eval()


def attempt(model: Model, path: Path, format: Any) -> tuple[str, list[str]]:
    """Export and run again, in a way of its own: what the table says about it, and the names of the outputs."""
    try:
        done = export(model, path, format)
    except ValueError as error:
        return f"no: {error}", []
    assert done.difference <= TOLERANCE
    told = json.loads(done.card.read_text())
    assert told["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    for size in (1, 5):
        images = made_up(model, size, torch.Generator().manual_seed(7), words=4 + size)
        with torch.no_grad():
            output = model(images)
        for port, got in zip(told["outputs"], answers(path, format, told, images), strict=True):
            wanted = getattr(output, port["name"])
            assert list(got.shape) == [size, *port["shape"][1:]]
            torch.testing.assert_close(got, wanted, atol=TOLERANCE, rtol=0)
    return "yes", [port["name"] for port in told["outputs"]]


def answers(path: Path, format: str, told: dict[str, Any], images: torch.Tensor) -> list[torch.Tensor]:
    if format == "torch":
        return list(torch.export.load(path).module()(images))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [port["name"] for port in told["outputs"]]
    return [torch.from_numpy(v) for v in session.run(names, {told["input"]["name"]: images.numpy()})]


def rows_of_the_guide() -> list[str]:
    return [line for line in GUIDE.read_text().splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("name", capsnet.list_models())
def test_every_registered_model(name: str, tmp_path: Path) -> None:
    model = build(name)
    in_onnx, outputs = attempt(model, tmp_path / "model.onnx", "onnx")
    in_torch, same = attempt(model, tmp_path / "model.pt2", "torch")
    assert same == outputs or in_onnx != "yes"
    free = "images" if not model.takes_texts else "texts, words"
    assert f"| `{name}` | {in_onnx} | {in_torch} | {', '.join(outputs)} | {free} |" in rows_of_the_guide()


@pytest.mark.parametrize(("routing", "options"), ROUTINGS)
def test_every_routing(routing: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = build("capsnet", routing=routing, routing_options=options)
    in_onnx, _ = attempt(model, tmp_path / "model.onnx", "onnx")
    in_torch, _ = attempt(model, tmp_path / "model.pt2", "torch")
    called = f"`{routing}`" + "".join(f", `{key}={value}`" for key, value in options.items())
    assert f"| {called} | {in_onnx.split('. ')[0]} | {in_torch} |" in rows_of_the_guide()


@pytest.mark.parametrize("name", ["capsnet", "capsnet-image", "efficient-capsnet"])
def test_a_presence_apart_from_the_pose(name: str, tmp_path: Path) -> None:
    model = build(name, squash="unit")
    for format, suffix in (("onnx", "onnx"), ("torch", "pt2")):
        assert attempt(model, tmp_path / f"model.{suffix}", format)[0] == "yes"


def test_the_card_and_the_file_say_the_same(tmp_path: Path) -> None:
    model = build("capsnet")
    model.class_names = ("ant", "bee", "cat")
    model.card = {"data": "mine"}
    done = export(model, tmp_path / "insects.onnx")
    assert done.card == tmp_path / "insects.onnx.json"
    card = json.loads(done.card.read_text())
    inside = {entry.key: entry.value for entry in onnx.load(done.path).metadata_props}
    assert list(inside) == ["capsnet-onnx-1"]
    told = json.loads(inside["capsnet-onnx-1"])
    assert {key: card[key] for key in told} == told
    assert card["class_names"] == ["ant", "bee", "cat"]
    assert card["preprocessing"] == Preprocess(style="plain", height=20, width=22).model_dump()
    assert card["preprocessing"] | {"style": "plain", "height": 20, "width": 22, "channels": 1} == card["preprocessing"]
    assert card["input"] == told["input"]
    assert card["input"]["shape"] == ["batch", 1, 20, 22]
    assert (card["value_range"], card["config"]["name"]) == ([0, 1], "capsnet")
    assert set(card["versions"]) == {"capsnet", "torch", "onnx"}
    assert card["checked"]["largest_difference"] == done.difference
    shape = onnx.load(done.path).graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in shape] == ["batch", 1, 20, 22]
    again = export(model, tmp_path / "again.onnx")
    assert again.path.read_bytes() == done.path.read_bytes()  # and so no paths of this machine


def test_an_onnx_file_answers_like_the_model(tmp_path: Path) -> None:
    model = build("capsnet")
    model.class_names = ("ant", "bee", "cat")
    path = export(model, tmp_path / "insects.onnx").path
    pictures = list(np.random.default_rng(0).integers(0, 255, (7, 30, 33), dtype=np.uint8))
    by_torch, by_onnx = capsnet.predict(pictures, model), capsnet.predict(pictures, path, batch_size=3)
    for ours, theirs in zip(by_torch, by_onnx, strict=True):
        assert ours.label == theirs.label
        assert ours.lengths == pytest.approx(theirs.lengths, abs=TOLERANCE)
        assert ours.reconstruction is not None
        assert theirs.reconstruction is not None
        torch.testing.assert_close(ours.reconstruction, theirs.reconstruction, atol=TOLERANCE, rtol=0)
    images = np.random.default_rng(0).integers(0, 255, (8, 1, 20, 22), dtype=np.uint8)
    dataset = capsnet.data.ArrayDataset(images, np.arange(8) % 3, ("ant", "bee", "cat"))
    assert capsnet.evaluate(path, dataset).accuracy == capsnet.evaluate(model, dataset).accuracy
    read = capsnet.load(path)
    with pytest.raises(ValueError, match="load the weights"):
        read(torch.rand(1, 1, 20, 22), labels=torch.tensor([1]))
    with pytest.raises(ValueError, match="expected images of shape"):
        read(torch.rand(1, 1, 9, 9))
    with pytest.raises(ValueError, match="an ONNX file already"):
        export(path, tmp_path / "twice.onnx")


def test_a_model_of_texts_in_onnx(tmp_path: Path) -> None:
    model = build("text-capsnet")
    path = export(model, tmp_path / "topics.onnx").path
    texts = ["w3 w4 w5", "w9", "w2 w2 w7 w8 nobody w11"]
    for ours, theirs in zip(capsnet.predict(texts, model), capsnet.predict(texts, path), strict=True):
        assert ours.lengths == pytest.approx(theirs.lengths, abs=TOLERANCE)


def test_damaged_files_are_one_sentence(tmp_path: Path) -> None:
    path = export(build("capsnet"), tmp_path / "m.onnx").path
    card, whole = tmp_path / "m.onnx.json", path.read_bytes()
    path.write_bytes(whole[:-50] + bytes(50))
    with pytest.raises(ValueError, match=r"m\.onnx is damaged, or m\.onnx\.json is of another file"):
        capsnet.load(path)
    path.write_bytes(whole)
    card.write_text("{")
    with pytest.raises(ValueError, match=r"m\.onnx\.json is damaged"):
        capsnet.load(path)
    card.unlink()
    assert capsnet.load(path).num_classes == 3  # the file alone suffices
    for content in (whole[: len(whole) // 2], b"", b"not a network"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a complete ONNX file"):
            capsnet.load(path)
    proto = onnx.load_model_from_string(whole)
    del proto.metadata_props[:]
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ValueError, match="was not written by capsnet export"):
        capsnet.load(path)
    entry = proto.metadata_props.add()
    entry.key, entry.value = "capsnet-onnx-1", "{}"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ValueError, match="damaged metadata: input"):
        capsnet.load(path)


def test_a_file_that_disagrees_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("cnn-small")
    monkeypatch.setattr(exporting, "onnx_runner", lambda content: lambda images: [torch.full((len(images), 3), 0.9)])
    with pytest.raises(ValueError, match="does not agree with torch: answers differ by up to"):
        export(model, tmp_path / "m.onnx")
    nan = torch.tensor(float("nan"))
    monkeypatch.setattr(exporting, "onnx_runner", lambda content: lambda images: [nan.expand(len(images), 3)])
    with pytest.raises(ValueError, match="does not agree with torch"):
        export(model, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_bad_calls(tmp_path: Path) -> None:
    model = build("cnn-small")
    with pytest.raises(ValueError, match="unknown format"):
        export(model, tmp_path / "m.onnx", "tflite")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is a folder"):
        export(model, tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        export(model, tmp_path / "nowhere" / "m.onnx")
    with pytest.raises(ValueError, match=r"a file of the format onnx must end in \.onnx, got .*m\.bin$"):
        export(model, tmp_path / "m.bin")
    with pytest.raises(ValueError, match=r"a file of the format torch must end in \.pt2, got .*m\.onnx$"):
        export(model, tmp_path / "m.onnx", "torch")


def test_a_missing_extra_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    model = build("cnn-small")
    path = export(model, tmp_path / "m.onnx").path
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ValueError, match=r"pip install 'capsnet\[export\]'"):
        capsnet.load(path)
    with pytest.raises(ValueError, match=r"needs onnxruntime: pip install 'capsnet\[export\]'"):
        export(model, tmp_path / "other.onnx")


def test_the_model_itself_is_not_touched(tmp_path: Path) -> None:
    model = build("capsnet").train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    export(model, tmp_path / "m.pt2", "torch")
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_the_reason_is_what_is_at_the_bottom() -> None:
    error = ValueError("long story")
    error.__cause__ = RuntimeError("the real one\nand more")
    assert reason(error) == "the real one"
    assert reason(KeyError()) == "KeyError"
