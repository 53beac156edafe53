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

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from capsnet import data
from capsnet.drawing.pictures import Cell, Row, Words, picture_rows
from capsnet.drawing.plots import COLOURS, LABEL, TICK, panels, tidy
from capsnet.drawing.style import BLUE, FAINT, INK, MUTED, VERMILLION, heading, save
from capsnet.experiments import _nets, _scrambling
from capsnet.experiments._registry import register
from capsnet.experiments._report import Measure, Report, Table
from capsnet.experiments._scrambling import THRESHOLD, auc_measure, share_measure
from capsnet.experiments.lab import Lab, Trained, device_of
from capsnet.inference import evaluating, pick_device
from capsnet.metrics import difference
from capsnet.training import TrainConfig

NETS = {"CapsNet": "length", "CNN": "probability"}
SHAPES = {"limit": 10_000, "epochs": 3, "batch_size": 32, "lr": 1e-3}
"""Small batches: with those of ``_nets`` the decoder learns only a blob in this time."""
FAMILIES = {"digits": "scrambled digits", "shapes": "scrambled houses, boats and faces"}
TITLES = {"digits": "digits, quarters swapped", "shapes": "houses, boats, faces"}
DIFFERS = [
    "Nothing was published to compare the numbers with: the claim is made in words.",
    "Cutting a digit into quarters leaves straight cuts, which no pen makes, so a network may notice those rather than "
    "the arrangement; and four quarters sometimes make something like another digit (the halves of a 2 swapped: a 5). "
    "The scrambled shapes have neither fault.",
    "Neither network is trained to answer *none*. 0.5 is the middle of the margin loss, and for the CNN where one "
    "class has more than all others together; a probability cannot fall below 0.1 among ten classes, 0.33 among "
    "three. The ROC curves, and the share that passes where 95 % of intact pictures do, need no such threshold.",
]
BLURRED = (
    "In minutes the decoder learns little more of a house, boat or face than about where its ink is (see the gallery): "
    "on shapes, the score by the drawing is that of an unfinished decoder."
)


class Pairs(NamedTuple):
    """The same pictures intact and scrambled, number by number."""

    intact: Tensor  # (N, C, H, W)
    scrambled: Tensor  # (N, C, H, W)
    classes: list[int]
    names: tuple[str, ...]


def spec(lab: Lab, family: str, kind: str = "wholes") -> str:
    return "mnist" if family == "digits" else f"shapes:kind={kind}" + lab.pick(",count=400", "", "")


def config(lab: Lab, family: str, net: str, seed: int) -> TrainConfig:
    """On digits the networks of `table1`; on shapes, as many pictures as three classes need."""
    changes: dict[str, Any] = lab.pick({}, SHAPES, {"epochs": 20}) if family == "shapes" else {}
    if net == "CNN":
        return _nets.cnn(lab, spec(lab, family), seed=seed, **changes)
    return _nets.capsnet(lab, spec(lab, family), seed=seed, iterations=3, decoder=True, **changes)


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, family, net, seed) for family in FAMILIES for net in NETS for seed in lab.seeds]


def pairs(lab: Lab, family: str) -> Pairs:
    """The first test pictures, intact and scrambled."""
    test = data.load(spec(lab, family), "test")
    index = np.arange(min(len(test), lab.pick(100, 5_000, 10_000)))
    batch = test.batch(index)
    if family == "digits":
        moved = _scrambling.scramble_quarters(batch.images, index)
    else:
        moved = data.load(spec(lab, family, "scrambled"), "test").batch(index).images
    return Pairs(batch.images, moved, batch.targets.tolist(), test.class_names)


def measure(trained: Trained, shown: Pairs, device: str) -> dict[str, Any]:
    model = trained.model.to(pick_device(device))
    intact, scrambled = (_scrambling.answers(model, images) for images in (shown.intact, shown.scrambled))
    summary = _scrambling.summarise(intact, scrambled, shown.classes)
    return {"intact": intact, "scrambled": scrambled, "summary": summary}


