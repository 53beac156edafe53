"""``explain``: which places of a picture speak for a class, read from the routing."""

import io
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn.functional import interpolate

from capsnet._files import write_atomically
from capsnet._names import check_name
from capsnet.inference.attributions import grad_cam, integrated_gradients
from capsnet.inference.prediction import Picture, as_inputs, evaluating, preprocessing_of
from capsnet.models import Model, Output, ReceptiveField
from capsnet.routing import contributions
from capsnet.weights import load

FOR, AGAINST = np.array([230, 159, 0]), np.array([0, 114, 178])  # orange and blue: distinct to colour-blind eyes too
SHOWN = 448  # pixels of the longer side of a picture of the map
GAP, LINE, LETTERS = 12, 36, 20  # between maps side by side: pixels of the gap, of the line of words, of a letter
BESIDE = {"integrated gradients": integrated_gradients, "Grad-CAM": grad_cam}


class Explanation(NamedTuple):
    """What the children of a class capsule bring to it.

    ``contributions`` are c_ij (u_hat_ij . v_j) / |v_j| after the last iteration. If the routing squashes the sum of the
    votes, as those do that declare ``presence_is_length``, they add up to the length of the class capsule before the
    squash. With other routings their sum has no such meaning: compare them with each other (see
    ``routing.contributions``). ``map`` spreads each over the pixels that its child sees, so it adds up to the same.
    Negative numbers speak against the class. ``beside`` has maps of the same class from gradients, by name, if they
    were asked for; their units differ.
    """

    label: str
    length: float  # the presence of the class
    map: Tensor  # (H, W)
    contributions: Tensor  # (H', W', types)
    image: Tensor  # (C, H, W): the network's input
    lengths: dict[str, float]
    beside: dict[str, Tensor]  # each (H, W)
    field: ReceptiveField | None = None  # the pixels that a child sees, if the network declares it

    def __str__(self) -> str:
        against = float(-self.contributions.clamp(max=0).sum())
        where = f"{self.where}; {against:.2f} of {self.total:.2f} speak against it"
        return f"{self.label} (length {self.length:.2f}): {where}"

    def __repr__(self) -> str:
        return f"<Explanation: {self}>"

    @property
    def where(self) -> str:
        """Where in the picture the contributions come from, in words.

        A place is named only if children see less than the picture and at most half of the map reaches half of its
        maximum.
        """
        most = self.map.max()
        if most <= 0:
            return "no place speaks for it"
        wide = self.field is not None and self.field.size >= max(self.map.shape)
        if wide or (self.map > most / 2).float().mean() > 0.5:
            return "it comes from all over the picture"
        y, x = divmod(int(self.map.argmax()), self.map.shape[1])
        return f"most of it comes from around pixel ({x}, {y})"

    @property
    def total(self) -> float:
        """The sum of the sizes of all contributions."""
        return float(self.contributions.abs().sum())

    def picture(self) -> Image.Image:
        """The map over the picture in grey: orange speaks for the class, blue against it.

        Maps to compare with are drawn right of it. Full colour is the largest number of each map.
        """
        if not self.beside:
            return overlaid(self.image, self.map)
        maps = {"contributions": self.map} | self.beside
        return side_by_side({name: overlaid(self.image, one) for name, one in maps.items()})

    def save(self, path: str | Path) -> Path:
        """Write ``picture`` as a PNG."""
        content = io.BytesIO()
        self.picture().save(content, "PNG")
        return write_atomically(Path(path), content.getvalue())


def explain(
    model: Model | str | Path, image: Picture, label: str | int | None = None, *, beside: bool = False
) -> Explanation:
    """What each child of the class capsules contributes to a class, laid over the picture.

    Args:
        model: a model with routed class capsules, or what ``load`` takes.
        image: a file, bytes, a Pillow image or an array, which is preprocessed, or a tensor (C, H, W) of the model's
            own size.
        label: the class, by name or number; None takes the longest capsule's.
        beside: also compute integrated gradients and Grad-CAM, to be drawn side by side.
    """
    model = model if isinstance(model, Model) else load(model)
    check_explains(model)
    if isinstance(image, Tensor):
        picture = as_inputs(model, image[None])
    else:
        picture = torch.as_tensor(preprocessing_of(model)(image))[None]
    picture = picture.to(next(model.parameters()).device)
    with evaluating(model):
        output: Output = model(picture, trace=True)
    lengths = output.lengths[0].float().cpu()
    chosen = int(lengths.argmax()) if label is None else class_number(model, label)
    brought, maps = lay_out(model, output, torch.tensor([chosen]))
    named = dict(zip(model.class_names, lengths.tolist(), strict=True))
    asked = torch.tensor([chosen], device=picture.device)
    others = {name: method(model, picture, asked)[0].float().cpu() for name, method in BESIDE.items() if beside}
    return Explanation(
        model.class_names[chosen],
        float(lengths[chosen]),
        maps[0],
        brought[0],
        picture[0].cpu(),
        named,
        others,
        model.receptive_field,
    )


