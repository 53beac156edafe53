"""Is a scrambled face still a face?

Hinton's argument for capsules, in his talks and in *Transforming Auto-encoders* (2011): pooling discards where parts
are, so a convolutional network accepts eyes, nose and mouth in *any* arrangement, while a capsule needs its parts to
agree about the pose of the whole and stays short when they do not.

Here networks are trained on intact pictures only, digits and generated houses, boats and faces. Then they see the same
pictures taken apart: the four quarters of a digit, none in its place; the parts of a house, boat or face, every pair
standing wrongly to each other, with the same amount of ink (`shapes:kind=scrambled`).

Beside the CapsNet, in which the length of a pose is the presence, stand two that keep presence and pose apart: with EM
routing a class is present where the votes for its pose lie close together, and with inverted dot-product attention the
presence is read from a pose of fixed length.

The claim to look at: the presence of the most present class falls below 0.5, the CNN's probability does not; and the
presence is the better score for telling intact from scrambled. Beside it stands a second score that only capsules have:
the difference between the picture and what the most present capsule draws. The CNN has a second one, too, its largest
logit.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from capsnet import data
from capsnet.drawing.pictures import picture_rows
from capsnet.experiments import _nets, _routed
from capsnet.experiments._claims import Claim, past
from capsnet.experiments._registry import STRONG, register
from capsnet.experiments._report import Measure, Report, Table, error_measure
from capsnet.experiments._scramble import THRESHOLD, auc_measure, measure, scramble_quarters
from capsnet.experiments._scramble_draw import Measured, draw_roc, draw_scores, gallery
from capsnet.experiments.lab import Lab
from capsnet.metrics import difference
from capsnet.training import TrainConfig


class Net(NamedTuple):
    """A network: what its score is, how a claim calls it, and the routing that replaces the CapsNet's."""

    score: str
    kind: str
    routing: str | None = None


PLAIN, CNN = "CapsNet", "CNN"
NETS = {
    PLAIN: Net("length", "Capsules"),
    CNN: Net("probability", "A CNN"),
    "EM CapsNet": Net("presence", "Capsules with EM routing", "em"),
    "attention CapsNet": Net("presence", "Capsules with inverted attention", "inverted-attention"),
}
SECOND = {"drawing": "the drawing", "logit": "the largest logit"}  # scores beside the first
FAMILIES = {"digits": "scrambled digits", "shapes": "scrambled houses, boats and faces"}
WORDS = {"holds": "holds", "does not hold": "does *not* hold", "undecided": "is undecided"}
DIFFERS = [
    "Nothing was published to compare the numbers with: the claim is made in words.",
    "Cutting a digit into quarters leaves straight cuts, which a network may notice rather than the arrangement; and "
    "four quarters sometimes make another digit (the halves of a 2 swapped: a 5). The shapes have neither fault.",
    "No network is trained to answer *none*. 0.5 is the middle of the margin loss, and for the CNN where one class has "
    "more than all others together; a probability cannot fall below 0.1 among ten classes, 0.33 among three. The ROC "
    "curves, and the share that passes where 95 % of intact pictures do, need no such threshold.",
    "The EM CapsNet and the attention CapsNet are the CapsNet with another routing, trained alike; for EM the children "
    "also have a presence apart from their pose.",
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
    if net == CNN:
        return _nets.cnn(lab, spec(lab, family), seed=seed, **changes)
    routing = NETS[net].routing
    changes = changes | (_routed.exchanged(routing) if routing else {})
    return _nets.capsnet(lab, spec(lab, family), seed=seed, iterations=3, decoder=True, **changes)


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, family, net, seed) for family in FAMILIES for net in NETS for seed in lab.seeds]


def claims(report: Report) -> list[Claim]:
    """That a capsule network rejects most scrambled pictures and the CNN accepts most, for each one in the report."""
    found = []
    for family in FAMILIES:
        known = [net for net in NETS if f"{family}: {net}" in report.raw]
        shares = {net: read_shares(report, family, net) for net in known}
        found += [rejects(family, net, shares[net], shares[CNN]) for net in known if net != CNN]
    return found


def read_shares(report: Report, family: str, net: str) -> dict[str, Measure]:
    """The shares of intact and of scrambled pictures that a network accepts, from the raw numbers."""
    runs, name = report.raw[f"{family}: {net}"]["measured"], f"{FAMILIES[family]}, {net}"
    titles = {"scrambled": f"{name}: still at {THRESHOLD} or above", "intact": f"{name}: intact ones at {THRESHOLD}"}
    return {
        kind: error_measure(title, [{"value": 1 - run[kind], "n": run["n"]} for run in runs])
        for kind, title in titles.items()
    }


def rejects(family: str, net: str, caps: dict[str, Measure], cnn: dict[str, Measure]) -> Claim:
    """Shares on two sides of a half. To reject whatever comes is not enough: most intact pictures must be accepted."""
    text = f"{NETS[net].kind} reject {FAMILIES[family]}, a CNN accepts them"
    finding = f"The {net} accepts {caps['scrambled'].shown()}, the CNN {cnn['scrambled'].shown()}."
    intact = caps["intact"], 50.0, True
    if past("", "", [intact], "").verdict != "holds":
        finding += f" Of the intact pictures, the {net} accepts {caps['intact'].shown()}."
    checks = [(caps["scrambled"], 50.0, False), (cnn["scrambled"], 50.0, True), intact]
    return past(text, "Hinton's talks", checks, finding)


TITLE = "Scrambled: does a network notice that the parts are in the wrong places?"


