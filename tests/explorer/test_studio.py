"""Which models are shown, and under which names."""

from pathlib import Path

import pytest

import capsnet
from capsnet.explorer import create_app
from capsnet.explorer._gallery import Gallery
from capsnet.explorer._studio import load_models
from capsnet.models import Model

from .conftest import SHIPPED


def test_public_names_are_no_paths(tmp_path: Path, tiny: Model) -> None:
    for run in ("a/run", "b/run"):
        (tmp_path / run).mkdir(parents=True)
        capsnet.save(tiny, tmp_path / run / "model.safetensors")
    capsnet.save(tiny, tmp_path / f"{SHIPPED}.safetensors")
    sources = [tmp_path / "a/run", tmp_path / "b/run/model.safetensors", tmp_path / f"{SHIPPED}.safetensors", SHIPPED]
    models = load_models(sources)
    assert list(models) == ["run", "run-2", f"{SHIPPED}-2", SHIPPED]
    assert models[SHIPPED].num_parameters() > models[f"{SHIPPED}-2"].num_parameters()


def test_who_names_none_is_shown_the_papers_network_first() -> None:
    shown = load_models()
    assert next(iter(shown)) == "capsnet-mnist"
    assert sorted(shown) == capsnet.list_weights()


def test_galleries_of_the_shipped_models_are_there_at_once_and_nothing_is_downloaded() -> None:
    for name in capsnet.list_weights():
        gallery = Gallery(capsnet.load(name))
        assert gallery.exists()
        assert gallery.one(3)["label"] == 0  # of MNIST's test digits, and so of what is made of them
    model = capsnet.load("capsnet-affine")
    model.card = model.card | {"data": "affnist:versions=1,source=original"}
    assert not Gallery(model).exists()


def test_models_of_texts_are_refused(tmp_path: Path) -> None:
    capsnet.save(capsnet.create_model("text-cnn"), tmp_path / "text.safetensors")
    with pytest.raises(ValueError, match=r"text.safetensors takes texts"):
        load_models([tmp_path / "text.safetensors"])
    with pytest.raises(ValueError, match="at least one model"):
        create_app({})
