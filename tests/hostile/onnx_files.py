"""Damaged and forged ONNX files, with and without their card: refused, or the answers of the intact one."""

import json
import random
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

import capsnet
from capsnet.weights.onnx_file import FORMAT, card_path, seal
from tests.hostile.attacks import SMALL, Silent, absurd, mutated


@cache
def exported() -> tuple[bytes, bytes]:
    """An ONNX file and its card."""
    from capsnet.export import export

    torch.manual_seed(0)
    network = capsnet.create_model("capsnet", image_size=(12, 12), num_classes=3, **SMALL).eval()
    done = export(network, Path(mkdtemp(prefix="capsnet-hostile-")) / "m.onnx")
    return done.path.read_bytes(), done.card.read_bytes()


def damaged_onnx(folder: Path, chance: random.Random) -> None:
    """Changed bytes. One file in four has its card beside it, which is damaged instead in half of the cases."""
    content, card = exported()
    beside, harmed = chance.random() < 0.25, chance.random() < 0.5
    path = _written(folder, mutated(content, chance) if not (beside and harmed) else content)
    if beside:
        card_path(path).write_bytes(mutated(card, chance) if harmed else card)
    _compare(path)


def forged_onnx(folder: Path, chance: random.Random) -> None:
    """A well-formed file with a right seal, or the file of an older version, whose description is wrong."""
    import onnx

    proto = onnx.load_model_from_string(exported()[0])
    about = json.loads(proto.metadata_props[0].value)
    del proto.metadata_props[:]
    kind = chance.randrange(5)
    if kind == 0:
        about["class_names"] = about["class_names"][: chance.randrange(3)] * chance.choice((1, 5))
    elif kind < 4:
        for _ in range(chance.choice((1, 1, 3))):
            _spoil(about, chance)
    sealed = chance.random() < 0.5 and about.get("sealed") is True
    if not sealed:
        about.pop("sealed", None)
    if kind < 4:
        entry = proto.metadata_props.add()
        entry.key, entry.value = (
            FORMAT,
            mutated(json.dumps(about).encode(), chance).decode("utf-8", "replace") * (chance.random() < 0.2)
            or json.dumps(about),
        )
    content = proto.SerializeToString()
    _compare(_written(folder, seal(content) if sealed else content))


def _spoil(about: Any, chance: random.Random) -> None:
    """Replace or remove one value at any depth."""
    place, key = about, chance.choice(sorted(about))
    while isinstance(place[key], dict | list) and place[key] and chance.random() < 0.7:
        place = place[key]
        key = chance.choice(sorted(place)) if isinstance(place, dict) else chance.randrange(len(place))
    if chance.random() < 0.25:
        del place[key]
    else:
        place[key] = absurd(chance)
    if not about:
        about["input"] = None


def _written(folder: Path, content: bytes) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(content)
    card_path(path).unlink(missing_ok=True)
    return path


@cache
def _question() -> torch.Tensor:
    return torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(1))


@cache
def _answer() -> tuple[torch.Tensor, torch.Tensor | None, int]:
    folder = Path(mkdtemp(prefix="capsnet-hostile-"))
    return _answered(_written(folder, exported()[0]))


def _answered(path: Path) -> tuple[torch.Tensor, torch.Tensor | None, int]:
    model = capsnet.load(path)
    output = model(_question())
    return output.lengths, output.poses, len(model.class_names)


def _compare(path: Path) -> None:
    lengths, poses, classes = _answered(path)
    expected, expected_poses, names = _answer()
    assert poses is not None
    assert expected_poses is not None
    if not (torch.equal(lengths, expected) and torch.equal(poses, expected_poses) and classes == names):
        raise Silent