def check_explains(model: Model) -> None:
    """Refuse a network without places that contribute to a class."""
    name = model.config.get("name", type(model).__name__)
    if model.takes_texts or model.class_routing is None or model.grid is None:
        raise ValueError(
            f"{name} has no routed class capsules on a grid of the picture, so nothing can be laid over it"
        )
    if model.grid[:2] == (1, 1):
        raise ValueError(f"every child of {name} sees the whole picture, so its contributions have no place in it")


def lay_out(model: Model, output: Output, classes: Tensor) -> tuple[Tensor, Tensor]:
    """The contributions to one class of each example, (B, H', W', types), and their maps, (B, H, W)."""
    if output.trace is None or model.grid is None:
        raise ValueError("the network returned no trace of its class capsules")
    last = contributions(output.trace)[-1].float().cpu()  # (B, I, J)
    brought = last[torch.arange(len(last)), :, classes].unflatten(1, model.grid)
    return brought, spread(brought.sum(dim=-1), model.receptive_field, model.image_size)


def spread(brought: Tensor, field: ReceptiveField | None, size: tuple[int, int]) -> Tensor:
    """Numbers on a grid (B, H', W') as maps (B, H, W): each is divided equally among the pixels that its child sees.

    This keeps the sum. If the network does not declare what a child sees, the grid is interpolated over the picture,
    which keeps it nearly.
    """
    if field is None:
        maps = interpolate(brought[:, None], size, mode="bilinear")[:, 0]
        return maps * (brought.shape[1] * brought.shape[2] / (size[0] * size[1]))
    rows, columns = (_windows(count, field, side) for count, side in zip(brought.shape[1:], size, strict=True))
    return rows.T @ brought @ columns


def _windows(count: int, field: ReceptiveField, side: int) -> Tensor:
    """Which share of child k goes to pixel x, along one axis: (count, side)."""
    start = (field.start + field.stride * torch.arange(count))[:, None]
    pixels = torch.arange(side)[None]
    inside = ((pixels >= start) & (pixels < start + field.size)).float()
    return inside / inside.sum(dim=1, keepdim=True).clamp_min(1)


def overlaid(image: Tensor, one: Tensor) -> Image.Image:
    """A map (H, W) in orange and blue over a picture (C, H, W) in grey."""
    height, width = one.shape
    grey = image.mean(dim=0).clamp(0, 1).numpy()[:, :, None] * 255
    share = (one / one.abs().max().clamp_min(1e-12)).numpy()[:, :, None]  # -1 ... 1
    ink = np.where(share > 0, FOR, AGAINST)
    weight = 0.75 * np.abs(share)
    pixels = np.rint((1 - weight) * (0.25 * 255 + 0.5 * grey) + weight * ink).astype(np.uint8)
    factor = max(1, SHOWN // max(height, width))
    return Image.fromarray(pixels).resize((factor * width, factor * height), Image.Resampling.NEAREST)


def side_by_side(pictures: dict[str, Image.Image]) -> Image.Image:
    """Pictures of one size in a row, each below its name."""
    font = ImageFont.load_default(LETTERS)
    width, height = next(iter(pictures.values())).size
    column = max(width, *(math.ceil(font.getlength(name)) for name in pictures))  # a narrow picture has wide words
    page = Image.new("RGB", (len(pictures) * (column + GAP) - GAP, LINE + height), "white")
    draw = ImageDraw.Draw(page)
    for k, (name, picture) in enumerate(pictures.items()):
        left = k * (column + GAP)
        page.paste(picture, (left + (column - width) // 2, LINE))
        draw.text((left + column / 2, LINE / 2), name, "black", font, anchor="mm")
    return page


def class_number(model: Model, label: str | int) -> int:
    """The number of a class, given by name or number."""
    if isinstance(label, str):
        return model.class_names.index(check_name("class", label, model.class_names))
    if not 0 <= label < model.num_classes:
        raise ValueError(f"class must be from 0 to {model.num_classes - 1}, got {label}")
    return label
