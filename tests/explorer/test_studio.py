"""Which models are shown, and under which names."""

from pathlib import Path

import pytest

import capsnet
from capsnet.explorer import create_app
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
    assert SHIPPED in load_models()


def test_models_of_texts_are_refused(tmp_path: Path) -> None:
    capsnet.save(capsnet.create_model("text-cnn"), tmp_path / "text.safetensors")
    with pytest.raises(ValueError, match=r"text.safetensors takes texts"):
        load_models([tmp_path / "text.safetensors"])
    with pytest.raises(ValueError, match="at least one model"):
        create_app({})