@register("scramble", "Scrambled: does a network notice that the parts are in the wrong places?", plan=plan)
def run(lab: Lab) -> Report:
    report = Report(differs=[*_nets.differences(lab, plan(lab)), *DIFFERS, *lab.pick([], [BLURRED], [])])
    measured: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for family in FAMILIES:
        shown, models = pairs(lab, family), {}
        for net in NETS:
            trained = [lab.train(config(lab, family, net, seed)) for seed in lab.seeds]
            models[net] = trained[0].model
            measured[family, net] = [
                lab.remember(
                    "answers", lambda t=t, p=shown: measure(t, p, lab.device), run=t.folder, n=len(shown.classes)
                )
                for t in trained
            ]
            report.raw[f"{family}: {net}"] = {
                "runs": [t.folder.name for t in trained],
                "test_error": [t.error for t in trained],
                "measured": [m["summary"] for m in measured[family, net]],
                "parameters": _nets.parameters(config(lab, family, net, 0)),
            }
        first = [measured[family, net][0] for net in NETS]
        draw_gallery(lab, report, family, models["CapsNet"], shown, first)
    describe(report)
    draw_curves(lab, report, measured)
    return report


def scores(raw: dict[str, Any], family: str, net: str) -> dict[str, Measure]:
    """The share at the threshold and the AUCs of a network on one kind of pictures, over the seeds."""
    runs, name = raw[f"{family}: {net}"]["measured"], f"{FAMILIES[family]}, {net}"
    n = runs[0]["n"]
    result = {
        "share": share_measure(f"{name}: still at {THRESHOLD} or above", [run["scrambled"] for run in runs], n),
        "auc": auc_measure(f"{name}: AUC of intact against scrambled", [run["auc"] for run in runs], n),
    }
    if net == "CapsNet":
        result["drawing"] = auc_measure(f"{name}: AUC by the drawing", [run["auc of drawing"] for run in runs], n)
    return result


def describe(report: Report) -> None:
    """Measures, table and findings from the raw numbers."""
    rows = []
    for family in FAMILIES:
        found = {net: scores(report.raw, family, net) for net in NETS}
        report.measures += [measure for one in found.values() for measure in one.values()]
        report.findings += findings(family, found["CapsNet"], found["CNN"])
        for net in NETS:
            runs = report.raw[f"{family}: {net}"]["measured"]
            s = {key: float(np.mean([run[key] for run in runs])) for key in runs[0] if runs[0][key] is not None}
            own = f"{100 * s['scrambled as its own class'] / s['scrambled']:.1f} %" if s["scrambled"] else "-"
            shares = [f"{100 * s[key]:.1f} %" for key in ("right", "intact", "scrambled", "passing at 95")]
            medians = f"{s['median intact']:.2f} / {s['median scrambled']:.2f}"
            rows.append([family, net, *shares[:3], own, medians, shares[3], f"{s['n']:,.0f}"])
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
    report.tables = [Table("How sure the networks are", columns, rows)]


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


def draw_gallery(lab: Lab, report: Report, family: str, model: Any, shown: Pairs, measured: list[dict]) -> None:
    """The first test pictures, classes in turn, intact and scrambled, with both networks' answers."""
    turn = [shown.classes[:n].count(label) for n, label in enumerate(shown.classes[:200])]
    chosen = sorted(range(len(turn)), key=lambda n: (turn[n], n))[:6]
    kinds = {"intact": shown.intact[chosen], "scrambled": shown.scrambled[chosen]}
    with evaluating(model):
        drawn = {kind: model(images.to(device_of(model))).reconstruction.cpu() for kind, images in kinds.items()}
    rows = []
    for half in (range(3), range(3, 6)):
        pictures, drawings = [], []
        for k in half:
            for kind, images in kinds.items():
                words = []
                for one in measured:
                    label, score = (one[kind][key][chosen[k]] for key in ("label", "score"))
                    wrong = kind == "scrambled" and score >= THRESHOLD
                    colour = VERMILLION if wrong else MUTED if score < THRESHOLD else INK
                    words.append(Words(f"{shown.names[label]}: {score:.2f}{' ✗' * wrong}", colour, wrong))
                pictures.append(Cell(images[k].numpy()))
                drawings.append(Cell(drawn[kind][k].numpy(), words))
        rows += [Row(pictures, "picture"), Row(drawings, "drawing\nof the CapsNet", lines=list(NETS))]
    note = f"left: intact; right: parts rearranged  ·  ✗: at {THRESHOLD} or above, though it is none"
    title = f"Intact and scrambled: {TITLES[family]}"
    path = picture_rows(lab.figure(f"gallery-{family}.png"), rows, title, note, size=160, group=2)
    report.draw(
        path,
        f"The first test pictures ({family}), intact and scrambled; below, what the CapsNet's longest capsule draws, "
        "and both networks' answers with their scores.",
    )


