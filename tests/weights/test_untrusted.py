"""Weights from strangers: a small file asks for no large machine, and damage is noticed."""

import json
import logging
import resource
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import capsnet
from capsnet.models import list_models, outline
from capsnet.weights._format import FORMAT, read_metadata

SMALL: dict[str, Any] = {"conv_channels": 4, "primary_types": 2, "decoder": False}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return capsnet.save(capsnet.create_model("capsnet-small", **SMALL), tmp_path / "m.safetensors", card={"seed": 7})


def forged(path: Path, config: dict[str, Any], classes: int = 10) -> Path:
    about = {"config": config, "class_names": ["x"] * classes, "preprocessing": {}, "card": {}}
    save_file({"a": torch.zeros(2)}, path, metadata={FORMAT: json.dumps(about)})
    return path


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"name": "capsnet", "num_classes": 10**9}, "num_classes.*at most 1000000"),
        ({"name": "capsnet", "iterations": 10**6}, "iterations must be a whole number from 1 to 1000"),
        ({"name": "capsnet", "routing_options": {"iterations": 10**9}}, "iterations.*from 1 to 1000"),
        ({"name": "capsnet", "conv_channels": 10**6, "kernel_size": 9, "primary_types": 10**6}, "it has no tensor"),
        ({"name": "capsnet", "decoder_widths": [10**6] * 2}, "it has no tensor"),
        ({"name": "capsnet", "decoder_widths": [1] * 10**5}, "100,000 values, at most 64"),
        ({"name": "capsnet", "primary_dim": 10**6, "pose_dim": 10**6, "primary_types": 10**6}, "too large"),
        ({"name": "cnn-small", "channels": [1] * 65, "kernel_sizes": [1] * 65}, "65 values"),
        ({"name": "akorn-small", "depth": 10**6}, "depth.*at most 256"),
        ({"name": "akorn-small", "steps": 10**6}, "steps.*at most 256"),
        ({"name": "residual-cnn", "blocks": [10**6, 0]}, "blocks.*at most 256"),
        ({"name": "residual-cnn", "image_size": [4096, 4096]}, "at most 1,048,576 pixels, got 4096 x 4096"),
        ({"name": "pathnet", "modules": 10**5}, "modules.*at most 256"),
        ({"name": "ensemble", "members": [{"name": "capsnet-small"}] * 300}, "at most 256 members, got 300"),
    ],
)
def test_small_file_cannot_ask_for_a_large_network(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=message) as caught:
        capsnet.load(forged(tmp_path / "m.safetensors", config))
    assert len(str(caught.value)) < 500
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_network_beyond_the_memory_is_not_begun() -> None:
    with pytest.raises(ValueError, match=r"capsnet would have [\d,]+ parameters, [\d,.]+ GB, but this machine has"):
        capsnet.create_model("capsnet", num_classes=10**6, pose_dim=1000)


@pytest.mark.parametrize("name", list_models())
def test_outline_has_the_shapes_of_the_model_and_no_memory(name: str) -> None:
    options = {} if name.startswith("text") else {"image_size": (32, 32)}
    torch.manual_seed(3)
    sketch = outline(lambda: capsnet.create_model(name, **options))
    assert sketch is not None
    assert all(tensor.is_meta for tensor in sketch.state_dict().values())
    model = capsnet.create_model(name, **options)  # with its own check, which draws no random numbers either
    torch.manual_seed(3)
    twin = capsnet.create_model(name, **options)
    shapes = [{key: tensor.shape for key, tensor in network.state_dict().items()} for network in (sketch, model)]
    assert shapes[0] == shapes[1]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_every_flipped_bit_is_noticed(saved: Path) -> None:
    content = saved.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    places = [*range(0, start, max(1, start // 25)), *range(start, len(content), (len(content) - start) // 25)]
    for number, place in enumerate(places):
        damaged = bytearray(content)
        damaged[place] ^= 1 << number % 8
        saved.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"m\.safetensors"):
            capsnet.load(saved)
    saved.write_bytes(content)
    assert capsnet.load(saved).card == {"seed": 7}


def test_relabelled_type_is_noticed(saved: Path) -> None:
    content = saved.read_bytes()
    for other in (b'"I32"', b'"U32"'):
        saved.write_bytes(content.replace(b'"F32"', other, 1))
        with pytest.raises(ValueError, match=r"instead of torch\.float32"):
            capsnet.load(saved)
    half = capsnet.save(capsnet.load(_with(saved, content)), saved, dtype=torch.float16).read_bytes()
    saved.write_bytes(half.replace(b'"dtype":"F16"', b'"dtype":"BF16"', 1).replace(b"  ", b" ", 1))
    with pytest.raises(ValueError, match=r"m\.safetensors"):
        capsnet.load(saved)


def _with(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("key", ["class_names", "preprocessing", "card"])
def test_changed_metadata_is_noticed(saved: Path, key: str) -> None:
    about: dict[str, Any] = dict(read_metadata(saved))
    changed = {"class_names": about["class_names"][::-1], "preprocessing": {"style": "plain"}}
    about[key] = changed.get(key, {"seed": 8})
    save_file(load_file(saved), saved, metadata={FORMAT: json.dumps(about)})
    with pytest.raises(ValueError, match="is damaged: its content does not have the digest"):
        capsnet.load(saved)


def test_file_of_an_older_version_loads_with_a_note(saved: Path, caplog: pytest.LogCaptureFixture) -> None:
    about: dict[str, Any] = dict(read_metadata(saved))
    del about["digest"]
    save_file(load_file(saved), saved, metadata={FORMAT: json.dumps(about)})
    with caplog.at_level(logging.WARNING, "capsnet"):
        assert capsnet.load(saved).card == {"seed": 7}
    assert "has no digest: damage to it would not be noticed" in caplog.text


def test_bundled_weights_have_digests(caplog: pytest.LogCaptureFixture) -> None:
    for name in capsnet.list_weights():
        capsnet.load(name)
    assert not caplog.records
