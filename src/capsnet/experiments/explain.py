"""Do the contributions of the children show where a class is? `capsnet.explain` judged where the truth is known.

A class capsule is a sum of votes, so it says by itself what each child brought to it: c (u_hat . v) / |v|. Spread over
the pixels that each child sees, this is a map that needs no gradient. Here it stands beside integrated gradients
(Sundararajan, Taly, Yan 2017) and Grad-CAM (Selvaraju et al. 2017) on generated pictures of two touching or overlapping
objects (`shapes:kind=crowded`), of which every pixel's owner is known. Integrated gradients are multiplied by the
picture, so they are zero where there is no ink; the other two maps are judged as they are and times the ink. Two
controls know no class: the ink, and chance.

Two questions: do the highest pixels of the map of a class lie on the object of that class (IoU with as many pixels as
the object has), and does the class disappear when they are blackened first (deletion: the area under its presence,
lower is better)? The claim to look at: a routing that assigns parts to wholes should point to the right object.
"""

from functools import partial
from typing import Any

import numpy as np
import torch

from capsnet import data
from capsnet.data import Shapes
from capsnet.drawing.pictures import Cell, Row, Words, picture_rows
from capsnet.drawing.plots import Line, lines
from capsnet.experiments import _attributions, _nets
from capsnet.experiments._claims import Claim, higher
from capsnet.experiments._registry import register
from capsnet.experiments._report import Report
from capsnet.experiments.equivariance import crowded
from capsnet.experiments.lab import Lab
from capsnet.metrics import Measure, difference, mean_interval
from capsnet.models import Model
from capsnet.training import TrainConfig

TITLE = "Explain: do the parts that a class capsule is made of lie on its object?"
SOURCE = "this package (docs/explain.md)"
DIFFERS = [
    "Nothing was published to compare the numbers with.",
    "The fields of the children are 9 of 40 pixels wide, so the map of their contributions is coarse; times the ink "
    "it is as sharp as the picture. Only classes that are present and found (presence of 0.5 or more) are explained.",
    "Blackened pictures are none that the network was trained on. Scattered holes leave a picture that is thinned out, "
    "in which a class may come back: look at the beginning of the curves as well as at the area under them.",
]
STEPS, BATCH, FOUND = 20, 50, 0.5
WORDS = {"iou": "IoU with the object", "area": "area under deletion"}


def config(lab: Lab, seed: int) -> TrainConfig:
    """A CapsNet with small windows, whose children see 9 of 40 pixels."""
    longer = lab.pick({}, {"limit": 8_000, "epochs": 4, "batch_size": 32, "lr": 2e-3}, {"epochs": 20})
    narrow = lab.pick({}, {"conv_channels": 32}, {})
    return _nets.capsnet(lab, crowded(lab), seed=seed, iterations=3, decoder=False, kernel_size=5, **narrow, **longer)


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, seed) for seed in lab.seeds]


def claims(report: Report) -> list[Claim]:
    text = "Contributions of children point at an object better than integrated gradients and Grad-CAM"
    as_they_are = [f"{WORDS['iou']}, {name}" for name in ("contributions", "integrated gradients", "Grad-CAM")]
    on_ink = [as_they_are[0] + " on ink", as_they_are[1], as_they_are[2] + " on ink"]  # the second is so by itself
    return [
        higher(text, SOURCE, report, as_they_are[0], as_they_are[1:]),
        higher(f"{text}, all of them times the ink", SOURCE, report, on_ink[0], on_ink[1:]),
    ]


@register("explain", TITLE, plan=plan, claims=claims)
def run(lab: Lab) -> Report:
    report = Report(differs=[*_nets.differences(lab, plan(lab)), *DIFFERS])
    count = lab.pick(6, 100, 1_000)
    test = data.load(crowded(lab), "test")
    assert isinstance(test, Shapes)
    trained = [lab.train(config(lab, seed)) for seed in lab.seeds]
    measured = [
        lab.remember("maps", partial(measure, t.model, test, count), run=t.folder, n=count, steps=STEPS)
        for t in trained
    ]
    report.raw = {"runs": [t.folder.name for t in trained], "error": [t.error for t in trained], "measured": measured}
    pictures = [m["pictures"] for m in measured]
    found = {
        (what, name): mean_of_pictures(f"{words}, {name}", [m[name][what] for m in measured], pictures)
        for what, words in WORDS.items()
        for name in _attributions.METHODS
    }
    report.measures = list(found.values())
    right = 100 - float(np.mean(report.raw["error"]))
    report.findings.append(f"Both objects are found in {right:.2f} % of all test pictures.")
    ours = "contributions on ink"
    for rival in ("integrated gradients", "Grad-CAM on ink", "ink"):
        for what, words in (("iou", "the IoU"), ("area", "the area under deletion")):
            sentence = difference(f"{words} of {ours}", found[what, ours], f"that of {rival}", found[what, rival])
            report.findings.append(f"{sentence[0].upper()}{sentence[1:]}.")
    curves = [
        Line(
            name, [k / STEPS for k in range(STEPS + 1)], np.mean([m[name]["curve"] for m in measured], axis=0).tolist()
        )
        for name in _attributions.METHODS
    ]
    tenth = ", ".join(f"{curve.name} {curve.y[STEPS // 10]:.2f}" for curve in curves)
    report.findings.append(f"After a tenth of the ink is blackened, the presence of the class is: {tenth}.")
    axes = ("share of the ink that is blackened, highest pixels first", "presence of the class, relative")
    path = lines(lab.figure("deletion.png"), curves, "Deletion", "lower is better: the map names what counts", *axes)
    report.draw(path, "The presence of a class while the pixels that a map ranks highest are blackened.")
    report.draw(
        _pictures(lab, trained[0].model, test), "The first test pictures, and the maps of each of their objects."
    )
    return report


