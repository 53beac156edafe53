"""Is a scrambled *real* face still a face?

`scramble` asks this of digits and of drawn houses, boats and faces. Here it is asked of photographs: the networks of
`small-data` learn to tell 100 faces from 100 other pictures (scikit-image's, 25 x 25), in five folds, and are then
shown the faces of the fold that they have not seen, in three ways:

- intact;
- scrambled: the four quarters, none in its place;
- mixed: four quarters of four *different* faces, each in its place. It has the same straight cuts as a scrambled face
  and the right arrangement: a network that rejects it rejects the cuts.

The claim to look at (Hinton's talks): a capsule network calls a scrambled face no face, the CNN calls it one. Unlike in
`scramble`, all networks were trained to answer *no face*. As there, capsules whose presence is apart from their pose
(EM routing, inverted attention) stand beside the CapsNet, and what a capsule draws is a second score.
"""

import functools

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from capsnet import data
from capsnet.data import keyed
from capsnet.drawing.plots import intervals
from capsnet.experiments import _few_images, _paired
from capsnet.experiments._claims import Claim, measure_named, past
from capsnet.experiments._faces import SIDE
from capsnet.experiments._few_images import FACES, Task
from capsnet.experiments._registry import STRONG, register
from capsnet.experiments._report import Measure, Report, Table
from capsnet.experiments._scramble import answers, auc_measure, scramble_quarters, separation
from capsnet.experiments.lab import Lab, Trained, device_of
from capsnet.experiments.scramble import CNN, NETS, WORDS, telling
from capsnet.inference import evaluating
from capsnet.metrics import wilson_interval
from capsnet.training import TrainConfig

Scores = list[dict[str, list[float]]]  # see ``measured``
KINDS = ("intact", "scrambled", "mixed")
DRAWN = "drawing, "  # before the kind: how close the drawing is to the picture, instead of the margin of `face`
EVEN = SIDE - SIDE % 2  # the last row and column stay where they are: an odd side has no halves
DIFFERS = [
    "Nothing was published to compare the numbers with: the claim is made in words.",
    "The CNN averages over its whole map before it decides, as most do: where a part is can only matter within the "
    "receptive field of its stem. The capsules have a matrix for each place.",
    "A face counts as accepted where `face` has the larger length, presence or probability of the two classes. The "
    "score of the AUC is the difference of the two.",
    "100 faces: an interval is up to 20 points wide. The same face is scrambled once, so seeds do not narrow it.",
]


def task(lab: Lab) -> Task:
    return _few_images.task(FACES, lab.pick(2, 5, 5))


def trainings(lab: Lab, net: str, seed: int) -> list[TrainConfig]:
    model = "cnn-image" if net == CNN else "capsnet-image"
    return _few_images.trainings(lab, task(lab), model, seed, NETS[net].routing)


def plan(lab: Lab) -> list[TrainConfig]:
    return [one for net in NETS for seed in lab.seeds for one in trainings(lab, net, seed)]


def claims(report: Report) -> list[Claim]:
    shown = {
        net: {kind: measure_named(report, title(kind, net)) for kind in KINDS} for net in NETS if net in report.raw
    }
    return [rejects(net, mine, shown[CNN]) for net, mine in shown.items() if net != CNN]


def title(kind: str, net: str) -> str:
    return f"{kind}, {net}: accepted as a face"


def rejects(net: str, caps: dict[str, Measure], cnn: dict[str, Measure]) -> Claim:
    """That a capsule network rejects most scrambled faces (not the intact ones), and the CNN accepts most."""
    text = f"{NETS[net].kind} reject scrambled real faces, a CNN accepts them"
    finding = f"The {net} accepts {caps['scrambled'].shown()}, the CNN {cnn['scrambled'].shown()}."
    checks = [(caps["scrambled"], 50.0, False), (cnn["scrambled"], 50.0, True), (caps["intact"], 50.0, True)]
    return past(text, "Hinton's talks", checks, finding)


@register(
    "scramble-faces",
    "Scrambled photographs: is a real face with its parts moved still a face?",
    plan=plan,
    budgets=STRONG,
    claims=claims,
)
def run(lab: Lab) -> Report:
    first = plan(lab)[0]
    smoke = ["A smoke run: tiny networks, one epoch. The numbers have no meaning."]
    length = f"The recipe `images`, {'half' if lab.budget == 'quick' else 'full'} width, {first.epochs} epochs."
    report = Report(differs=[*lab.pick(smoke, [length], [length]), *DIFFERS])
    columns = ["network", *KINDS, "AUC of intact against scrambled", "AUC by the drawing"]
    report.tables = [Table("Accepted as a face", columns, [])]
    scores = {net: measured(lab, net) for net in NETS}
    shown = {net: {kind: accepted(kind, net, found) for kind in KINDS} for net, found in scores.items()}
    areas = {net: separated(net, found) for net, found in scores.items()}
    for net, found in scores.items():
        report.measures += [*shown[net].values(), *areas[net].values()]
        told = [areas[net][key].shown() if key in areas[net] else "-" for key in ("auc", "drawing")]
        report.tables[0].rows.append([net, *(shown[net][kind].shown() for kind in KINDS), *told])
        report.raw[net] = {"scores": found, "auc": {key: area.values for key, area in areas[net].items()}}
    report.findings = findings(shown, areas, scores)
    rows = {kind: [shown[net][kind]._replace(name=net) for net in NETS] for kind in KINDS}
    heading, words = "Which pictures pass for a face", "accepted as a face, %"
    report.draw(
        intervals(lab.figure("accepted.png"), rows, heading, words, (-2.0, 102.0)),
        "Share of the faces that each network accepts: as they are, with their quarters moved, and put together from "
        "quarters of different faces in their places (95 % intervals).",
    )
    return report


