"""Export: registered models and routings, the file and its card, and bad input."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import capsnet
from capsnet import create_model, models, routing
from capsnet.data import Preprocess
from capsnet.export import TOLERANCE, Format, _int8, export, graph
from capsnet.export import _export as exporting
from capsnet.export._program import reason
from capsnet.models import Model, Output, _registry
from tools import export_table

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
FRAME: dict[str, Any] = {"image_size": (20, 22), "num_classes": 3}
SMALL: dict[str, dict[str, Any]] = {
    "capsnet": FRAME | {"conv_channels": 4, "primary_types": 2, "decoder_widths": (8, 9)},
    "cnn-small": FRAME | {"channels": (4, 4, 4), "widths": (8, 8)},
    "text-capsnet": {"vocabulary": 30, "embedding": 8, "channels": 8},
}


def build(name: str, **options: Any) -> Model:
    torch.manual_seed(0)
    return export_table.build(name, **SMALL[name] | options)


@pytest.fixture(scope="module")
def guide() -> list[str]:
    return export_table.GUIDE.read_text().splitlines()


def programs() -> list[list[str]]:
    """The models' names, those together that differ in sizes only: their programs have the same operators."""
    names: dict[str, list[str]] = {}
    for name in capsnet.list_models():
        options = {key: value for key, value in models.model_options(name).items() if not is_size(value)}
        names.setdefault(f"{_registry._find(name).build} {options}", []).append(name)
    return list(names.values())


def is_size(value: object) -> bool:
    return type(value) in (int, float) or (isinstance(value, tuple) and all(map(is_size, value)))


def test_tables_have_a_row_for_everything_registered(guide: list[str]) -> None:
    for name in [*capsnet.list_models(), *routing.list_forms()]:
        assert any(line.startswith(f"| `{name}` |") for line in guide), name


# Converting takes long, so ``make test`` has some, and ``make test-slow`` all of them.
QUICK = {"capsnet capsnet-small", "residual-capsnet", "text-capsnet", "akorn-small", "rotating-small", "dynamic"}


def slow_unless_quick(names: list[str]) -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in names]


@pytest.mark.parametrize("joined", slow_unless_quick([" ".join(names) for names in programs()]))
def test_table_of_models_matches_the_registry(joined: str, tmp_path: Path, guide: list[str]) -> None:
    names = joined.split()
    exported = export_table.model_row(names[-1], tmp_path)
    assert {exported.replace(names[-1], name) for name in names} <= set(guide)


@pytest.mark.parametrize("name", slow_unless_quick(routing.list_forms()))
def test_table_of_routings_matches_the_registry(name: str, tmp_path: Path, guide: list[str]) -> None:
    assert export_table.routing_row(name, tmp_path) in guide


def test_oscillators_on_a_map_with_odd_sides_export(tmp_path: Path) -> None:
    model = export_table.build("akorn-small", image_size=(30, 30), channels=2, depth=1)
    assert export_table.attempt(model, tmp_path)[0] == "yes"


class Brightness(Model):
    """A model of another package: the mean of the pixels, class by class."""

    def __init__(self, image_size: tuple[int, int] = (8, 8), in_channels: int = 1, num_classes: int = 3) -> None:
        super().__init__(image_size, in_channels, num_classes)
        self.weight = torch.nn.Parameter(torch.rand(num_classes))

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None, trace: bool = False) -> Output:
        return Output(images.mean(dim=(1, 2, 3))[:, None] * self.weight)


class Undecided(Brightness):
    """A model whose trace depends on values."""

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None, trace: bool = False) -> Output:
        return super().forward(images if float(images.mean()) > 0.5 else 1 - images)


def test_outside_models_export_or_give_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "_MODELS", dict(_registry._MODELS))
    models.register("brightness", Brightness, "the mean of the pixels")
    models.register("undecided", Undecided, "the mean of some pixels")
    assert export_table.model_row("brightness", tmp_path) == "| `brightness` | yes | yes | lengths | images |"
    row = export_table.model_row("undecided", tmp_path)
    assert row.startswith("| `undecided` | no: undecided cannot be traced by torch.export: ")


