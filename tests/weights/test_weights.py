"""Weights files: self-contained, exact, and refused in one sentence if damaged."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import capsnet
from capsnet import weights
from capsnet.weights import _format


def test_file_is_self_contained(tiny: capsnet.Model, tmp_path: Path) -> None:
    tiny.class_names = ("ant", "bee", "cat")
    tiny.preprocessing = {"style": "plain", "height": 20, "width": 22, "channels": 1}
    path = capsnet.save(tiny, tmp_path / "m.safetensors", card={"seed": 7})
    again = capsnet.load(path)
    assert again.config == tiny.config
    assert again.class_names == ("ant", "bee", "cat")
    assert again.preprocessing == tiny.preprocessing
    assert not again.training
    assert weights.read_metadata(path)["card"] == {"seed": 7}
    images = torch.rand(2, 1, 20, 22)
    torch.testing.assert_close(again(images).lengths, tiny.eval()(images).lengths, rtol=0, atol=0)
    assert list(tmp_path.iterdir()) == [path]


def test_half_precision_halves_the_file_and_loads_as_float32(tiny: capsnet.Model, tmp_path: Path) -> None:
    full, half = tmp_path / "full.safetensors", tmp_path / "half.safetensors"
    capsnet.save(tiny, full)
    capsnet.save(tiny, half, dtype=torch.float16)
    assert half.stat().st_size < 0.6 * full.stat().st_size
    again = capsnet.load(half)
    assert {p.dtype for p in again.parameters()} == {torch.float32}
    torch.testing.assert_close(again.state_dict(), tiny.state_dict(), rtol=1e-3, atol=1e-6)


def test_run_folder_loads_as_a_model(tiny: capsnet.Model, tmp_path: Path) -> None:
    capsnet.save(tiny, tmp_path / "model.safetensors")
    assert capsnet.load(tmp_path).config == tiny.config


@pytest.mark.parametrize("name", capsnet.list_weights())
def test_bundled_model_loads_and_describes_itself(name: str) -> None:
    model = capsnet.load(name)
    card = weights.read_metadata(weights.resolve(name))["card"]
    assert len(card["summary"]) > 10
    assert model.preprocessing
    assert model(torch.zeros(1, model.in_channels, *model.image_size)).lengths.shape == (1, model.num_classes)


FINAL = [n for n in capsnet.list_weights() if "slice" in weights.read_metadata(weights.resolve(n))["card"]]


@pytest.mark.parametrize("name", FINAL)
def test_bundled_model_reaches_its_card_on_a_slice(name: str) -> None:
    """The same number of right answers on the first 500 test examples; ``capsnet evaluate NAME`` counts all of them."""
    model = capsnet.load(name)
    few = capsnet.data.load(model.card["data"], "test").subset(range(model.card["slice"]["n"]))
    result = capsnet.evaluate(model, few)
    assert round(result.accuracy.value * len(few)) == model.card["slice"]["right"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FINAL)
def test_bundled_model_reaches_its_card(name: str) -> None:
    model = capsnet.load(name)
    for spec, share in model.card["tests"].items():
        found = capsnet.evaluate(model, spec)
        assert found.accuracy._asdict() == pytest.approx(share)
        half = model.card.get("half_credit", {}).get(spec)
        assert (found.half_credit and found.half_credit._asdict()) == (half and pytest.approx(half))


def test_bundled_models_are_small_and_have_cards() -> None:
    files = [weights.resolve(name) for name in capsnet.list_weights()]
    assert sum(file.stat().st_size for file in weights.SHIPPED.iterdir()) < 40e6  # cards and profiles, too
    for file in files:
        assert file.with_suffix(".md").read_text().startswith(f"# {file.stem}\n")


def test_load_suggests_names(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no model 'capsnet-small-mnst'.*'capsnet-small-mnist'"):
        capsnet.load("capsnet-small-mnst")
    with pytest.raises(ValueError, match="not a run folder"):
        capsnet.load(tmp_path)
    (tmp_path / "checkpoint.pt").touch()
    with pytest.raises(ValueError, match="not finished"):
        capsnet.load(tmp_path)


@pytest.mark.parametrize("kept", [0, 4, 60, 0.5, 0.999])
def test_truncated_file_is_refused(tiny: capsnet.Model, tmp_path: Path, kept: float) -> None:
    path = capsnet.save(tiny, tmp_path / "m.safetensors")
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if 0 < kept < 1 else int(kept)])
    with pytest.raises(ValueError, match=r"m\.safetensors is not a complete safetensors file"):
        capsnet.load(path)


def test_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="not written by capsnet"):
        capsnet.load(path)
    text = tmp_path / "text.safetensors"
    text.write_text("these are not weights")
    with pytest.raises(ValueError, match="not a complete safetensors file"):
        capsnet.load(text)


def test_file_of_another_model_is_refused(tiny: capsnet.Model, tmp_path: Path) -> None:
    tiny.config = tiny.config | {"conv_channels": 8}
    path = capsnet.save(tiny, tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=r"does not fit the model 'capsnet' that it names: conv.weight has the shape"):
        capsnet.load(path)


def test_transfer_copies_tensors_that_fit(tiny: capsnet.Model, tmp_path: Path) -> None:
    path = capsnet.save(tiny, tmp_path / "m.safetensors")
    other = capsnet.create_model(**{**tiny.config, "num_classes": 5})
    anew = weights.transfer(other, path)
    assert anew == ["classes.weight", "decoder.layers.0.weight"]
    torch.testing.assert_close(other.state_dict()["primary.conv.weight"], tiny.state_dict()["primary.conv.weight"])
    with pytest.raises(ValueError, match=r"of another network: its first layer \(conv.weight\)"):
        weights.transfer(capsnet.create_model(**{**tiny.config, "conv_channels": 5}), path)


@pytest.mark.parametrize("name", capsnet.list_models())
def test_transfer_copies_weights_but_no_counters(name: str, tmp_path: Path) -> None:
    """Counters of the other training are not copied."""
    old, new = small(name), small(name)
    counters = {n: t for n, t in old.state_dict().items() if not t.is_floating_point() and n not in old.transferred}
    for counter in counters.values():
        counter.fill_(1000)
    path = capsnet.save(old, tmp_path / "m.safetensors")
    before = {n: new.state_dict()[n].clone() for n in counters}
    assert weights.transfer(new, path) == []
    state = new.state_dict()
    torch.testing.assert_close({n: state[n] for n in counters}, before)
    learnt = {n: t for n, t in old.state_dict().items() if n not in counters}
    torch.testing.assert_close({n: state[n] for n in learnt}, learnt, rtol=0, atol=0)
    first = next(old.parameters())
    first.data = torch.cat([first.data, first.data])  # a first layer of another size
    path = capsnet.save(old, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="of another network: its first layer"):
        weights.transfer(new, path)


def small(name: str) -> capsnet.Model:
    return capsnet.create_model(name, **({"vocabulary": 20} if name.startswith("text") else {"image_size": (32, 32)}))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ("{", "damaged metadata"),
        ("[]", "damaged metadata"),
        ('{"class_names": [], "preprocessing": {}, "card": {}}', "damaged metadata: config"),
        ('{"config": {}, "class_names": [], "preprocessing": {}, "card": {}}', "cannot be built here"),
        (
            '{"config": {"name": "capsnet", "pose_dim": -3}, "class_names": [], "preprocessing": {}, "card": {}}',
            "pose_dim",
        ),
        (
            '{"config": {"name": "capsnet"}, "class_names": ["a"], "preprocessing": {}, "card": {}}',
            "1 class names for 10",
        ),
    ],
)
def test_damaged_metadata_is_named(metadata: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"a": torch.zeros(2)}, path, metadata={"capsnet-weights-1": metadata})
    with pytest.raises(ValueError, match=message) as caught:
        capsnet.load(path)
    assert "m.safetensors" in str(caught.value)


def test_first_format_gives_the_same_results(tmp_path: Path) -> None:
    """There the scale multiplied the bias of the primary capsules too."""
    model = capsnet.create_model("capsnet-small", conv_channels=4, primary_types=2, primary_scale=0.25, decoder=False)
    bias = dict(model.named_parameters())["primary.conv.bias"]
    torch.nn.init.normal_(bias)
    path = capsnet.save(model, tmp_path / "new.safetensors")
    old = tmp_path / "old.safetensors"
    save_file(model.state_dict(), old, metadata={"capsnet-weights-1": json.dumps(_format.read_metadata(path))})
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(capsnet.load(path)(images).lengths, model(images).lengths)
    with torch.no_grad():
        bias.mul_(0.25)
    torch.testing.assert_close(capsnet.load(old)(images).lengths, model(images).lengths)
    begun = capsnet.create_model("capsnet-small", conv_channels=4, primary_types=2, primary_scale=0.25, decoder=False)
    weights.transfer(begun, old)
    torch.testing.assert_close(begun(images).lengths, model(images).lengths)


def test_saving_into_a_missing_folder_names_the_folder(tiny: capsnet.Model, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        capsnet.save(tiny, tmp_path / "nowhere" / "m.safetensors")


def test_failed_write_leaves_the_old_file(tiny: capsnet.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = capsnet.save(tiny, tmp_path / "m.safetensors")
    before = path.read_bytes()

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        capsnet.save(tiny, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_only_models_that_can_be_rebuilt_are_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="create_model"):
        capsnet.save(capsnet.models.CapsNet(conv_channels=2, primary_types=1), tmp_path / "m.safetensors")
