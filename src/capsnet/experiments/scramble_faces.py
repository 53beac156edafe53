"""Is a scrambled *real* face still a face?

`scramble` asks this of digits and of drawn houses, boats and faces. Here it is asked of photographs: the networks of
`small-data` learn to tell 100 faces from 100 other pictures (scikit-image's, 25 x 25), in five folds, and are then
shown the faces of the fold that they have not seen, in three ways:

- intact;
- scrambled: the four quarters, none in its place;
- mixed: four quarters of four *different* faces, each in its place. It has the same straight cuts as a scrambled face
  and the right arrangement: a network that rejects it rejects the cuts.

The claim to look at (Hinton's talks): the capsule network calls a scrambled face no face, the CNN calls it one. Unlike
in `scramble`, both networks were trained to answer *no face*.
"""

import functools

import numpy as np
from torch import Tensor

from capsnet import data
from capsnet.data import keyed
from capsnet.drawing.plots import intervals
from capsnet.experiments import _few_images
from capsnet.experiments._claims import Claim, measure_named, past
from capsnet.experiments._faces import SIDE
from capsnet.experiments._few_images import FACES, Task
from capsnet.experiments._paired import interval
from capsnet.experiments._registry import register
from capsnet.experiments._report import Measure, Report, Table
from capsnet.experiments.lab import Lab, Trained, device_of
from capsnet.experiments.scramble import scramble_quarters, separation
from capsnet.inference import evaluating
from capsnet.metrics import difference, wilson_interval
from capsnet.training import TrainConfig

NETS = {"CapsNet": "capsnet-image", "CNN": "cnn-image"}
KINDS = ("intact", "scrambled", "mixed")
EVEN = SIDE - SIDE % 2  # the last row and column stay where they are: an odd side has no halves
DIFFERS = [
    "Nothing was published to compare the numbers with: the claim is made in words.",
    "The CNN averages over its whole map before it decides, as most do: where a part is can only matter within the "
    "receptive field of its stem. The capsules have a matrix for each place.",
    "A face counts as accepted where `face` has the larger length or probability of the two classes.",
    "100 faces: an interval is up to 20 points wide. The same face is scrambled once, so seeds do not narrow it.",
]


def task(lab: Lab) -> Task:
    return _few_images.task(FACES, lab.pick(2, 5, 5))


def plan(lab: Lab) -> list[TrainConfig]:
    return [
        one for net in NETS.values() for seed in lab.seeds for one in _few_images.trainings(lab, task(lab), net, seed)
    ]


def claims(report: Report) -> list[Claim]:
    caps, cnn = (measure_named(report, f"scrambled, {net}: accepted as a face") for net in NETS)
    finding = f"The CapsNet accepts {caps.shown()}, the CNN {cnn.shown()}."
    text = "Capsules reject scrambled real faces, a CNN accepts them"
    return [past(text, "Hinton's talks", [(caps, 50.0, False), (cnn, 50.0, True)], finding)]


@register(
    "scramble-faces",
    "Scrambled photographs: is a real face with its parts moved still a face?",
    plan=plan,
    claims=claims,
)
def run(lab: Lab) -> Report:
    smoke = ["A smoke run: tiny networks, one epoch. The numbers have no meaning."]
    report = Report(differs=[*lab.pick(smoke, [], []), *DIFFERS])
    report.tables = [Table("Accepted as a face", ["network", *KINDS, "AUC of intact against scrambled"], [])]
    scores = {name: measured(lab, net) for name, net in NETS.items()}
    shown = {name: {kind: accepted(kind, name, found) for kind in KINDS} for name, found in scores.items()}
    for name, found in scores.items():
        report.measures += shown[name].values()
        areas = [separation(one["intact"], one["scrambled"]) for one in found]
        report.tables[0].rows.append([name, *(shown[name][kind].shown() for kind in KINDS), f"{np.mean(areas):.3f}"])
        report.raw[name] = {"scores": found, "auc": areas}
    report.findings = findings(shown, paired(scores))
    rows = {kind: [shown[name][kind]._replace(name=name) for name in NETS] for kind in KINDS}
    title, words = "Which pictures pass for a face", "accepted as a face, %"
    report.draw(
        intervals(lab.figure("accepted.png"), rows, title, words, (-2.0, 102.0)),
        "Share of the faces that each network accepts: as they are, with their quarters moved, and put together from "
        "quarters of different faces in their places (95 % intervals).",
    )
    return report


