"""The figures of the binding experiment: pictures in which colour is phase."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from capsnet import oscillators
from capsnet.data.generated.outlines import BACKGROUND, OVERLAP
from capsnet.drawing.animation import render, save_gif
from capsnet.drawing.pictures import Cell, Row, picture_page, picture_rows
from capsnet.drawing.plots import COLOURS, intervals
from capsnet.inference.binding import Scenes, by_network
from capsnet.inference.prediction import evaluating
from capsnet.metrics import Measure
from capsnet.models import BindingModel, OscillatorModel
from capsnet.models.akorn import enlarged

EXAMPLES = 2  # pictures of each set
SETTLING = 6  # of the animation


def phases(path: Path, shown: Sequence[tuple[str, Scenes, Mapping[str, BindingModel]]]) -> Path:
    """For some pictures of each set: the input, the true owners, and the phases of each network's pixels."""
    rows = []
    for name, scenes, networks in shown:
        few = Scenes(scenes.images[:EXAMPLES], scenes.owners[:EXAMPLES], scenes.objects)
        found = [by_network(model, few)[0] for model in networks.values()]
        for k in range(EXAMPLES):
            cells = [Cell(few.images[k].numpy()), Cell(owner_colours(few.owners[k]))]
            cells += [Cell(phase_picture(one[k], few.images[k, 0])) for one in found]
            heads = [
                head.replace(", ", "\n").replace("rotating ", "rotating\n")
                for head in ("picture", "objects", *networks)
            ]
            rows.append(Row(cells, label="" if k else name, heads=() if rows else heads))
    note = "Colour is phase, brightness is that of the picture. White in the second column: pixels of several objects."
    return picture_rows(path, rows, "Which pixel belongs to which object, by phase", note, size=144)


def settling(path: Path, scenes: Scenes, model: OscillatorModel) -> Path:
    """An animation: the phases of some pictures after every step of each layer, in the order in which layers settle."""
    images = scenes.images[:SETTLING]
    with evaluating(model):
        layers = [layer.steps for layer in model.oscillate(images.to(next(model.parameters()).device), trace=True)]
    side, size = images.shape[-1], images.shape[-2:]
    states, words = [], []
    for k, steps in enumerate(layers):
        assert steps is not None
        factor = -(-side // steps.shape[-1])
        states.append(enlarged(steps, factor, *size).cpu())  # (T, B, C, n, H, W)
        words += [
            f"layer {k + 1}, {steps.shape[-2]} x {steps.shape[-1]} positions, step {t + 1}" for t in range(len(steps))
        ]
    vectors = torch.cat(states).flatten(2, 3).movedim(2, -1)  # (T, B, H, W, C n)
    light = images[:, 0].clamp(0, 1).expand(len(vectors), *images[:, 0].shape)
    # a picture's frames together, so that its colours keep their meaning
    colours = torch.stack([oscillators.phase_colours(vectors[:, b], light[:, b]) for b in range(len(images))], dim=1)
    frames = []
    for now, title in zip(colours, words, strict=True):
        cells = [Cell(one.movedim(-1, 0).numpy()) for one in now]
        inputs = Row([Cell(image.numpy()) for image in images], label="picture")
        frames.append(render(picture_page([inputs, Row(cells, label="phases")], "Oscillators settle", title)))
    return save_gif(path, frames, [400] * (len(frames) - 1) + [2500])


def owner_colours(owners: Tensor) -> np.ndarray:
    """One colour per object, white where objects overlap, black background: (H, W) -> (3, H, W)."""
    palette = {k + 1: colour for k, colour in enumerate(COLOURS)} | {BACKGROUND: "#000000", OVERLAP: "#FFFFFF"}
    picture = np.zeros((3, *owners.shape))
    for owner in np.unique(owners.numpy()):
        value = palette[int(owner)]
        rgb = [int(value[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        picture[:, owners.numpy() == owner] = np.array(rgb)[:, None]
    return picture


def phase_picture(x: Tensor, image: Tensor) -> np.ndarray:
    """The phases of a picture's pixels, (C, n, H, W), as colours as bright as the picture: (3, H, W)."""
    vectors = x.flatten(0, 1).movedim(0, -1)  # (H, W, C n)
    return torch.movedim(oscillators.phase_colours(vectors, image.clamp(0, 1)), -1, 0).numpy()


def scores(path: Path, rows: Mapping[str, Sequence[Measure]]) -> Path:
    """A row per method, a dot per set."""
    return intervals(
        path, rows, "Phases against controls", "FG-ARI, 1: all pixels of the objects are grouped", (-0.05, 1.02)
    )
