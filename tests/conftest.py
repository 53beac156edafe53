"""Shared fixtures: hypothesis without deadlines (machines are noisy), seeded random numbers, small models and data."""

import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

import capsnet

# test tensors are small: a second thread costs more than it gains
torch.set_num_threads(1)
# background jobs of a shell ignore SIGINT, and children inherit that: restore the default
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("capsnet", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("capsnet")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Do not use the bytes of files as test names: compressed files contain the time, and all xdist processes must
    collect the same names."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Seed torch for each test and restore the generator afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture
def tiny() -> capsnet.Model:
    """The paper's architecture at the smallest sizes that exercise everything."""
    return capsnet.create_model(
        "capsnet", image_size=(20, 22), num_classes=3, conv_channels=4, primary_types=2, decoder_widths=(8, 9)
    )


@pytest.fixture(scope="session")
def idx_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A learnable data set in MNIST's file format: 20 x 20 pixels, ten classes, 240 + 60 images.

    The class is the position of a bright block on faint noise: a tiny network learns it in seconds.
    """
    folder = tmp_path_factory.mktemp("idx")
    generator = np.random.default_rng(0)
    for part, count in (("train", 240), ("t10k", 60)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = generator.integers(0, 40, (count, 20, 20), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            y, x = 3 + 9 * (int(label) // 5), 1 + 4 * (int(label) % 5)
            image[y : y + 5, x : x + 3] = 220
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
            (folder / f"{part}-{kind}-ubyte").write_bytes(header + array.tobytes())
    return folder


@pytest.fixture(scope="session")
def quick(idx_folder: Path) -> capsnet.TrainConfig:
    """A run of two epochs and eight steps that takes about a second."""
    return capsnet.TrainConfig(
        recipe="quick",
        model="capsnet",
        model_options={"conv_channels": 4, "primary_types": 2, "decoder_widths": [8, 9]},
        data=f"mnist:{idx_folder}",
        epochs=2,
        batch_size=50,
        lr=5e-3,
        schedule="one-cycle",
        augment=capsnet.data.Augment(shift=1),
        ema=0.5,
        checkpoint_every=3,
        tensorboard=False,
    )
