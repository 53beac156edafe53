"""Is a scrambled face still a face?

Hinton's argument for capsules, in his talks and in *Transforming Auto-encoders* (2011): pooling discards where parts
are, so a convolutional network accepts eyes, nose and mouth in *any* arrangement, while a capsule needs its parts to
agree about the pose of the whole and stays short when they do not.

Here both kinds of networks are trained on intact pictures only, digits and generated houses, boats and faces. Then they
see the same pictures taken apart: the four quarters of a digit, none in its place; the parts of a house, boat or face,
every pair standing wrongly to each other, with the same amount of ink (`shapes:kind=scrambled`).

The claim to look at: the longest capsule falls below 0.5, the CNN's probability does not; and the length is the better
score for telling intact from scrambled. Beside it stands a second score that only the CapsNet has: the difference
between the picture and what its longest capsule draws.
"""

from collections.abc import Sequence
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capsnet import data
from capsnet.data import keyed
from capsnet.drawing.pictures import Cell, Row, Words, picture_rows
from capsnet.drawing.plots import COLOURS, LABEL, TICK, panels, tidy
from capsnet.drawing.style import BLUE, FAINT, INK, MUTED, VERMILLION, heading, save
from capsnet.experiments import _nets
from capsnet.experiments._claims import Claim, measure_named, past
from capsnet.experiments._registry import STRONG, register
from capsnet.experiments._report import Measure, Report, Table, error_measure
from capsnet.experiments.lab import Lab, device_of
from capsnet.inference import evaluating
from capsnet.metrics import difference
from capsnet.models import Model, Output
from capsnet.training import TrainConfig

THRESHOLD = 0.5  # a capsule as long as this, a class as probable as this, counts as present
DERANGEMENTS = np.array([p for p in permutations(range(4)) if all(p[k] != k for k in range(4))])  # (9, 4)
NETS = {"CapsNet": "longest capsule", "CNN": "highest probability"}
FAMILIES = {"digits": "scrambled digits", "shapes": "scrambled houses, boats and faces"}
DIFFERS = [
    "Nothing was published to compare the numbers with: the claim is made in words.",
    "Cutting a digit into quarters leaves straight cuts, which a network may notice rather than the arrangement; and "
    "four quarters sometimes make another digit (the halves of a 2 swapped: a 5). The shapes have neither fault.",
    "Neither network is trained to answer *none*. 0.5 is the middle of the margin loss, and for the CNN where one "
    "class has more than all others together; a probability cannot fall below 0.1 among ten classes, 0.33 among "
    "three. The ROC curves, and the share that passes where 95 % of intact pictures do, need no such threshold.",
]
BLURRED = (
    "In minutes the decoder learns little of a shape but where its ink is: its score is that of an unfinished one."
)
COLUMNS = [
    "pictures", "network", "right on intact", "intact at 0.5 or above", "scrambled at 0.5 or above",
    "of these, as the whole it was", "median score, intact / scrambled", "scrambled that pass where 95 % of intact do",
    "pairs of pictures",
]  # fmt: skip


def spec(lab: Lab, family: str, kind: str = "wholes") -> str:
    return "mnist" if family == "digits" else f"shapes:kind={kind}" + lab.pick(",count=400", "", "")


def config(lab: Lab, family: str, net: str, seed: int) -> TrainConfig:
    """On digits the networks of `table1`; on shapes small batches: with others the decoder learns only a blob."""
    shapes = lab.pick({}, {"limit": 10_000, "epochs": 3, "batch_size": 32, "lr": 1e-3}, {"epochs": 20})
    changes: dict[str, Any] = shapes if family == "shapes" else {}
    if net == "CNN":
        return _nets.cnn(lab, spec(lab, family), seed=seed, **changes)
    return _nets.capsnet(lab, spec(lab, family), seed=seed, iterations=3, decoder=True, **changes)


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, family, net, seed) for family in FAMILIES for net in NETS for seed in lab.seeds]


def claims(report: Report) -> list[Claim]:
    """That the CapsNet rejects most scrambled pictures and the CNN accepts most: two shares on two sides of a half."""
    result = []
    for family in FAMILIES.values():
        caps, cnn = (measure_named(report, f"{family}, {net}: still at {THRESHOLD} or above") for net in NETS)
        finding = f"The CapsNet accepts {caps.shown()}, the CNN {cnn.shown()}."
        text = f"Capsules reject {family}, a CNN accepts them"
        result.append(past(text, "Hinton's talks", [(caps, 50.0, False), (cnn, 50.0, True)], finding))
    return result


TITLE = "Scrambled: does a network notice that the parts are in the wrong places?"