def draw_curves(lab: Lab, report: Report, measured: dict[tuple[str, str], list[dict[str, Any]]]) -> None:
    """ROC curves of the three scores, and histograms of both networks' scores."""
    fig, axes = panels(1, len(FAMILIES), 4.9, 5.0)
    for ax, family in zip(axes[0], FAMILIES, strict=True):
        curves = {
            f"{net}: {score}": [(m["intact"]["rank"], m["scrambled"]["rank"]) for m in measured[family, net]]
            for net, score in NETS.items()
        }
        curves["CapsNet: drawing"] = [
            ([-e for e in m["intact"]["error"]], [-e for e in m["scrambled"]["error"]])
            for m in measured[family, "CapsNet"]
        ]
        ax.plot([0, 1], [0, 1], color=FAINT, linewidth=1.5)
        for (name, runs), colour, dash in zip(curves.items(), COLOURS, ("-", "--", ":"), strict=False):
            area = np.mean([_scrambling.separation(*run) for run in runs])
            for seed, run in enumerate(runs):
                label = None if seed else f"{name}, AUC {area:.3f}"
                ax.plot(*_scrambling.roc(*run), color=colour, linestyle=dash, linewidth=1 if seed else 2.4, label=label)
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
        tidy(ax, "scrambled pictures taken for intact", "intact pictures taken for intact")
        ax.grid(axis="x", color=FAINT, linewidth=0.8)
        ax.legend(fontsize=TICK, frameon=False, labelcolor=INK, loc="lower right", handlelength=2.6)
        heading(ax, "Intact or scrambled?", TITLES[family])
    path = save(fig, lab.figure("roc.png"), plot=True)
    report.draw(path, "ROC curves: intact pictures against scrambled ones, by three scores.")
    fig, axes = panels(len(NETS), len(FAMILIES), 5.4, 3.4)
    for row, net in zip(axes, NETS, strict=True):
        for ax, family in zip(row, FAMILIES, strict=True):
            draw_histogram(ax, measured[family, net][0])
            tidy(ax, "longest capsule" if net == "CapsNet" else "highest probability", "% of pictures")
            share = 100 * measured[family, net][0]["summary"]["scrambled"]
            note = f"{share:.1f} % of the scrambled ones are at {THRESHOLD} or above"
            heading(ax, f"{net}, {TITLES[family]}", note)
    axes[0][0].legend(fontsize=LABEL, frameon=False, labelcolor=INK, loc="upper left")
    path = save(fig, lab.figure("scores.png"), plot=True)
    report.draw(path, "How sure each network is of intact and of scrambled pictures (first seed).")


def draw_histogram(ax: Any, one: dict[str, Any]) -> None:
    edges = np.linspace(0, 1, 21)
    for kind, colour, hatch in (("intact", BLUE, ""), ("scrambled", VERMILLION, "///")):
        share = 100 * np.histogram(np.clip(one[kind]["score"], 0, 1), edges)[0] / len(one[kind]["score"])
        fill = {"facecolor": "none", "hatch": hatch} if hatch else {"facecolor": colour, "alpha": 0.35}
        ax.stairs(share, edges, fill=True, edgecolor=colour, linewidth=0, **fill)
        ax.stairs(share, edges, color=colour, linewidth=1.8, label=kind)
    ax.axvline(THRESHOLD, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
    ax.set(xlim=(0, 1), ylim=(0, 1.12 * ax.get_ylim()[1]))
