"""Is a scrambled face still a face?

Hinton's argument for capsules, in his talks and in *Transforming Auto-encoders* (2011): pooling throws away where
things are, so a network of convolutions is content with eyes, nose and mouth in *any* arrangement, while a capsule
wants its parts to agree about the pose of the whole and stays short when they do not.

Here both kinds of networks are trained on intact pictures only, digits and generated houses, boats and faces. Then they
are shown the same pictures taken apart: the four quarters of a digit, none in its place; the parts of a house, boat or
face, every pair standing wrongly to each other, with the same amount of ink (`shapes:kind=scrambled`).

The claim to look at: the longest capsule falls below 0.5, the CNN's probability does not; and as an answer to *is it
really one?* the length is the better score. Beside it stands a second score that only the CapsNet has: how far what it
would draw is from what it sees.
"""

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from capsnet import data
from capsnet.experiments import _nets
from capsnet.experiments._report import Measure, Report, Table
from capsnet.experiments._scramble_figures import Curve, Shown, gallery, histograms, roc_panels
from capsnet.experiments._scrambling import (
    THRESHOLD,
    answers,
    auc_interval,
    scramble_quarters,
    share_interval,
    summarise,
)
from capsnet.experiments.lab import Lab, Trained
from capsnet.inference import evaluating, pick_device
from capsnet.training import TrainConfig

TITLE = "Scrambled: does a network notice that the parts are in the wrong places?"
NETS = ("CapsNet", "CNN")
SHAPES = {"limit": 10_000, "epochs": 3, "batch_size": 32, "lr": 1e-3}
"""Small steps, many of them: with `_nets`' large batches the decoder gets no further than a blob in this time."""
FAMILIES = {"digits": "scrambled digits", "shapes": "scrambled houses, boats and faces"}


class Pairs(NamedTuple):
    """The same pictures intact and scrambled, number by number."""

    intact: Tensor  # (N, C, H, W)
    scrambled: Tensor  # (N, C, H, W)
    classes: list[int]
    names: tuple[str, ...]


def spec(lab: Lab, family: str, kind: str = "wholes") -> str:
    return "mnist" if family == "digits" else f"shapes:kind={kind}" + lab.pick(",count=400", "", "")


def config(lab: Lab, family: str, net: str, seed: int) -> TrainConfig:
    """On digits the networks of `table1`; on Shapes as many pictures as they need to know three classes."""
    changes: dict[str, Any] = {}
    if family == "shapes":
        changes = lab.pick({}, SHAPES, {"epochs": 20})
    if net == "CNN":
        return _nets.cnn(lab, spec(lab, family), seed=seed, **changes)
    return _nets.capsnet(lab, spec(lab, family), seed=seed, iterations=3, decoder=True, **changes)


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, family, net, seed) for family in FAMILIES for net in NETS for seed in lab.seeds]


def pairs(lab: Lab, family: str) -> Pairs:
    """The first test pictures and what becomes of them."""
    test = data.load(spec(lab, family), "test")
    index = np.arange(min(len(test), lab.pick(100, 5_000, 10_000)))
    batch = test.batch(index)
    if family == "digits":
        moved = scramble_quarters(batch.images, index)
    else:
        moved = data.load(spec(lab, family, "scrambled"), "test").batch(index).images
    return Pairs(batch.images, moved, batch.targets.tolist(), test.class_names)


def measure(trained: Trained, shown: Pairs, device: str) -> dict[str, Any]:
    model = trained.model.to(pick_device(device))
    intact, scrambled = answers(model, shown.intact), answers(model, shown.scrambled)
    return {"intact": intact, "scrambled": scrambled, "summary": summarise(intact, scrambled, shown.classes)}