@register("scramble", TITLE, plan=plan, budgets=STRONG, claims=claims)
def run(lab: Lab) -> Report:
    report = Report(differs=[*_nets.differences(lab, plan(lab)), *DIFFERS, *lab.pick([], [BLURRED], [])])
    report.tables = [Table("How sure the networks are", COLUMNS, [])]
    measured: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for family in FAMILIES:
        (pictures, classes, names), trained = load_pairs(lab, family), {}
        for net in NETS:
            trained[net] = [lab.train(config(lab, family, net, seed)) for seed in lab.seeds]
            measured[family, net] = [
                lab.remember("scores", partial(measure, t.model, pictures, classes), run=t.folder, n=len(classes))
                for t in trained[net]
            ]
            report.raw[f"{family}: {net}"] = {
                "runs": [t.folder.name for t in trained[net]],
                "test_error": [t.error for t in trained[net]],
                "measured": [m["summary"] for m in measured[family, net]],
                "parameters": _nets.parameters(config(lab, family, net, 0)),
            }
        describe(report, family)
        first = [measured[family, net][0] for net in NETS]
        rows = gallery(trained["CapsNet"][0].model, pictures, classes, names, first)
        note = f"left: intact; right: parts rearranged  ·  ✗: at {THRESHOLD} or above, though it is none"
        path, title = lab.figure(f"gallery-{family}.png"), f"Intact pictures and {FAMILIES[family]}"
        report.draw(
            picture_rows(path, rows, title, note, size=160, group=2),
            f"The first test pictures ({family}), intact and scrambled; below, what the CapsNet's longest capsule "
            "draws, and both networks' answers with their scores.",
        )
    draw_curves(lab, report, measured)
    return report


def load_pairs(lab: Lab, family: str) -> tuple[dict[str, Tensor], list[int], Sequence[str]]:
    """The first test pictures, intact and scrambled (each (N, C, H, W)), their classes and the names of these."""
    test = data.load(spec(lab, family), "test")
    index = np.arange(min(len(test), lab.pick(100, 5_000, 10_000)))
    batch, apart = test.batch(index), data.load(spec(lab, family, "scrambled"), "test").batch(index).images
    moved = scramble_quarters(apart, index) if family == "digits" else apart
    return {"intact": batch.images, "scrambled": moved}, batch.targets.tolist(), test.class_names


