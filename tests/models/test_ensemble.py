"""Several models as one: the mean of their lengths, one file, used like a single model."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import capsnet
from capsnet.models import Ensemble, Model


def member(seed: int, **options: object) -> Model:
    torch.manual_seed(seed)
    defaults = {
        "image_size": (20, 22),
        "num_classes": 3,
        "conv_channels": 4,
        "primary_types": 2,
        "decoder_widths": (8, 9),
    }
    model = capsnet.create_model("capsnet", **defaults | options).eval()
    with torch.no_grad():
        model.get_parameter("classes.weight").mul_(20)
    model.class_names, model.card = ("ant", "bee", "cat"), {"data": "insects", "seed": seed}
    return model


def test_ensemble_lengths_are_mean_of_members() -> None:
    members = [member(seed) for seed in range(3)]
    images = torch.rand(6, 1, 20, 22)
    output = capsnet.ensemble(members)(images)
    single = [model(images) for model in members]
    torch.testing.assert_close(output.lengths, sum(o.lengths for o in single) / 3)
    torch.testing.assert_close(output.poses, single[0].poses)
    expected = members[0].decode(single[0].poses, output.lengths.argmax(1))  # the class with the largest mean length
    torch.testing.assert_close(output.reconstruction, expected)
    assert output.trace is None
    labelled = capsnet.ensemble(members)(images, labels=torch.tensor([0, 1, 2, 0, 1, 2]))
    torch.testing.assert_close(
        labelled.reconstruction, members[0](images, torch.tensor([0, 1, 2, 0, 1, 2])).reconstruction
    )


def test_members_may_be_of_different_kinds() -> None:
    """A network without capsules has neither poses nor pictures: those of the capsules are used."""
    cnn = capsnet.create_model("cnn-small", image_size=(20, 22), num_classes=3, channels=(4, 4, 4), widths=(8, 8))
    cnn.class_names = ("ant", "bee", "cat")
    images, caps = torch.rand(2, 1, 20, 22), member(0)
    both = capsnet.ensemble([cnn, caps])
    torch.testing.assert_close(both(images).poses, caps(images).poses)
    assert both.decode(caps(images).poses, torch.tensor([0, 1])).shape == (2, 1, 20, 22)
    plain = capsnet.ensemble([cnn, cnn])
    assert plain(images).poses is None
    assert plain(images).reconstruction is None
    with pytest.raises(ValueError, match="no member of the ensemble has a decoder"):
        plain.decode(torch.rand(1, 3, 16), torch.tensor([0]))
    with pytest.raises(ValueError, match="train its members"):
        plain.loss(plain(images), torch.tensor([0, 1]), images)


def test_ensemble_is_saved_and_used_like_one_model(tmp_path: Path) -> None:
    members = [member(seed) for seed in (0, 1)]
    files = [capsnet.save(model, tmp_path / f"{n}.safetensors") for n, model in enumerate(members)]
    path = capsnet.save(capsnet.ensemble(files), tmp_path / "both.safetensors")
    for file in files:
        file.unlink()  # the file is self-contained
    loaded = capsnet.load(path)
    assert isinstance(loaded, Ensemble)
    assert (loaded.class_names, loaded.card["data"]) == (("ant", "bee", "cat"), "insects")
    assert [card["seed"] for card in loaded.card["members"]] == [0, 1]
    images = np.random.default_rng(0).integers(0, 255, (8, 1, 20, 22), dtype=np.uint8)
    dataset = capsnet.data.ArrayDataset(images, np.arange(8) % 3, ("ant", "bee", "cat"))
    lengths = [capsnet.evaluate(model, dataset).lengths for model in members]
    together = capsnet.evaluate(path, dataset)
    np.testing.assert_allclose(together.lengths, sum(lengths) / 2, atol=1e-6)
    assert "reconstruction_error" in together.metrics
    answer = capsnet.predict(images[0, 0], path)[0]
    assert answer.lengths == pytest.approx(dict(zip(loaded.class_names, together.lengths[0].tolist(), strict=True)))
    more = capsnet.ensemble([loaded, member(2)])  # each of the three has the same weight
    with torch.inference_mode():
        three = [m(torch.rand(2, 1, 20, 22, generator=torch.Generator().manual_seed(0))) for m in (*members, member(2))]
        got = more(torch.rand(2, 1, 20, 22, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(got.lengths, sum(o.lengths for o in three) / 3)


@pytest.mark.parametrize("format", ["onnx", "torch"])
def test_ensemble_is_exported_like_one_model(tmp_path: Path, format: str) -> None:
    pytest.importorskip("onnxruntime")
    from capsnet.export import export

    path = tmp_path / ("both.onnx" if format == "onnx" else "both.pt2")
    done = export(capsnet.ensemble([member(0), member(1)]), path, format)  # type: ignore[arg-type]
    assert done.difference < 1e-4
    assert json.loads(done.card.read_text())["config"]["name"] == "ensemble"


def test_same_member_twice_is_allowed(tmp_path: Path) -> None:
    """Its tensors share their memory, which safetensors refuses."""
    one, images = member(0), torch.rand(2, 1, 20, 22)
    loaded = capsnet.load(capsnet.save(capsnet.ensemble([one, one]), tmp_path / "twice.safetensors"))
    torch.testing.assert_close(loaded(images).lengths, one(images).lengths)


@pytest.mark.parametrize("name", ["two.onnx", "two.PT2"])
def test_weights_of_another_kind_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"are for exported models; name the file two\.safetensors$"):
        capsnet.save(member(0), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_ensemble_of_text_models_works(tmp_path: Path) -> None:
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = capsnet.create_model("text-capsnet", vocabulary=6, embedding=4, channels=4, num_classes=2).eval()
        model.preprocessing = {"vocabulary": ("<padding>", "<unknown>", "a", "b", "c", "d")}
        models.append(model)
    capsnet.save(models[0], tmp_path / "first.safetensors")
    both = capsnet.ensemble([tmp_path / "first.safetensors", models[1]])  # a list from the file, a tuple from memory
    assert both.takes_texts
    path = capsnet.save(both, tmp_path / "both.safetensors")
    single = [capsnet.predict("a c d", model)[0].lengths["0"] for model in models]
    assert capsnet.predict("a c d", path)[0].lengths["0"] == pytest.approx(sum(single) / 2, abs=1e-6)


def test_defaults_that_an_older_file_does_not_state_agree() -> None:
    one, two = member(0), member(1)
    one.preprocessing = {"style": "plain", "height": 20, "width": 22}
    two.preprocessing = one.preprocessing | {"fit": "crop", "border": 0}
    assert capsnet.ensemble([one, two]).preprocessing["fit"] == "crop"


def test_members_that_do_not_fit_are_refused() -> None:
    first = member(0)
    with pytest.raises(ValueError, match="at least two members, got 1"):
        capsnet.ensemble([first])
    with pytest.raises(ValueError, match=r"agree in image size: the first has \(20, 22\), number 2 has \(24, 24\)"):
        capsnet.ensemble([first, member(1, image_size=(24, 24))])
    with pytest.raises(ValueError, match="agree in channels"):
        capsnet.ensemble([first, member(1, in_channels=3)])
    other = member(1)
    other.class_names = ("ant", "cat", "bee")
    with pytest.raises(ValueError, match="agree in classes"):
        capsnet.ensemble([first, other])
    other = member(1)
    other.preprocessing = {"style": "plain", "height": 20, "width": 22}
    with pytest.raises(ValueError, match="agree in preprocessing"):
        capsnet.ensemble([first, member(2), other])
    text = capsnet.create_model("text-cnn", image_size=(1, 24))
    with pytest.raises(ValueError, match="kind of input"):
        capsnet.ensemble([first, text])


def test_damaged_config_is_refused(tmp_path: Path) -> None:
    both = capsnet.ensemble([member(0), member(1)])
    both.config = {"name": "ensemble", "members": "two"}
    with pytest.raises(ValueError, match="lists the configs of its members"):
        capsnet.load(capsnet.save(both, tmp_path / "x.safetensors"))
    both.config = {"name": "ensemble", "members": [{"name": "ensemble", "members": []}]}
    with pytest.raises(ValueError, match="unknown model 'ensemble'"):
        capsnet.load(capsnet.save(both, tmp_path / "x.safetensors"))