def run(lab: Lab) -> Report:
    report = Report(differs=[*_nets.differences(lab, plan(lab)), *DIFFERS, *lab.pick([], [BLURRED], [])])
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    galleries = []
    for family in FAMILIES:
        shown = pairs(lab, family)
        first = {}
        for net in NETS:
            trained = [lab.train(config(lab, family, net, seed)) for seed in lab.seeds]
            found[family, net] = [
                lab.remember(
                    "answers", lambda t=t, p=shown: measure(t, p, lab.device), run=t.folder, n=len(shown.classes)
                )
                for t in trained
            ]
            first[net] = trained[0]
            report.raw[f"{family}: {net}"] = {
                "runs": [t.folder.name for t in trained],
                "test_error": [t.error for t in trained],
                "measured": [m["summary"] for m in found[family, net]],
                "parameters": _nets.parameters(config(lab, family, net, 0)),
            }
        galleries.append((family, examples(first, shown, [found[family, net][0] for net in NETS])))
    report.measures = [row for key, runs in found.items() for row in rows(*key, [m["summary"] for m in runs])]
    report.tables = [table(found)]
    report.findings = [finding(f, *(mean_summary(found[f, net]) for net in NETS)) for f in FAMILIES]
    report.findings += [drawing_finding({f: mean_summary(found[f, "CapsNet"]) for f in FAMILIES})]
    draw(lab, report, found, galleries)
    return report


DIFFERS = [
    "Nothing was published to set the numbers beside: the claim is made in words.",
    "Cutting a digit into quarters leaves straight cuts, which no pen makes, so a network may notice those rather than "
    "the arrangement; and four quarters sometimes make something like another digit (the halves of a 2 swapped: a 5). "
    "The scrambled shapes have neither fault.",
    "Neither network is trained to say *none*. 0.5 is the middle of the margin loss, and for the CNN the point where "
    "one class has more than all others together; a probability cannot fall below 0.1 among ten classes, 0.33 among "
    "three. The ROC curves, and the share that passes where 95 % of intact pictures do, need no such threshold.",
]
BLURRED = (
    "In minutes the decoder learns little more of a house, boat or face than about where its ink is (see the gallery): "
    "on shapes, the score by what it would draw is that of an unfinished drawer."
)


def rows(family: str, net: str, seeds: list[dict[str, Any]]) -> list[Measure]:
    """The lines of the report for one network on one kind of pictures."""
    n = seeds[0]["n"]
    shares, areas = [s["scrambled"] for s in seeds], [s["auc"] for s in seeds]
    name = f"{FAMILIES[family]}, {net}"
    lines = [
        Measure(
            f"{name}: still at {THRESHOLD} or above",
            [100 * s for s in shares],
            interval=share_interval(float(np.mean(shares)), n),
        ),
        Measure(f"{name}: AUC of intact against scrambled", areas, "", interval=auc_interval(float(np.mean(areas)), n)),
    ]
    if net == "CapsNet":
        drawn = [s["auc of drawing"] for s in seeds]
        interval = auc_interval(float(np.mean(drawn)), n)
        lines.append(Measure(f"{name}: AUC by what it would draw", drawn, "", interval=interval))
    return lines


