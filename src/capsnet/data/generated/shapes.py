"""Shapes: generated pictures of parts and wholes with ground truth for every pixel.

- parts: one rectangle, triangle or ellipse
- wholes: one house, boat or face, which are arrangements of the same few shapes (``_shapes_wholes``)
- scrambled: the *same* examples, part for part and with as much ink, but arranged wrongly: example i of "wholes" and
  example i of "scrambled" have the same class, pose and part sizes
- crowded: several wholes of different classes that touch or overlap, with multi-hot targets

Every picture is a pure function of (seed, split, index).
"""

from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from capsnet._names import check_name
from capsnet.data._registry import register
from capsnet.data.base import Augmentation, Batch, Dataset, Singles, Sources, cut_out
from capsnet.data.generated import _shapes_scenes as scenes
from capsnet.data.generated._shapes_draw import PRIMITIVES
from capsnet.data.generated._shapes_scenes import SINGLE_PARTS, Key, Scene, draw_parts, empty_scene
from capsnet.data.generated._shapes_wholes import ARRANGEMENTS, PARTS, WHOLES
from capsnet.data.splits import SPLITS

KINDS = ("wholes", "parts", "scrambled", "crowded")
COUNTS = {"train": 20_000, "validation": 2_000, "test": 2_000}
PART_NAMES = {whole: tuple(part.name for part in parts) for whole, parts in ARRANGEMENTS.items()}
"""What column p of the parts of each whole is: walls, roof, ..."""

_SMALLEST = 24  # pixels; below this the eyes are smaller than one

Kind = Literal["wholes", "parts", "scrambled", "crowded"]


class Truth(NamedTuple):
    """What is in the pictures: K objects (1 unless crowded) of up to P parts (1 in "parts", else 5).

    Lengths are pixels of the picture, x right and y down with pixel centres at whole numbers, angles radians, clockwise
    as seen on screen. A part lies at its centre of gravity. Of a scrambled picture, classes and whole poses are those
    of the whole that its parts would have made.
    """

    poses: NDArray[np.float64]  # (B, K, 4): x, y, angle, size of each whole
    classes: NDArray[np.int64]  # (B, K): index into class_names
    part_poses: NDArray[np.float64]  # (B, K, P, 5): x, y, angle, width, height / width; zeros where not valid
    part_kinds: NDArray[np.int64]  # (B, K, P): index into PRIMITIVES, -1 where not valid
    part_filled: NDArray[np.bool_]  # (B, K, P): filled rather than outlined
    valid: NDArray[np.bool_]  # (B, K, P): False pads wholes with fewer parts
    owner: NDArray[np.int64]  # (B, H, W): the object k whose ink is strongest in this pixel, -1 where it is dark
    owner_part: NDArray[np.int64]  # (B, H, W): the part p of that object, -1 where it is dark