@pytest.mark.parametrize("squash", ["paper", "unit"])  # unit: presence apart from the pose
@pytest.mark.parametrize(("format", "suffix"), [("onnx", "onnx"), ("torch", "pt2")])
def test_file_agrees_with_the_model(squash: str, format: Format, suffix: str, tmp_path: Path) -> None:
    model, path = build("capsnet", squash=squash), tmp_path / f"model.{suffix}"
    done = export(model, path, format)
    assert done.difference <= TOLERANCE
    card = json.loads(done.card.read_text())
    assert card["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    for size in (1, 5):
        images = model.example_inputs(size)
        with torch.no_grad():
            output = model(images)
        for port, got in zip(card["outputs"], answers(path, format, card, images), strict=True):
            assert list(got.shape) == [size, *port["shape"][1:]]
            torch.testing.assert_close(got, getattr(output, port["name"]), atol=TOLERANCE, rtol=0)


def answers(path: Path, format: str, card: dict[str, Any], images: torch.Tensor) -> list[torch.Tensor]:
    if format == "torch":
        return list(torch.export.load(path).module()(images))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [port["name"] for port in card["outputs"]]
    return [torch.from_numpy(v) for v in session.run(names, {card["input"]["name"]: images.numpy()})]


def test_card_equals_the_metadata_of_the_file(tmp_path: Path) -> None:
    model = build("capsnet")
    model.class_names = ("ant", "bee", "cat")
    model.card = {"data": "mine"}
    done = export(model, tmp_path / "insects.onnx")
    assert done.card == tmp_path / "insects.onnx.json"
    card = json.loads(done.card.read_text())
    inside = {entry.key: entry.value for entry in onnx.load(done.path).metadata_props}
    assert list(inside) == ["capsnet-onnx-1", "capsnet-sha256"]
    metadata = json.loads(inside["capsnet-onnx-1"])
    assert {key: card[key] for key in metadata} == metadata
    assert card["class_names"] == ["ant", "bee", "cat"]
    assert card["preprocessing"] == Preprocess(style="plain", height=20, width=22).model_dump()
    assert card["preprocessing"] | {"style": "plain", "height": 20, "width": 22, "channels": 1} == card["preprocessing"]
    assert card["input"] == metadata["input"]
    assert card["input"]["shape"] == ["batch", 1, 20, 22]
    assert (card["value_range"], card["config"]["name"]) == ([0, 1], "capsnet")
    assert set(card["versions"]) == {"capsnet", "torch", "onnx"}
    assert card["checked"]["largest_difference"] == done.difference
    shape = onnx.load(done.path).graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in shape] == ["batch", 1, 20, 22]
    again = export(model, tmp_path / "again.onnx")
    assert again.path.read_bytes() == done.path.read_bytes()  # and so no paths of this machine


def test_onnx_file_is_used_like_the_model(tmp_path: Path) -> None:
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
    assert (read.pose_dim, read.draws) == (model.pose_dim, False)
    with pytest.raises(ValueError, match="load the weights"):
        read(torch.rand(1, 1, 20, 22), labels=torch.tensor([1]))
    with pytest.raises(ValueError, match="expected images of shape"):
        read(torch.rand(1, 1, 9, 9))
    with pytest.raises(ValueError, match="an ONNX file already"):
        export(path, tmp_path / "twice.onnx")


def test_onnx_file_takes_texts(tmp_path: Path) -> None:
    model = build("text-capsnet")
    path = export(model, tmp_path / "topics.onnx").path
    texts = ["w3 w4 w5", "w9", "w2 w2 w7 w8 nobody w11"]
    for ours, theirs in zip(capsnet.predict(texts, model), capsnet.predict(texts, path), strict=True):
        assert ours.lengths == pytest.approx(theirs.lengths, abs=TOLERANCE)


def test_quantiser_of_onnxruntime_takes_the_file(tmp_path: Path) -> None:
    """It transposes weights of linear layers, which must not contradict the shapes in ``value_info``."""
    from onnxruntime.quantization import quantize_dynamic

    path, written, *_ = export(build("capsnet"), tmp_path / "m.onnx")
    graph = onnx.load(path).graph
    assert graph.value_info
    assert not {value.name for value in graph.value_info} & {weight.name for weight in graph.initializer}
    changed = tmp_path / "dynamic.onnx"
    quantize_dynamic(path, changed)
    assert changed.stat().st_size < path.stat().st_size
    with pytest.raises(ValueError, match=r"another program has changed it: .* dynamic\.onnx\.json with its sha256"):
        capsnet.load(changed)  # its checksum is of the file before
    card = json.loads(written.read_text()) | {"sha256": hashlib.sha256(changed.read_bytes()).hexdigest()}
    (tmp_path / "dynamic.onnx.json").write_text(json.dumps(card))
    assert capsnet.load(changed).num_classes == 3