def mean_summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One summary for all seeds: the mean of each number."""
    first = runs[0]["summary"]
    return {
        key: None if value is None else float(np.mean([run["summary"][key] for run in runs]))
        for key, value in first.items()
    } | {"n": first["n"]}


def table(found: dict[tuple[str, str], list[dict[str, Any]]]) -> Table:
    columns = [
        "pictures",
        "network",
        "right on intact",
        "intact at 0.5 or above",
        "scrambled at 0.5 or above",
        "of these, as the whole it was",
        "median score, intact / scrambled",
        "scrambled that pass where 95 % of intact do",
        "pairs of pictures",
    ]
    lines = []
    for (family, net), runs in found.items():
        s = mean_summary(runs)
        cells = [f"{100 * s[key]:.1f} %" for key in ("right", "intact", "scrambled")]
        own = s["scrambled as its own class"] / s["scrambled"] if s["scrambled"] else None
        cells.append("-" if own is None else f"{100 * own:.1f} %")
        lines.append(
            [
                family,
                net,
                *cells,
                f"{s['median intact']:.2f} / {s['median scrambled']:.2f}",
                f"{100 * s['passing at 95']:.1f} %",
                f"{s['n']:,}",
            ]
        )
    return Table("How sure the networks are", columns, lines)


def finding(family: str, caps: dict[str, Any], cnn: dict[str, Any]) -> str:
    """What the numbers say of the claim, either way."""
    ours, theirs = (share_interval(s["scrambled"], s["n"]) for s in (caps, cnn))
    numbers = (
        f"{FAMILIES[family].capitalize()}: the CapsNet stays at {THRESHOLD} or above on {100 * caps['scrambled']:.1f} "
        f"% of them (95 %: {ours[0]:.1f} to {ours[1]:.1f}), the CNN on {100 * cnn['scrambled']:.1f} % "
        f"({theirs[0]:.1f} to {theirs[1]:.1f})"
    )
    if ours[1] < theirs[0]:
        verdict = "the capsules are fooled less often, as the talks say"
        if caps["scrambled"] >= 0.5:
            verdict = "the claim does *not* hold, the capsules too are fooled by most, if less often than the CNN"
        elif cnn["scrambled"] < 0.5:
            verdict += ", but the CNN too doubts most of them"
    elif theirs[1] < ours[0]:
        verdict = "the claim does *not* hold, it is the CNN that is fooled less often"
    else:
        verdict = "the intervals overlap, this shows no difference"
    ahead = "the capsule's length" if caps["auc"] > cnn["auc"] else "the CNN's probability"
    return (
        f"{numbers}: {verdict}. The score that better tells intact from scrambled is {ahead}: "
        f"AUC {caps['auc']:.3f} (CapsNet), {cnn['auc']:.3f} (CNN)."
    )


def drawing_finding(caps: dict[str, dict[str, Any]]) -> str:
    """Whether the decoder knows what the length does not."""
    parts = [f"{s['auc of drawing']:.3f} on {family} (length: {s['auc']:.3f})" for family, s in caps.items()]
    better = [family for family, s in caps.items() if s["auc of drawing"] > s["auc"]]
    verdict = {0: "no better than the length", 1: f"better than the length on {' and '.join(better)} only"}
    words = verdict.get(len(better), "better than the length on both")
    return f"What the CapsNet would draw, set against what it sees, as the score: AUC {' and '.join(parts)}; {words}."


def examples(trained: dict[str, Trained], shown: Pairs, measured: list[dict[str, Any]], count: int = 6) -> list[Shown]:
    """The first test pictures, classes in turn: nobody has selected them by what came out."""
    turn: dict[int, int] = {}
    order = []
    for n, label in enumerate(shown.classes):
        order.append((turn.get(label, 0), n))
        turn[label] = turn.get(label, 0) + 1
    chosen = [n for _, n in sorted(order)[:count]]
    model = trained["CapsNet"].model
    device = next(model.parameters()).device
    result = []
    with evaluating(model):
        for kind, images in (("intact", shown.intact), ("scrambled", shown.scrambled)):
            drawn = model(images[chosen].to(device)).reconstruction.cpu().numpy()
            for k, n in enumerate(chosen):
                said = {
                    net: (shown.names[m[kind]["label"][n]], m[kind]["score"][n])
                    for net, m in zip(NETS, measured, strict=True)
                }
                result.append(Shown(images[n].numpy(), drawn[k], said, kind == "scrambled"))
    return [result[k + half] for k in range(len(chosen)) for half in (0, len(chosen))]


def draw(lab: Lab, report: Report, found: dict[tuple[str, str], list[dict[str, Any]]], galleries: list) -> None:
    words = {"digits": "digits, quarters swapped", "shapes": "houses, boats, faces"}
    for family, shown in galleries:
        path = gallery(lab.figure(f"gallery-{family}.png"), shown, f"Intact and scrambled: {words[family]}")
        caption = (
            f"The first test pictures ({family}), intact and scrambled; below, what the CapsNet's longest capsule "
            "draws, and both networks' answers with their scores."
        )
        report.draw(path, caption)
    curves = {}
    for family in FAMILIES:
        curves[words[family]] = [
            *(Curve(f"{net}: {what}", [(m["intact"]["rank"], m["scrambled"]["rank"]) for m in found[family, net]])
              for net, what in zip(NETS, ("length", "probability"), strict=True)),
            Curve("CapsNet: drawing", [([-e for e in m["intact"]["error"]], [-e for e in m["scrambled"]["error"]])
                                       for m in found[family, "CapsNet"]]),
        ]  # fmt: skip
    report.draw(
        roc_panels(lab.figure("roc.png"), curves),
        "Is it really one? Intact pictures against scrambled ones, by three scores.",
    )
    scores = {
        (net, words[family]): (found[family, net][0]["intact"]["score"], found[family, net][0]["scrambled"]["score"])
        for net in NETS
        for family in FAMILIES
    }
    path = histograms(lab.figure("scores.png"), scores)
    report.draw(path, "How sure each network is of intact and of scrambled pictures (first seed).")