def measured(lab: Lab, net: str) -> Scores:
    """For each seed and kind the margin of `face` over the other class, and the closeness of the drawing (``DRAWN``)
    where there is one, of all faces in the order of their files."""
    seeds = []
    for seed in lab.seeds:
        rows: dict[str, dict[str, float]] = {}
        for one in trainings(lab, net, seed):
            done = lab.train(one, figures=False)
            rows |= lab.remember("scores", functools.partial(score_faces, done, one.data), run=done.folder)
        order = sorted(rows)
        seeds.append({key: [rows[file][key] for file in order] for key in rows[order[0]]})
    return seeds


def score_faces(trained: Trained, spec: str) -> dict[str, dict[str, float]]:
    """Of each face of the test split, intact, scrambled and mixed: how far `face` is ahead, how well it is drawn."""
    test = data.load(spec, "test")
    assert isinstance(test, data.FolderDataset)
    face = test.class_names.index("face")
    faces = np.flatnonzero(test.targets == face)
    images = test.batch(faces).images
    columns: dict[str, list[float]] = {}
    for kind, pictures in zip(KINDS, (images, scrambled(images, faces), mixed(images, faces)), strict=True):
        with evaluating(trained.model):
            lengths = trained.model(pictures.to(device_of(trained.model))).lengths.cpu()
        columns[kind] = (lengths[:, face] - lengths[:, 1 - face]).double().tolist()
        drawing = answers(trained.model, pictures).get("drawing")
        columns |= {} if drawing is None else {DRAWN + kind: drawing}
    return {test.files[n]: {key: column[k] for key, column in columns.items()} for k, n in enumerate(faces)}


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


def accepted(kind: str, net: str, seeds: Scores) -> Measure:
    """The share of the faces with a positive margin; the interval is Wilson's for that many faces."""
    shares, n = [float(np.mean(np.array(one[kind]) > 0)) for one in seeds], len(seeds[0][kind])
    low, high = wilson_interval(n * float(np.mean(shares)), n)
    return Measure(title(kind, net), [100 * share for share in shares], "%", interval=(100 * low, 100 * high), n=n)


def separated(net: str, seeds: Scores) -> dict[str, Measure]:
    """How well intact faces are told from scrambled ones, by the margin (``auc``) and by the ``drawing``."""
    names = {"auc": ("", "AUC of intact against scrambled"), "drawing": (DRAWN, "AUC by the drawing")}
    found = {}
    for key, (prefix, name) in names.items():
        if f"{prefix}intact" in seeds[0]:
            areas = [separation(one[f"{prefix}intact"], one[f"{prefix}scrambled"]) for one in seeds]
            found[key] = auc_measure(f"{net}: {name}", areas, len(seeds[0]["intact"]))
    return found


def paired(ours: Scores, theirs: Scores, kinds: tuple[str, str] = ("scrambled", "scrambled")) -> Measure:
    """The share that one network accepts of one kind of face minus that of the other of the other kind, face by face,
    with a bootstrap over faces and seeds."""
    both = [np.array([seed[kind] for seed in one]) > 0 for one, kind in zip((ours, theirs), kinds, strict=True)]
    S, N = both[0].shape
    draws = _paired.draw(np.arange(N), S)
    first, second = (_paired.resampled(share, passed, draws) for passed in both)
    gaps = [float(100 * (a.mean() - b.mean())) for a, b in zip(*both, strict=True)]
    return Measure("", gaps, "points", interval=_paired.interval(first - second), n=N)


def fewer(gap: Measure) -> str:
    """A paired difference in words, with its interval."""
    low, high = gap.interval or (gap.mean, gap.mean)
    words = "fewer" if high < 0 else "more" if low > 0 else "not shown to be fewer or more"
    return f"{words}: {gap.mean:+.1f} points ({low:+.1f} to {high:+.1f})"


def share(passed: NDArray, weights: NDArray) -> NDArray:
    """Of each seed, in percent. Shapes: (S, N), (B, N) -> (B, S)"""
    return 100 * (weights @ passed.T) / weights.sum(axis=1, keepdims=True)


def findings(
    shown: dict[str, dict[str, Measure]], areas: dict[str, dict[str, Measure]], scores: dict[str, Scores]
) -> list[str]:
    """What the numbers say of the claim, whichever way they fall."""
    sentences, capsules = [], [net for net in shown if net != CNN]
    for net in capsules:
        claim = rejects(net, shown[net], shown[CNN])
        sentences.append(
            f"Scrambled faces: {claim.finding[0].lower()}{claim.finding[1:-1]}; face by face "
            f"{fewer(paired(scores[net], scores[CNN]))}. The claim (the {net} rejects most of them and accepts most "
            f"intact ones, the CNN accepts most scrambled ones) {WORDS[claim.verdict]}."
        )
    for net, mine in shown.items():
        gap = paired(scores[net], scores[net], ("scrambled", "mixed"))
        sentences.append(
            f"{net}: {mine['scrambled'].shown()} of the scrambled faces pass and {mine['mixed'].shown()} of the mixed "
            f"ones, face by face {fewer(gap)}. Both have the same cuts; only the arrangement differs. Of intact faces, "
            f"{mine['intact'].shown()} pass."
        )
    return sentences + [f"Telling intact from scrambled faces, {telling(net, areas)}." for net in capsules]
