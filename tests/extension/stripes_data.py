"""Data sets from outside the package: horizontal and vertical stripes, generated from their index, and pairs."""

import numpy as np
import torch
from numpy.typing import ArrayLike

from capsnet import data
from capsnet.data import ArrayDataset, Batch, Dataset, Singles, Sources

SPLITS = {"train": 64, "validation": 32, "test": 32}


@data.register(
    "stripes",
    "Stripes, 20x20 grey: two classes, generated",
    tuple(SPLITS),
    path="none",
    source="generated",
    gallery="stripes",
    objects=1,
)
def stripes(split: str = "train", *, noise: float = 0.1) -> ArrayDataset:
    """Class 0 is horizontal, class 1 vertical; each picture has noise of its own."""
    generator = np.random.default_rng([list(SPLITS).index(split), 7])
    targets = np.arange(SPLITS[split]) % 2
    rows = (np.arange(20) // 3 % 2).astype(np.float32)
    images = np.where(targets[:, None, None] == 1, rows[None, None, :], rows[None, :, None])
    images = (0.8 * images + noise * generator.random((len(targets), 20, 20))).clip(0, 1).astype(np.float32)
    return ArrayDataset(images[:, None], targets.astype(np.int64), ("horizontal", "vertical"), name=f"stripes {split}")


class StripePairs(Dataset):
    """Example n is the sum of two stripes: pictures 2n and 2n + 1, of different classes."""

    channels, image_size, class_names, origin = 1, (20, 20), ("horizontal", "vertical"), "generated"

    def __init__(self, single: ArrayDataset, name: str) -> None:
        self.single, self.name = single, name

    def __len__(self) -> int:
        return len(self.single) // 2

    def batch(self, indices: ArrayLike, *, augment=None, seed: int = 0, epoch: int = 0) -> Batch:
        index = self._check_indices(indices)
        both = self.single.batch(np.stack([2 * index, 2 * index + 1], axis=1).ravel())
        sources = Sources(both.images.unflatten(0, (-1, 2)), both.targets.reshape(-1, 2))
        merged = sources.images.sum(dim=1).clamp(max=1)
        return Batch(merged, sources.targets(2), torch.from_numpy(index), sources)

    def singles(self, number: int) -> Singles:
        both = self.single.batch(np.arange(2 * number, 2 * number + 2) % len(self.single))
        return Singles(both.images, both.targets, torch.zeros(2, 2, dtype=torch.int64))


@data.register("stripe-pairs", "Two stripes in a picture", tuple(SPLITS), path="none", gallery="stripes", objects=2)
def stripe_pairs(split: str = "train") -> StripePairs:
    return StripePairs(stripes(split), f"stripe-pairs {split}")