class Shapes(Dataset):
    """One split of generated shapes; ``truth`` says what is in each picture. See the module for the kinds.

    ``count`` is per split: by default 20,000 for training, 2,000 for validation and test.
    """

    origin = "generated"

    def __init__(
        self,
        split: str = "train",
        *,
        kind: Kind = "wholes",
        size: Annotated[int, Field(ge=_SMALLEST)] = 40,
        count: Annotated[int, Field(ge=1)] | None = None,
        objects: Annotated[int, Field(ge=2, le=len(WHOLES))] = 2,
        seed: int = 0,
    ) -> None:
        check_name("kind of shapes", kind, KINDS)
        check_name("split", split, SPLITS)
        if size < _SMALLEST:
            raise ValueError(f"shapes need a size of at least {_SMALLEST} pixels, got {size}")
        if count is not None and count < 1:
            raise ValueError(f"count must be at least 1 example, got {count}")
        if not 2 <= objects <= len(WHOLES):
            raise ValueError(f"objects must lie in 2..{len(WHOLES)} (those in a picture all differ), got {objects}")
        self.kind: Kind = kind
        self.seed = seed
        self.objects = objects if kind == "crowded" else 1  # K
        self.name = f"shapes {kind} {split}"
        self.class_names = SINGLE_PARTS if kind == "parts" else WHOLES
        self.image_size = (size, size)
        self.channels = 1
        self._pieces = [(piece, COUNTS[piece] if count is None else count) for piece in split.split("+")]
        self._known = np.zeros(len(self), bool)
        self._memory = empty_scene(len(self), self.objects, 1 if kind == "parts" else PARTS)

    def __len__(self) -> int:
        return sum(count for _, count in self._pieces)

    def batch(self, indices: ArrayLike, *, augment: Augmentation = None, seed: int = 0, epoch: int = 0) -> Batch:
        """Draw these examples; ``augment`` moves the objects of a crowded picture together with the picture."""
        index = self._check_indices(indices)
        scene = self._scene(index)
        alone = torch.from_numpy(draw_parts(scene, self.image_size[0]).max(axis=2))[:, :, None]  # (B, K, 1, H, W)
        images = alone.amax(dim=1)
        if augment is not None:
            images = augment(images, seed=seed, epoch=epoch, indices=index)
        classes = torch.from_numpy(scene.classes)
        if self.kind != "crowded":
            return Batch(images, classes[:, 0], torch.from_numpy(index))
        if augment is not None:
            repeated = np.repeat(index, self.objects)  # the same key, hence the same movement as the picture's
            alone = augment(alone.flatten(0, 1), seed=seed, epoch=epoch, indices=repeated).unflatten(0, alone.shape[:2])
        sources = Sources(alone, classes)
        return Batch(images, sources.targets(self.num_classes), torch.from_numpy(index), sources)

    def singles(self, number: int) -> Singles | None:
        return cut_out(self.batch([number % len(self)])) if self.kind == "crowded" else None

    def truth(self, indices: ArrayLike) -> Truth:
        """What is in these examples, before any augmentation."""
        index = self._check_indices(indices)
        scene = self._scene(index)
        drawn = draw_parts(scene, self.image_size[0])  # (B, K, P, H, W)
        objects, parts, height, width = drawn.shape[1:]
        flat = drawn.reshape(len(index), objects * parts, height, width)
        best = np.where(flat.max(axis=1) >= 0.5, flat.argmax(axis=1), -parts)  # (B, H, W)
        owner, owner_part = best // parts, np.where(best < 0, -1, best % parts)
        return Truth(*scene[:3], scene.kinds, scene.filled, scene.kinds >= 0, owner, owner_part)

    def _scene(self, index: NDArray[np.int64]) -> Scene:
        """The scenes of these examples; each is computed once and stored, about a kilobyte per example."""
        new = np.unique(index[~self._known[index]])
        start = 0
        for piece, count in self._pieces:
            rows = new[(new >= start) & (new < start + count)]
            if rows.size:
                for column, values in zip(self._memory, self._of_split(piece, rows - start), strict=True):
                    column[rows] = values
                self._known[rows] = True
            start += count
        return Scene(*(column[index] for column in self._memory))

    def _of_split(self, piece: str, index: NDArray[np.int64]) -> Scene:
        size = self.image_size[0]
        # scrambled pictures are keyed as the wholes they come from: that makes them pairs
        family = "wholes" if self.kind == "scrambled" else self.kind
        key = Key(self.seed, f"shapes.{family}.{piece}")
        if self.kind == "parts":
            return scenes.single_parts(key, index, size)
        if self.kind == "wholes":
            return scenes.single_wholes(key, index, size)
        if self.kind == "scrambled":
            return scenes.scrambled_wholes(key, index, size)
        return scenes.crowded_wholes(key, index, size, self.objects)


shapes = register(
    "shapes",
    "Generated houses, boats and faces made of the same parts; also parts alone, scrambled, crowded (kind=)",
    SPLITS,
    source="generated",
    gallery="shapes",
    objects=lambda options: options["objects"] if options["kind"] == "crowded" else 1,
    path="none",
)(Shapes)

__all__ = ["COUNTS", "PART_NAMES", "PRIMITIVES", "SPLITS", "Shapes", "Truth", "shapes"]
