"""Malformed inputs by the thousand. Each is refused in one sentence, or means what the intact one means.

    python -m tests.hostile --inputs 10000 --kills 1000 --requests 1000

An attack is a function of (folder, random): it makes one malformed input and uses it. It returns normally if the input
was accepted *and* the result is that of the intact one; it raises ``Silent`` if the result differs; errors of users are
``ValueError`` and ``OSError`` of one line. Anything else is a bug.
"""

import io
import json
import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import capsnet
from capsnet._digest import digest
from capsnet.data import Preprocess, load
from capsnet.training import TrainConfig, read_config
from capsnet.training.checkpoint import read_checkpoint
from tests.data.idx_files import idx_bytes

Attack = Callable[[Path, random.Random], None]
SMALL: dict[str, Any] = {"conv_channels": 2, "primary_types": 1, "kernel_size": 5, "decoder": False}
LONGEST = 1500  # characters of a sentence, the names of files and of all options included


class Silent(AssertionError):
    """A damaged input was taken, and its result is another one."""


def mutated(content: bytes, chance: random.Random) -> bytes:
    """The bytes with one to four changes: a flipped bit, other bytes, a cut, an insertion, a removal, a repetition."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4))):
        place, length = chance.randrange(len(changed) + 1), chance.choice((1, 2, 4, 8, 64))
        kind = chance.randrange(6)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[place : place + length] = chance.choice((bytes(length), b"\xff" * length, chance.randbytes(length)))
        elif kind == 2:
            del changed[place:]
        elif kind == 3:
            changed[place:place] = chance.randbytes(length)
        elif kind == 4:
            del changed[place : place + length]
        else:
            changed[place:place] = changed[place : place + length]
    return bytes(changed)


@cache
def weights_file() -> bytes:
    torch.manual_seed(0)
    network = capsnet.create_model("capsnet", image_size=(12, 12), num_classes=3, **SMALL)
    folder = Path(_scratch())
    return capsnet.save(network, folder / "intact.safetensors", card={"summary": "small", "seed": 7}).read_bytes()


@cache
def _scratch() -> str:
    import tempfile

    return tempfile.mkdtemp(prefix="capsnet-hostile-")


@cache
def intact_state() -> str:
    path = Path(_scratch()) / "again.safetensors"
    path.write_bytes(weights_file())
    return _state(capsnet.load(path))


def _state(model: capsnet.Model) -> str:
    about = [list(model.class_names), model.preprocessing, model.card, json.loads(json.dumps(model.config))]
    return digest([model.state_dict(), about])


def damaged_weights(folder: Path, chance: random.Random) -> None:
    path = folder / "m.safetensors"
    path.write_bytes(mutated(weights_file(), chance))
    if _state(capsnet.load(path)) != intact_state():
        raise Silent


def forged_weights(folder: Path, chance: random.Random) -> None:
    """A well-formed file with an absurd description."""
    from safetensors.torch import save

    from capsnet.weights._format import FORMAT

    config: dict[str, Any] = {"name": chance.choice([*capsnet.list_models(), "ensemble", ""])}
    known = capsnet.models.model_options(config["name"]) if config["name"] in capsnet.list_models() else {"members": 0}
    for key in chance.sample(sorted(known), min(len(known), chance.randrange(1, 4))):
        config[key] = absurd(chance)
    names: Any = chance.choice([["a"] * chance.randrange(12), absurd(chance)])
    about = {"config": config, "class_names": names, "preprocessing": chance.choice([{}, {"height": absurd(chance)}])}
    about["card"] = chance.choice([{}, {"summary": absurd(chance)}, absurd(chance)])
    path = folder / "m.safetensors"
    path.write_bytes(save({"a": torch.zeros(2)}, {FORMAT: json.dumps(about)}))
    capsnet.load(path)
    raise Silent  # no such file has the right tensors


def absurd(chance: random.Random, depth: int = 2) -> Any:
    """A value that hardly any option takes."""
    simple = (None, True, -1, 0, 1, 3, 10**6, 10**9, 10**30, 1e308, -0.5, "", "x" * 50, "dynamic", "\x00", "é", "1e9")
    if depth and chance.random() < 0.3:
        parts = [absurd(chance, depth - 1) for _ in range(chance.randrange(4))]
        return parts if chance.random() < 0.5 else {str(number): part for number, part in enumerate(parts)}
    return chance.choice(simple)


@cache
def pictures() -> tuple[bytes, ...]:
    """A small picture in every format."""
    pixels = np.random.default_rng(0).integers(0, 256, (20, 24, 3), np.uint8)
    Image.init()
    files = []
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF", "ICO", "EPS", "PCX"):
        if kind in Image.SAVE:
            buffer = io.BytesIO()
            Image.fromarray(pixels).save(buffer, kind)
            files.append(buffer.getvalue())
    return tuple(files)


def damaged_picture(folder: Path, chance: random.Random) -> None:
    """Pictures have no digest: a damaged one may be read, as a tensor of the right kind."""
    content = mutated(chance.choice(pictures()), chance)
    path = folder / f"p{chance.choice(('.png', '.jpg', '.tif', '.tga', ''))}"
    path.write_bytes(content)
    prepare = Preprocess(style=chance.choice(("plain", "digit")), channels=chance.choice((1, 3)))
    result = prepare(chance.choice((path, content)))
    if not (result.isfinite().all() and result.min() >= 0 and result.max() <= 1 and result.shape[1:] == (28, 28)):
        raise Silent


def wrong_config(folder: Path, chance: random.Random) -> None:
    """A configuration with absurd values, or damaged text: refused, or a valid configuration that equals its file."""
    values = json.loads(TrainConfig().to_json())
    for key in chance.sample([*values, "unknown"], chance.randrange(1, 4)):
        values[key] = absurd(chance, 3)
    text = json.dumps(values).encode()
    path = folder / "config.json"
    path.write_bytes(mutated(text, chance) if chance.random() < 0.5 else text)
    config = read_config(path)
    path.write_text(config.to_json())
    if read_config(path) != config:
        raise Silent


@cache
def checkpoint_file() -> tuple[bytes, str]:
    network = capsnet.create_model("capsnet", image_size=(12, 12), num_classes=3, **SMALL)
    content: dict[str, Any] = {"model": network.state_dict(), "step": 3, "sums": {"loss": 0.5}, "best_weights": None}
    content["digest"] = digest(content)
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue(), content.pop("digest")


def damaged_checkpoint(folder: Path, chance: random.Random) -> None:
    saved, expected = checkpoint_file()
    if digest(read_checkpoint(mutated(saved, chance), folder / "checkpoint.pt")) != expected:
        raise Silent


@cache
def idx_files() -> dict[str, bytes]:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 12, 12), np.uint8)
    labels = (np.arange(30) % 10).astype(np.uint8)
    arrays = {"images-idx3": pixels, "labels-idx1": labels}
    return {f"{part}-{kind}-ubyte": idx_bytes(a) for part in ("train", "t10k") for kind, a in arrays.items()}


def damaged_data(folder: Path, chance: random.Random) -> None:
    """IDX files have no digest either: what is read has the declared shape and classes."""
    victim = chance.choice(sorted(idx_files()))
    for name, content in idx_files().items():
        (folder / name).write_bytes(mutated(content, chance) if name == victim else content)
    dataset = load(f"mnist:{folder}", "test")
    batch = dataset.batch(range(len(dataset)))
    if not (batch.targets.min() >= 0 and batch.targets.max() <= 9 and batch.images.isfinite().all()):
        raise Silent


def run(attack: Attack, folder: Path, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Outcomes (accepted, refused, silent, traceback) of ``count`` inputs, and what was wrong."""
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(count):
        chance = random.Random(f"{attack.__name__} {seed} {number}")
        try:
            attack(folder, chance)
            outcome, note = "accepted", ""
        except Silent:
            outcome, note = "silent", "the result is another one"
        except (ValueError, OSError) as error:
            text = str(error)
            clear = 0 < len(text) <= LONGEST and "\n" not in text and "pydantic.dev" not in text
            outcome, note = ("refused", "") if clear else ("traceback", f"not one sentence: {text[:300]!r}")
        except Exception as error:
            outcome, note = "traceback", f"{type(error).__name__}: {str(error)[:300]}"
        outcomes[outcome] += 1
        if note:
            wrong.append(f"{attack.__name__} {seed} {number}: {note}")
    return outcomes, wrong