def measure(model: Model, test: Shapes, count: int) -> dict[str, Any]:
    """Of each method the IoU and the area of every explained object, and the mean curve; and the objects' pictures."""
    model, pictures = model.cpu().eval(), []
    values: dict[str, dict[str, list[Any]]] = {
        name: {"iou": [], "area": [], "curve": []} for name in _attributions.METHODS
    }
    for start in range(0, min(count, len(test)), BATCH):
        index = np.arange(start, min(start + BATCH, count, len(test)))
        images, truth = test.batch(index).images, test.truth(index)
        with torch.no_grad():
            lengths = model(images).lengths
        for k in range(test.objects):
            classes = torch.from_numpy(truth.classes[:, k])
            seen = (lengths.gather(1, classes[:, None])[:, 0] >= FOUND).numpy() & (truth.owner == k).any(axis=(1, 2))
            if not seen.any() and start == k == 0:
                seen[:] = True  # a smoke network finds nothing: its numbers have no meaning
            if not seen.any():
                continue
            _add(values, model, images[seen], classes[seen], truth.owner[seen] == k)
            pictures += index[seen].tolist()
    measured: dict[str, Any] = {name: v | {"curve": np.mean(v["curve"], axis=0).tolist()} for name, v in values.items()}
    return measured | {"pictures": pictures}


def _add(values: Any, model: Model, images: torch.Tensor, classes: torch.Tensor, owned: np.ndarray) -> None:
    for name, method in _attributions.METHODS.items():
        maps = method(model, images, classes)
        curves = _attributions.deletion(model, images, classes, maps, STEPS)
        values[name]["iou"] += _attributions.overlap(maps, owned)
        values[name]["area"] += ((curves[:, 1:] + curves[:, :-1]).mean(axis=1) / 2).tolist()  # trapezes
        values[name]["curve"] += curves.tolist()


def mean_of_pictures(name: str, values: list[list[float]], pictures: list[list[int]]) -> Measure:
    """The mean of the objects of each seed, and the interval over pictures of all seeds.

    The two objects of a picture are not independent, nor are several networks on it: a picture counts once, with the
    mean of all of them.

    Args:
        values, pictures: of each seed, the value of each object and the number of its picture.
    """
    grouped: dict[int, list[float]] = {}
    for seed, numbers in zip(values, pictures, strict=True):
        for value, number in zip(seed, numbers, strict=True):
            grouped.setdefault(number, []).append(value)
    means = [float(np.mean(group)) for group in grouped.values()]
    interval = mean_interval(means) if len(means) > 1 else None
    return Measure(name, [float(np.mean(seed)) for seed in values], "", "-", interval, "", len(means))


def _pictures(lab: Lab, model: Model, test: Shapes) -> Any:
    rows, shown = [], [name for name in _attributions.METHODS if name not in ("ink", "chance")]
    batch, truth = test.batch(range(3)), test.truth(range(3))
    for i in range(3):
        for k in range(test.objects):
            image, j = batch.images[i : i + 1], torch.from_numpy(truth.classes[i, k : k + 1])
            cells = [Cell(image[0].numpy(), [Words(test.class_names[int(j)])])]
            cells.append(Cell((truth.owner[i] == k)[None].astype(np.float32)))
            for name in shown:
                one = _attributions.METHODS[name](model.cpu(), image, j).clamp_min(0)
                cells.append(Cell((one / one.max().clamp_min(1e-12)).numpy()))
            rows.append(
                Row(
                    cells,
                    heads=("picture", "object", *(name.replace(" ", "\n", 1) for name in shown)) if not rows else (),
                )
            )
    note = "white: what speaks for the class; the second column is the truth"
    return picture_rows(lab.figure("maps.png"), rows, "Maps of two objects", note, size=160)