@register("scramble", TITLE, plan=plan, budgets=STRONG, claims=claims)
def run(lab: Lab) -> Report:
    report = Report(differs=[*_nets.differences(lab, plan(lab)), *DIFFERS, *lab.pick([], [BLURRED], [])])
    report.tables = [Table("How sure the networks are", COLUMNS, [])]
    measured: Measured = {}
    for family in FAMILIES:
        (pictures, classes, names), models = load_pairs(lab, family), {}
        for net in NETS:
            trained = [lab.train(config(lab, family, net, seed)) for seed in lab.seeds]
            models[net] = trained[0].model
            measured[family, net] = [
                lab.remember("answers", partial(measure, t.model, pictures, classes), run=t.folder, n=len(classes))
                for t in trained
            ]
            report.raw[f"{family}: {net}"] = {
                "runs": [t.folder.name for t in trained],
                "test_error": [t.error for t in trained],
                "measured": [m["summary"] for m in measured[family, net]],
                "parameters": _nets.parameters(config(lab, family, net, 0)),
            }
        describe(report, family)
        rows = gallery(models, {net: measured[family, net][0] for net in NETS}, pictures, classes, names)
        note = f"left: intact; right: parts rearranged  ·  ✗: at {THRESHOLD} or above, though it is none"
        path, title = lab.figure(f"gallery-{family}.png"), f"Intact pictures and {FAMILIES[family]}"
        report.draw(
            picture_rows(path, rows, title, note, size=160, group=2),
            f"The first test pictures ({family}), intact and scrambled, with the CNN's answer; below, what the most "
            "present capsule of each other network draws, and its answer.",
        )
    scores = {name: net.score for name, net in NETS.items()}
    path = draw_roc(lab.figure("roc.png"), measured, FAMILIES, scores)
    report.draw(path, "ROC curves: intact pictures against scrambled ones, by each network's score and drawing.")
    path = draw_scores(lab.figure("scores.png"), measured, FAMILIES, scores)
    report.draw(path, "How sure each network is of intact and of scrambled pictures (first seed).")
    return report


def load_pairs(lab: Lab, family: str) -> tuple[dict[str, Tensor], list[int], Sequence[str]]:
    """The first test pictures, intact and scrambled (each (N, C, H, W)), their classes and the names of these."""
    test = data.load(spec(lab, family), "test")
    index = np.arange(min(len(test), lab.pick(100, 5_000, 10_000)))
    batch, apart = test.batch(index), data.load(spec(lab, family, "scrambled"), "test").batch(index).images
    moved = scramble_quarters(apart, index) if family == "digits" else apart
    return {"intact": batch.images, "scrambled": moved}, batch.targets.tolist(), test.class_names


def describe(report: Report, family: str) -> None:
    """Measures, rows of the table and findings of one kind of pictures, from the raw numbers."""
    scores = {}
    for net in NETS:
        runs, name = report.raw[f"{family}: {net}"]["measured"], f"{FAMILIES[family]}, {net}"
        s = {key: [run[key] for run in runs] for key in runs[0] if runs[0][key] is not None}
        n, shares = s["n"][0], read_shares(report, family, net)
        scores[net] = shares | {"auc": auc_measure(f"{name}: AUC of intact against scrambled", s["auc"], n)}
        for key, by in SECOND.items():
            if f"auc of {key}" in s:
                scores[net][key] = auc_measure(f"{name}: AUC by {by}", s[f"auc of {key}"], n)
        report.measures += [one for key, one in scores[net].items() if key != "intact"]
        s = {key: float(np.mean(values)) for key, values in s.items()}
        own = f"{100 * s['own class'] / s['scrambled']:.1f} %" if s["scrambled"] else "-"
        cells = [f"{100 * s[key]:.1f} %" for key in ("right", "intact", "scrambled", "passing at 95")]
        medians = f"{s['median intact']:.2f} / {s['median scrambled']:.2f}"
        report.tables[0].rows.append([family, net, *cells[:3], own, medians, cells[3], f"{n:,}"])
    report.findings += findings(family, scores)


def findings(family: str, scores: dict[str, dict[str, Measure]]) -> list[str]:
    """What the numbers say of the claim, whichever way they fall: a paragraph for each capsule network."""
    cnn, found = scores[CNN], []
    for net, mine in scores.items():
        if net == CNN:
            continue
        share = difference(f"the share that the {net} accepts", mine["scrambled"], "that of the CNN", cnn["scrambled"])
        verdict = WORDS[rejects(family, net, mine, cnn).verdict]
        found.append(
            f"{FAMILIES[family].capitalize()}: {share}. The claim (the {net} rejects most of them and accepts most "
            f"intact ones, the CNN accepts most scrambled ones) {verdict}. Telling intact from scrambled, "
            f"{telling(net, scores)}."
        )
    return found


def telling(net: str, scores: dict[str, dict[str, Measure]]) -> str:
    """How well a capsule network tells intact from scrambled pictures, by its score and by its drawing."""
    mine, name = scores[net], NETS[net].score
    score = f"the AUC of the {net}'s {name}"
    words = [difference(score, mine["auc"], "that of the CNN's probability", scores[CNN]["auc"])]
    if net != PLAIN:
        words.append(difference(score, mine["auc"], f"that of the {PLAIN}'s length", scores[PLAIN]["auc"]))
    if "drawing" in mine:
        words.append(difference("the AUC of its drawing", mine["drawing"], f"that of its {name}", mine["auc"]))
    return "; ".join(words)