def measured(lab: Lab, net: str) -> list[dict[str, list[float]]]:
    """For each seed and kind the margin of `face` over the other class, of all faces in the order of their files."""
    seeds = []
    for seed in lab.seeds:
        rows: dict[str, list[float]] = {}
        for one in _few_images.trainings(lab, task(lab), net, seed):
            done = lab.train(one, figures=False)
            rows |= lab.remember("margins", functools.partial(margins, done, one.data), run=done.folder)
        order = sorted(rows)
        seeds.append({kind: [rows[file][k] for file in order] for k, kind in enumerate(KINDS)})
    return seeds


def margins(trained: Trained, spec: str) -> dict[str, list[float]]:
    """Of each face of the test split, intact, scrambled and mixed: how far `face` is ahead."""
    test = data.load(spec, "test")
    assert isinstance(test, data.FolderDataset)
    faces = np.flatnonzero(test.targets == test.class_names.index("face"))
    images = test.batch(faces).images
    pictures = [images, scrambled(images, faces), mixed(images, faces)]
    with evaluating(trained.model):
        ahead = [trained.model(one.to(device_of(trained.model))).lengths.cpu() for one in pictures]
    face = test.class_names.index("face")
    columns = [(one[:, face] - one[:, 1 - face]).double().tolist() for one in ahead]
    return {test.files[n]: [column[k] for column in columns] for k, n in enumerate(faces)}


def scrambled(images: Tensor, indices: np.ndarray) -> Tensor:
    """The quarters, none in its place; of an odd side the last row and column stay."""
    moved = images.clone()
    moved[..., :EVEN, :EVEN] = scramble_quarters(images[..., :EVEN, :EVEN], indices)
    return moved


def mixed(images: Tensor, indices: np.ndarray) -> Tensor:
    """Each quarter from another face, in its place. Shapes: (B, 1, 25, 25), (B,) -> (B, 1, 25, 25)"""
    B, half, made = len(images), EVEN // 2, images.clone()
    if B < 4:
        raise ValueError(f"four quarters of different faces need at least 4 faces, got {B}")
    ends = [slice(0, half), slice(half, None)]
    start = int(keyed.integers(0, 0, indices[:1], 1, "scramble.mixed", 0, B)[0, 0])
    for k, (rows, columns) in enumerate([(y, x) for y in ends for x in ends]):
        others = (np.arange(B) + k * (1 + start % max(1, B // 4))) % B  # k steps of at most a quarter: all different
        made[..., rows, columns] = images[others][..., rows, columns]
    return made


def accepted(kind: str, name: str, seeds: list[dict[str, list[float]]]) -> Measure:
    """The share of the faces with a positive margin; the interval is Wilson's for that many faces."""
    shares, n = [float(np.mean(np.array(one[kind]) > 0)) for one in seeds], len(seeds[0][kind])
    low, high = wilson_interval(n * float(np.mean(shares)), n)
    values = [100 * share for share in shares]
    return Measure(f"{kind}, {name}: accepted as a face", values, "%", interval=(100 * low, 100 * high), n=n)


def paired(scores: dict[str, list[dict[str, list[float]]]]) -> Measure:
    """The CapsNet's share of accepted scrambled faces minus the CNN's, with a bootstrap over the faces."""
    shares = [np.mean([np.array(one["scrambled"]) > 0 for one in scores[name]], axis=0) for name in NETS]  # (N,) each
    gaps = 100 * (shares[0] - shares[1])
    picks = np.random.default_rng(0).integers(0, len(gaps), (2000, len(gaps)))
    return Measure("", [float(gaps.mean())], "points", interval=interval(gaps[picks].mean(axis=1)), n=len(gaps))


def findings(shown: dict[str, dict[str, Measure]], gap: Measure) -> list[str]:
    """What the numbers say of the claim, whichever way they fall."""
    caps, cnn = (shown[name]["scrambled"] for name in NETS)
    low, high = gap.interval or (0.0, 0.0)
    words = "fewer" if high < 0 else "more" if low > 0 else "not shown to be fewer or more"
    holds = caps.mean < 50 <= cnn.mean
    sentences = [
        f"Scrambled faces: the CapsNet accepts {caps.shown()}, the CNN {cnn.shown()}; face by face {words}: "
        f"{gap.mean:+.1f} points ({low:+.1f} to {high:+.1f}). The claim (the CapsNet rejects most of them, the CNN "
        f"accepts most) {'holds' if holds else 'does *not* hold'}."
    ]
    for name in NETS:
        mine = shown[name]
        tell = difference(
            "the share of scrambled faces that pass", mine["scrambled"], "that of mixed ones", mine["mixed"]
        )
        sentences.append(
            f"{name}: {tell}. Both have the same cuts; only the arrangement differs. Of intact faces, "
            f"{mine['intact'].shown()} pass."
        )
    return sentences