def scramble_quarters(images: Tensor, indices: np.ndarray) -> Tensor:
    """Cut each picture into four quarters and put each in the place of another: the ink stays the same.

    Which of the nine derangements is keyed by the example, not by the batch. Shapes: (B, C, H, W), (B,) -> (B, C, H, W)
    """
    B, C, H, W = images.shape
    if H % 2 or W % 2:
        raise ValueError(f"pictures of {H} x {W} have no four equal quarters: height and width must be even")
    blocks = images.reshape(B, C, 2, H // 2, 2, W // 2).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # (B, 4, C, H/2, W/2)
    way = keyed.integers(0, 0, indices, 1, "scramble.quarters", 0, len(DERANGEMENTS))[:, 0]  # (B,)
    moved = blocks[torch.arange(B)[:, None], torch.from_numpy(DERANGEMENTS[way])]
    return moved.unflatten(1, (2, 2)).permute(0, 3, 1, 4, 2, 5).reshape(B, C, H, W)


def measure(model: Model, pictures: dict[str, Tensor], classes: list[int]) -> dict[str, Any]:
    """The answers to both kinds of pictures, and their summary."""
    both = {kind: answers(model, images) for kind, images in pictures.items()}
    return both | {"summary": summarise(**both, classes=classes)}


def answers(model: Model, images: Tensor) -> dict[str, list]:
    """For each picture ``label``, ``score`` (longest capsule or highest probability), ``rank`` and ``drawing``.

    ``rank`` orders pictures as the score would with more digits: the log odds of a probability, the length of a
    capsule. ``drawing`` is the squared difference between the picture and what the longest capsule draws, negated.
    """
    parts: dict[str, list[Tensor]] = {"label": [], "score": [], "rank": [], "drawing": []}
    with evaluating(model):
        for chunk in images.to(device_of(model)).split(250):
            output: Output = model(chunk)
            score, label = output.lengths.max(dim=1)
            parts["label"].append(label)
            parts["score"].append(score.double())
            parts["rank"].append(score.double() if output.logits is None else log_odds(output.logits))
            if output.reconstruction is not None:
                parts["drawing"].append(-(output.reconstruction - chunk).square().flatten(1).sum(dim=1).double())
    return {key: torch.cat(values).cpu().tolist() for key, values in parts.items() if values}


def log_odds(logits: Tensor) -> Tensor:
    """log p / (1 - p) of the most probable class, exact where p rounds to 1. Shapes: (B, J) -> (B,)"""
    best, where = logits.double().max(dim=1)
    return best - logits.double().scatter(1, where[:, None], -torch.inf).logsumexp(dim=1)


def summarise(intact: dict[str, list], scrambled: dict[str, list], classes: list[int]) -> dict[str, Any]:
    """Shares that reach the threshold, and how well each score tells intact from scrambled (AUC)."""
    before, after = np.array(intact["score"]), np.array(scrambled["score"])
    false, true = roc(intact["rank"], scrambled["rank"])
    right, same = (np.array(one["label"]) == np.array(classes) for one in (intact, scrambled))
    present = after >= THRESHOLD
    shares = {"right": right, "intact": before >= THRESHOLD, "scrambled": present, "own class": present & same}
    return {key: float(share.mean()) for key, share in shares.items()} | {
        "n": len(after),
        "median intact": float(np.median(before)),
        "median scrambled": float(np.median(after)),
        "passing at 95": float(false[np.argmax(true >= 0.95)]),
        "auc": separation(intact["rank"], scrambled["rank"]),
        "auc of drawing": separation(intact["drawing"], scrambled["drawing"]) if "drawing" in intact else None,
    }


def separation(intact: list[float], scrambled: list[float]) -> float:
    """The chance that an intact picture scores above a scrambled one, the area below the ROC curve; 0.5 is chance."""
    false, true = roc(intact, scrambled)
    return float(np.diff(false) @ (true[1:] + true[:-1]) / 2)


def roc(intact: list[float], scrambled: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates at 0 and at each score, from the strictest to the laxest: two of (T + 1,)."""
    levels = np.unique([*intact, *scrambled])[::-1]
    false, true = (np.searchsorted(np.sort(-np.array(s)), -levels, "right") / len(s) for s in (scrambled, intact))
    return np.append(0.0, false), np.append(0.0, true)


def auc_measure(name: str, areas: list[float], n: int) -> Measure:
    """AUCs of n against n pictures, one per seed, with the interval of Hanley and McNeil (1982)."""
    area = float(np.mean(areas))
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = (area * (1 - area) + (n - 1) * (q1 - area**2) + (n - 1) * (q2 - area**2)) / n**2
    reach = 1.96 * max(variance, 0.0) ** 0.5
    return Measure(name, areas, "", interval=(max(0.0, area - reach), min(1.0, area + reach)), n=n)


def describe(report: Report, family: str) -> None:
    """Measures, rows of the table and findings of one kind of pictures, from the raw numbers."""
    scores = {}
    for net in NETS:
        runs, name = report.raw[f"{family}: {net}"]["measured"], f"{FAMILIES[family]}, {net}"
        s = {key: [run[key] for run in runs] for key in runs[0] if runs[0][key] is not None}
        n = s["n"][0]
        rejected = [{"value": 1 - share, "n": n} for share in s["scrambled"]]
        scores[net] = {
            "share": error_measure(f"{name}: still at {THRESHOLD} or above", rejected),
            "auc": auc_measure(f"{name}: AUC of intact against scrambled", s["auc"], n),
        }
        if "auc of drawing" in s:
            scores[net]["drawing"] = auc_measure(f"{name}: AUC by the drawing", s["auc of drawing"], n)
        report.measures += scores[net].values()
        s = {key: float(np.mean(values)) for key, values in s.items()}
        own = f"{100 * s['own class'] / s['scrambled']:.1f} %" if s["scrambled"] else "-"
        shares = [f"{100 * s[key]:.1f} %" for key in ("right", "intact", "scrambled", "passing at 95")]
        medians = f"{s['median intact']:.2f} / {s['median scrambled']:.2f}"
        report.tables[0].rows.append([family, net, *shares[:3], own, medians, shares[3], f"{n:,}"])
    report.findings += findings(family, scores["CapsNet"], scores["CNN"])


def findings(family: str, caps: dict[str, Measure], cnn: dict[str, Measure]) -> list[str]:
    """What the numbers say of the claim, whichever way they fall."""
    share = difference("the share that the CapsNet accepts", caps["share"], "that of the CNN", cnn["share"])
    holds = caps["share"].mean < 50 <= cnn["share"].mean
    length = difference("the AUC of the capsule's length", caps["auc"], "that of the CNN's probability", cnn["auc"])
    drawing = difference("the AUC of its drawing", caps["drawing"], "that of its length", caps["auc"])
    return [
        f"{FAMILIES[family].capitalize()}: {share}. The claim (the CapsNet rejects most of them, the CNN accepts most) "
        f"{'holds' if holds else 'does *not* hold'}.",
        f"Telling intact from {FAMILIES[family]}: {length}. For the CapsNet, {drawing}.",
    ]


def gallery(
    model: Model, pictures: dict[str, Tensor], classes: list[int], names: Sequence[str], runs: list
) -> list[Row]:
    """The first test pictures, classes in turn, intact and scrambled, with both networks' answers."""
    turn = [classes[:n].count(label) for n, label in enumerate(classes[:200])]
    chosen = sorted(range(len(turn)), key=lambda n: (turn[n], n))[:6]
    rows = []
    for three in (chosen[:3], chosen[3:]):
        inputs, drawings = [], []
        for n, (kind, images) in product(three, pictures.items()):
            with evaluating(model):
                drawn = model(images[n : n + 1].to(device_of(model))).reconstruction[0].cpu().numpy()
            words = []
            for one in runs:
                name, score = names[one[kind]["label"][n]], one[kind]["score"][n]
                wrong = kind == "scrambled" and score >= THRESHOLD
                colour = VERMILLION if wrong else MUTED if score < THRESHOLD else INK
                words.append(Words(f"{name}: {score:.2f}{' ✗' * wrong}", colour, wrong))
            inputs.append(Cell(images[n].numpy()))
            drawings.append(Cell(drawn, words))
        rows += [Row(inputs, "picture"), Row(drawings, "drawing\nof the CapsNet", lines=list(NETS))]
    return rows


def draw_curves(lab: Lab, report: Report, measured: dict[tuple[str, str], list[dict[str, Any]]]) -> None:
    """ROC curves of the three scores, and histograms of both networks' scores."""
    fig, [row] = panels(1, len(FAMILIES), 4.9, 5.0)
    curves = [("CapsNet", "length", "-"), ("CNN", "probability", "--"), ("CapsNet", "drawing", ":")]
    for ax, (family, words) in zip(row, FAMILIES.items(), strict=True):
        ax.plot([0, 1], [0, 1], color=FAINT, linewidth=1.5)
        for (net, score, dash), colour in zip(curves, COLOURS, strict=False):
            key, area = ("drawing", "auc of drawing") if score == "drawing" else ("rank", "auc")
            runs = measured[family, net]
            name = f"{net}: {score}, AUC {np.mean([run['summary'][area] for run in runs]):.3f}"
            for seed, run in enumerate(runs):
                false, true = roc(run["intact"][key], run["scrambled"][key])
                style: dict[str, Any] = {"linewidth": 1} if seed else {"linewidth": 2.4, "label": name}
                ax.plot(false, true, color=colour, linestyle=dash, **style)
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
        tidy(ax, "scrambled pictures taken for intact", "intact pictures taken for intact")
        ax.grid(axis="x", color=FAINT, linewidth=0.8)
        ax.legend(fontsize=TICK, frameon=False, labelcolor=INK, loc="lower right", handlelength=2.6)
        heading(ax, "Intact or scrambled?", words)
    path = save(fig, lab.figure("roc.png"), plot=True)
    report.draw(path, "ROC curves: intact pictures against scrambled ones, by three scores.")
    (fig, axes), edges = panels(len(NETS), len(FAMILIES), 5.4, 3.4), np.linspace(0, 1, 21)
    fills = {"intact": (BLUE, {"facecolor": BLUE, "alpha": 0.35}),
             "scrambled": (VERMILLION, {"facecolor": "none", "hatch": "///"})}  # fmt: skip
    for ax, (net, family) in zip([ax for row in axes for ax in row], product(NETS, FAMILIES), strict=True):
        first = measured[family, net][0]
        for kind, (colour, fill) in fills.items():
            share = 100 * np.histogram(np.clip(first[kind]["score"], 0, 1), edges)[0] / len(first[kind]["score"])
            ax.stairs(share, edges, fill=True, edgecolor=colour, linewidth=0, **fill)
            ax.stairs(share, edges, color=colour, linewidth=1.8, label=kind)
        ax.axvline(THRESHOLD, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
        ax.set(xlim=(0, 1), ylim=(0, 1.12 * ax.get_ylim()[1]))
        tidy(ax, NETS[net], "% of pictures")
        note = f"{100 * first['summary']['scrambled']:.1f} % of the scrambled ones are at {THRESHOLD} or above"
        heading(ax, f"{net}, {FAMILIES[family]}", note)
    axes[0][0].legend(fontsize=LABEL, frameon=False, labelcolor=INK, loc="upper left")
    path = save(fig, lab.figure("scores.png"), plot=True)
    report.draw(path, "How sure each network is of intact and of scrambled pictures (first seed).")