def test_file_of_an_older_version_loads_with_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, card, *_ = export(build("capsnet"), tmp_path / "m.onnx")
    proto = onnx.load(path)
    about = json.loads(proto.metadata_props[0].value)
    del about["sealed"], proto.metadata_props[1]
    proto.metadata_props[0].value = json.dumps(about)
    path.write_bytes(proto.SerializeToString())
    card.unlink()
    assert capsnet.load(path).num_classes == 3
    assert "m.onnx has no checksum, as files of older versions" in caplog.text
    for key, value, says in (
        ("class_names", ["a"], "1 class names, the graph 3 classes"),
        ("image_size", [9000, 22], "image_size"),
        ("outputs", about["outputs"][:1], "it describes images"),
    ):
        proto.metadata_props[0].value = json.dumps(about | {key: value})
        path.write_bytes(proto.SerializeToString())
        with pytest.raises(ValueError, match=f"damaged metadata: .*{says}"):
            capsnet.load(path)


def test_int8_file_agrees_with_the_model_up_to_rounding(tmp_path: Path) -> None:
    plain = export("capsnet-small-mnist", tmp_path / "plain.onnx")
    done = export("capsnet-small-mnist", tmp_path / "int8.onnx", int8=True)
    assert done.path.stat().st_size < 0.55 * plain.path.stat().st_size
    assert (done.compared, done.changed <= 10) == (1000, True)
    card = json.loads(done.card.read_text())
    assert card["checked"] == {
        "int8": True,
        "measured_on": "mnist train",
        "compared_on": "mnist validation",
        "largest_difference": done.difference,
        "changed_answers": done.changed,
        "compared_answers": 1000,
    }
    assert card["sha256"] == hashlib.sha256(done.path.read_bytes()).hexdigest()
    assert {"QuantizeLinear", "DequantizeLinear"} <= {node.op_type for node in onnx.load(done.path).graph.node}
    exact, rounded = capsnet.load(plain.path), capsnet.load(done.path)
    digits = capsnet.data.load("mnist", "test").batch(range(100)).images
    torch.testing.assert_close(rounded(digits).lengths, exact(digits).lengths, atol=0.1, rtol=0)
    alone = torch.cat([rounded(digit[None]).lengths for digit in digits[:5]])
    torch.testing.assert_close(alone, rounded(digits).lengths[:5], atol=1e-5, rtol=0)  # whatever else is in the batch


