"""Image files of a user, and which of them are in each split of ``folder``."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from capsnet.data.folders.loader import folder


def write(path: Path, seed: int, *, mode: str = "RGB", size: tuple[int, int] = (50, 40)) -> Path:
    """A smooth coloured picture, a function of ``seed``, as width x height."""
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).convert(mode).save(path)
    return path


def write_tree(root: Path, counts: dict[str, int], *, mode: str = "L", suffix: str = ".png", start: int = 0) -> Path:
    seed = start
    for name, count in counts.items():
        for i in range(count):
            write(root / name / f"{i}{suffix}", seed, mode=mode)
            seed += 1
    return root


def files_of(path: Path, **options: Any) -> dict[str, list[str]]:
    return {split: folder(split, path, **options).files for split in ("train", "validation", "test")}