def test_int8_that_changes_answers_is_not_written(
    idx_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = create_model("cnn-small", image_size=(20, 20), channels=(4, 4, 4), widths=(8, 8)).eval()
    done = export(model, tmp_path / "m.onnx", int8=True, data=f"mnist:{idx_folder}")
    assert done.compared == 40
    for path in list(tmp_path.iterdir()):
        path.unlink()
    spoilt = {"changed": 5, "difference": 0.1}, {"changed": 0, "difference": float("nan")}
    for result in spoilt:
        monkeypatch.setattr(exporting._int8, "compare", lambda *_, r=result: _int8.Comparison(compared=40, **r))
        with pytest.raises(ValueError, match=r"int8 file does not agree with torch: .* nothing was written"):
            export(model, tmp_path / "m.onnx", int8=True, data=f"mnist:{idx_folder}")
    assert list(tmp_path.iterdir()) == []


def test_int8_is_refused_where_it_is_impossible(idx_folder: Path, tmp_path: Path) -> None:
    model, data = build("cnn-small"), f"mnist:{idx_folder}"
    with pytest.raises(ValueError, match="int8 is for ONNX files, not for the format torch"):
        export(model, tmp_path / "m.pt2", "torch", int8=True)
    with pytest.raises(ValueError, match="data is for int8 only"):
        export(model, tmp_path / "m.onnx", data=data)
    with pytest.raises(ValueError, match="int8 needs examples to measure the ranges of activations: name a data set"):
        export(model, tmp_path / "m.onnx", int8=True)
    with pytest.raises(ValueError, match="int8 needs examples of mnist:/nowhere"):
        export(model, tmp_path / "m.onnx", int8=True, data="mnist:/nowhere")
    with pytest.raises(ValueError, match="the model takes 1x20x22 images and 3 classes, mnist"):
        export(model, tmp_path / "m.onnx", int8=True, data=data)
    with pytest.raises(ValueError, match="Brightness cannot be quantised: it has no convolution and no linear layer"):
        export(Brightness((20, 20), 1, 10), tmp_path / "m.onnx", int8=True, data=data)
    assert list(tmp_path.iterdir()) == []


def test_damaged_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = export(build("capsnet"), tmp_path / "m.onnx").path
    card, original = tmp_path / "m.onnx.json", path.read_bytes()
    path.write_bytes(original[:-50] + bytes(50))
    with pytest.raises(ValueError, match=r"m\.onnx is damaged, or m\.onnx\.json is of another file"):
        capsnet.load(path)
    path.write_bytes(original)
    card.write_text("{")
    with pytest.raises(ValueError, match=r"m\.onnx\.json is damaged"):
        capsnet.load(path)
    card.unlink()
    assert capsnet.load(path).num_classes == 3  # the file alone suffices
    for places in ([len(original) // 4], [len(original) // 2], [len(original) // 2, len(original) - 80]):
        flipped = bytearray(original)
        for place in places:  # of two the second is in the name of the checksum
            flipped[place] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match=r"m\.onnx is damaged, or another program"):
            capsnet.load(path)
    for content in (original[: len(original) // 2], b"", b"not a network"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a complete ONNX file"):
            capsnet.load(path)
    proto = onnx.load_model_from_string(original)
    del proto.metadata_props[:]
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ValueError, match="was not written by capsnet export"):
        capsnet.load(path)
    entry = proto.metadata_props.add()
    entry.key, entry.value = "capsnet-onnx-1", "{}"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ValueError, match="damaged metadata: input"):
        capsnet.load(path)


def test_file_that_differs_from_torch_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("cnn-small")
    monkeypatch.setattr(exporting, "onnx_runner", lambda content: lambda images: [torch.full((len(images), 3), 0.9)])
    with pytest.raises(ValueError, match="does not agree with torch: answers differ by up to"):
        export(model, tmp_path / "m.onnx")
    nan = torch.tensor(float("nan"))
    monkeypatch.setattr(exporting, "onnx_runner", lambda content: lambda images: [nan.expand(len(images), 3)])
    with pytest.raises(ValueError, match="does not agree with torch"):
        export(model, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
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


def test_missing_dependency_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    model = build("cnn-small")
    path = export(model, tmp_path / "m.onnx").path
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ValueError, match=r"pip install 'capsnet\[export\]'"):
        capsnet.load(path)
    with pytest.raises(ValueError, match=r"needs onnxruntime: pip install 'capsnet\[export\]'"):
        export(model, tmp_path / "other.onnx")


def test_export_does_not_change_the_model(tmp_path: Path) -> None:
    model = build("capsnet").train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    export(model, tmp_path / "m.pt2", "torch")
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_reason_is_the_first_cause() -> None:
    error = ValueError("long story")
    error.__cause__ = RuntimeError("the real one\nand more")
    assert reason(error) == "the real one"
    assert reason(KeyError()) == "KeyError"


def test_absent_parents_of_em_agree_with_torch() -> None:
    """The logarithm of their presence, which a rounded sigmoid loses in ONNX."""
    route = routing.get("em", iterations=3, inverse_temperature=1.0, start_cost=3.0)

    class Presence(torch.nn.Module):
        def forward(self, votes: torch.Tensor) -> tuple[torch.Tensor]:
            trace = route(votes, trace=True).trace
            assert trace is not None
            return (trace.logits,)

    votes = torch.randn(1, 40, 5, 16, generator=torch.Generator().manual_seed(0))
    votes *= torch.tensor([0.05, 0.3, 1.0, 3.0, 10.0])[:, None]
    trace = route(votes, trace=True).trace
    assert trace is not None
    assert trace.activations[0].min() < 1e-6, "absent enough"
    assert graph(Presence(), {"votes": votes}, ["logits"])  # refuses what differs
