"""Does a capsule's length stay while its direction moves?

The paper (Sections 2 and 5.1, and its discussion) wants of a capsule that its *length* says whether an entity is
present and its *direction* how: shift or rotate the entity, and the length should stay (invariance) while the pose
changes in step (equivariance), so simply that a linear map reads the movement off.

Three measurements. Test digits are shifted, rotated, scaled and thickened in steps: how much do length and direction of
the true class's capsule change, beside the norm and direction of a CNN's last hidden layer? Then a ridge regression
reads the amount of each movement off these vectors, on digits it has not seen. And in pictures of two overlapping
objects (`shapes:kind=crowded`): are the children that lie on an object coupled to *its* capsule, and more so from
iteration to iteration?
"""

from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from capsnet import data
from capsnet.data import Shapes, keyed
from capsnet.drawing.pictures import Cell, Row, Words, picture_rows
from capsnet.drawing.plots import LABEL, Line, draw_line, intervals, lines, panels, tidy
from capsnet.drawing.style import INK, VERMILLION, heading, save
from capsnet.experiments import _equivariance, _nets
from capsnet.experiments._claims import Claim, below, higher, measure_named, past
from capsnet.experiments._equivariance import MOVEMENTS
from capsnet.experiments._registry import STRONG, register
from capsnet.experiments._report import Measure, Report, Table, curve
from capsnet.experiments.lab import Lab
from capsnet.metrics import compare, difference
from capsnet.models import Model
from capsnet.training import TrainConfig

NETS = ("CapsNet", "CNN")
POSE = 16  # dimensions of a class capsule; the CNN's layer is also read with that many principal components
READERS = {  # network, principal components
    "CapsNet, pose (16-D)": ("CapsNet", None),
    "CNN, 16 components": ("CNN", POSE),
    "CNN, whole layer": ("CNN", None),
}
UNITS, CURVES = {"length": "%", "angle": "°"}, ("mean", "low", "high")
READ_FROM = {"vector": "the vector", "change": "its change"}
TARGETS = {"own": "its own capsule", "others": "the other present one", "absent": "the absent one"}
DIFFERS = [
    "Nothing was published to compare the numbers with: the paper argues these properties in words and pictures.",
    "Angles in a pose and in a rectified hidden layer are not quite the same: two vectors without negative entries are "
    "never more than 90 degrees apart. Look at how they change, more than at which is larger.",
    "The read-out is learnt on validation digits, its ridge chosen on a fifth of them. A digit's own slant, size and "
    "thickness are noise for reading how far it was moved; the second table subtracts the unmoved vector first.",
    "Thicken: each grey level of the picture, a mosaic of square pixels, is grown or shrunk by a disc of that radius.",
]


def crowded(lab: Lab) -> str:
    """The pictures of two objects; of the three classes one is always absent, to compare with."""
    return "shapes:kind=crowded,objects=2" + lab.pick(",count=200", "", "")


def config(lab: Lab, net: str, seed: int) -> TrainConfig:
    """The networks of `table1`, and a CapsNet for pictures of two objects (`crowded`)."""
    if net == "CNN":
        return _nets.cnn(lab, "mnist", seed=seed)
    quick = {"limit": 10_000, "epochs": 4, "batch_size": 32, "lr": 1e-3}
    longer: dict[str, Any] = lab.pick({}, quick, {"epochs": 20}, {"epochs": 4})
    spec, changes = (crowded(lab), longer) if net == "crowded" else ("mnist", {})
    return _nets.capsnet(lab, spec, seed=seed, iterations=3, decoder=True, **changes)


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, net, seed) for seed in lab.seeds for net in (*NETS, "crowded")]


def claims(report: Report) -> list[Claim]:
    own = measure_named(report, f"coupling of children on an object to {TARGETS['own']}")
    finding = f"{own.shown()} of the coupling of children on an object goes to its capsule ({own.note})."
    length = [measure_named(report, change_name("length", net)) for net in NETS]
    turned = [change_name("angle", net) for net in NETS]
    stays = "the change of the capsule's length", length[0], "that of the norm of a CNN's layer", length[1]
    paper = "Sabour et al. 2017"
    return [
        below("When a digit moves, a capsule's length stays more than the norm of a CNN's layer", paper, *stays),
        higher(
            "When a digit moves, a capsule's direction turns more than a CNN's", paper, report, turned[0], turned[1:]
        ),
        past(
            "At least half of the coupling of children on an object goes to its capsule",
            f"{paper}, who name no number",
            [(own, 50.0, True)],
            finding,
        ),
    ]


TITLE = "Equivariance: does length stay and direction move? Which part goes to which whole?"


@register("equivariance", TITLE, plan=plan, budgets=STRONG, claims=claims)
def run(lab: Lab) -> Report:
    report = Report(differs=[*_nets.differences(lab, plan(lab)), *DIFFERS])
    trained = {net: [lab.train(config(lab, net, seed)) for seed in lab.seeds] for net in (*NETS, "crowded")}
    report.differs.append(lying(trained["crowded"][0].model))
    report.raw = {net: {"runs": [t.folder.name for t in runs]} for net, runs in trained.items()}
    sizes = {"learn": lab.pick(60, 1_000, 4_000), "test": lab.pick(20, 500, 2_000)}
    for net in NETS:
        report.raw[net]["measured"] = [
            lab.remember("movements", lambda t=t: measure(t.model, **sizes), run=t.folder, **sizes)
            for t in trained[net]
        ]
    test, pictures = data.load(crowded(lab), "test"), np.arange(lab.pick(20, 1_000, 2_000))
    assert isinstance(test, Shapes)
    report.raw["crowded"]["exact_match_error"] = [t.error for t in trained["crowded"]]
    inputs = {"n": len(pictures), "data": crowded(lab)}
    report.raw["crowded"]["measured"] = [
        lab.remember("crowded", partial(_equivariance.shares, t.model, test, pictures), run=t.folder, **inputs)
        for t in trained["crowded"]
    ]
    read = {kind: r_squared(report.raw, kind) for kind in READ_FROM}
    couplings = {target: coupling(report.raw["crowded"]["measured"], target) for target in TARGETS}
    describe(report, read, couplings)
    draw(lab, report, read["vector"], couplings)
    shown = _equivariance.route_crowd(trained["crowded"][0].model, test, pictures[: lab.pick(2, 5, 5)])
    report.draw(
        _equivariance.coupling_pictures(lab.figure("couplings.png"), shown, test.class_names),
        "The first crowded test pictures. A mark at the middle of what the children at one position see shows how "
        "present they are and how far their coupling to that capsule is above an even split. Framed: the objects that "
        "are present.",
    )
    return report


def lying(model: Model) -> str:
    """Which children of a network are on an object."""
    field = model.receptive_field
    assert field is not None
    return (
        "Crowded pictures hold two of the three classes, so that one is absent; a child counts as lying on an object "
        f"if there is ink of that object, and of no other, in the {field.stride}x{field.stride} pixels in the middle "
        f"of its {field.size}x{field.size} receptive field. Children are {field.stride} pixels apart."
    )


def measure(model: Model, learn: int, test: int) -> dict[str, Any]:
    """One network: curves of change, and the read-outs that its vectors allow."""
    batches = [data.load("mnist", split).batch(np.arange(n)) for split, n in (("validation", learn), ("test", test))]
    paths, tested = (_equivariance.trajectories(model, batch.images, batch.targets) for batch in batches)
    labels, answers = (batch.targets.numpy() for batch in batches)
    choose, fit = np.split(keyed.permutation(0, 0, learn, "equivariance.split"), [learn // 5])
    result: dict[str, Any] = {"dimensions": int(tested["rotate"].shape[-1]), "change": {}, "read": {}, "digits": test}
    result["largest"] = _equivariance.largest(tested)
    for name, how in MOVEMENTS.items():
        start = how.amounts.index(0)
        for what, values in zip(UNITS, _equivariance.changes(tested[name], start), strict=True):
            curves = values.mean(0), *np.quantile(values, (0.25, 0.75), 0)
            result["change"].setdefault(name, {})[what] = {k: v.tolist() for k, v in zip(CURVES, curves, strict=True)}
        for kind in READ_FROM:
            mine, other = (p - p[:, start, None] * (kind == "change") for p in (paths[name], tested[name]))
            parts = [(mine[fit], labels[fit]), (mine[choose], labels[choose]), (other, answers)]
            for components in (None, POSE):
                key = f"{name} {kind} {components or 'all'}"
                result["read"][key] = _equivariance.read_out(parts, how.amounts, components)
    return result


def r_squared(raw: dict[str, Any], kind: str) -> dict[str, list[Measure]]:
    """R² of each movement (over the seeds, with its interval), a measure for each of READERS."""
    table: dict[str, list[Measure]] = {name: [] for name in MOVEMENTS}
    for name, row in table.items():
        for reader, (net, components) in READERS.items():
            runs = [m["read"][f"{name} {kind} {components or 'all'}"] for m in raw[net]["measured"]]
            r2, low, high = ([run[key] for run in runs] for key in ("r2", "low", "high"))
            row.append(Measure(reader, r2, "", interval=(fmean(low), fmean(high))))
    return table


def coupling(runs: list[dict[str, Any]], target: str) -> list[Measure]:
    """The coupling of children on an object to one kind of capsule, in percent, at each iteration."""
    name, note = f"coupling of children on an object to {TARGETS[target]}", f"chance {100 * runs[0]['chance']:.1f} %"
    return [one._replace(note=note) for one in curve(name, runs, target)]


def moved(raw: dict[str, Any], net: str, what: str) -> Measure:
    """The mean change at the two largest steps of all movements, with its interval over the test digits."""
    runs, factor = raw[net]["measured"], 100 if what == "length" else 1
    mean, reach = (factor * fmean(run["largest"][what][key] for run in runs) for key in ("mean", "interval"))
    values = [factor * run["largest"][what]["mean"] for run in runs]
    return Measure(
        change_name(what, net), values, UNITS[what], interval=(mean - reach, mean + reach), n=runs[0]["digits"]
    )


def change_name(what: str, net: str) -> str:
    return f"change of {what} at the largest steps, {net}"


def largest(raw: dict[str, Any], net: str, movement: str, what: str) -> float:
    """The mean change at the two largest steps, over the seeds: percent of the length, or degrees."""
    steps = fmean(m["change"][movement][what]["mean"][step] for m in raw[net]["measured"] for step in (0, -1))
    return 100 * steps if what == "length" else steps


def describe(report: Report, read: dict[str, dict[str, list[Measure]]], couplings: dict[str, list[Measure]]) -> None:
    """Measures, tables and findings from the raw numbers."""
    raw, crowds = report.raw, report.raw["crowded"]
    rows = [
        [f"{name}, {how.amounts[-1]:g} {how.unit} either way"]
        + [f"{largest(raw, net, name, what):.1f} {unit}" for net in NETS for what, unit in UNITS.items()]
        for name, how in MOVEMENTS.items()
    ]
    columns = ["largest step", "capsule: change of length", "of direction", "CNN layer: change of norm", "of direction"]
    report.tables = [Table("Length and direction at the largest steps (mean over test digits)", columns, rows)]
    for kind, table in read.items():
        title = f"R² of a linear read-out from {READ_FROM[kind]}"
        for k, reader in enumerate(READERS):
            values = np.mean([row[k].values for row in table.values()], axis=0).tolist()
            report.measures.append(Measure(f"{title}, {reader}", values, "", note="mean over the five movements"))
        rows = [[name, *(m.shown() for m in row)] for name, row in table.items()]
        report.tables.append(Table(f"{title}, test digits", ["movement", *READERS], rows))
    report.measures += [measures[-1] for measures in couplings.values()]
    above = np.mean([run["own above other"] for run in crowds["measured"]], axis=0)  # (R,)
    rows = [
        [str(r + 1), *(f"{m[r].mean:.1f} %" for m in couplings.values()), f"{100 * share:.1f} %"]
        for r, share in enumerate(above)
    ]
    columns = ["iteration", *TARGETS.values(), "objects whose own capsule gets more than the other"]
    report.tables.append(Table("Coupling of the children on an object, by iteration", columns, rows))

    steps = [moved(raw, net, what) for what in UNITS for net in NETS]
    report.measures += steps
    length = difference("the change of the capsule's length", steps[0], "that of the CNN layer's norm", steps[1])
    angle = difference("the change of the capsule's direction", steps[2], "that of the CNN layer's", steps[3])
    pose, few, every = (m.mean for m in report.measures[:3])
    best = [name for name, row in read["vector"].items() if all(compare(row[0], other) > 0 for other in row[1:])]
    own, others, absent = (measures[-1] for measures in couplings.values())
    part = difference("the coupling of children on an object to its capsule", own, "that to the other object's", others)
    path = [m.mean for m in couplings["own"]]
    report.findings = [
        f"At the largest steps, on average over the five movements, {length}; {angle}.",
        f"A linear read-out recovers the movement with R² {pose:.2f} from the 16-D pose, {few:.2f} from 16 principal "
        f"components of the CNN's last hidden layer and {every:.2f} from all dimensions of it. Beyond the 95 % "
        f"intervals, the pose is the best of the three for {', '.join(best) or 'none of the five movements'}.",
        f"Two overlapping objects ({fmean(crowds['exact_match_error']):.1f} % of the pictures are classified "
        f"wrongly): {part}. {absent.mean:.2f} % go to the absent class's; {absent.note}. Over the iterations it "
        f"{'rises' if (np.diff(path) > 0).all() else 'does *not* steadily rise'}: "
        f"{', '.join(f'{value:.1f}' for value in path)} %.",
    ]


def draw(lab: Lab, report: Report, read: dict[str, list[Measure]], couplings: dict[str, list[Measure]]) -> None:
    digit = data.load("mnist", "test").batch(np.array([0])).images
    rows = [
        Row([Cell(_equivariance.move(digit, name, a)[0].numpy(), [Words(f"{a:+.3g}" if a else "0")],
                  None if a else VERMILLION) for a in how.amounts], f"{name}\n{how.unit}")
        for name, how in MOVEMENTS.items()
    ]  # fmt: skip
    words = "One digit, moved in steps", "framed: as it is in the test split"
    path = picture_rows(lab.figure("steps.png"), rows, *words, gap=8)
    report.draw(path, "The steps of each movement, on the first test digit.")
    report.draw(
        change_panels(lab.figure("change.png"), report.raw),
        "How length (above; CNN: norm) and direction (below) change as a digit is moved: mean and quartiles.",
    )
    lowest = min(m.interval[0] for row in read.values() for m in row if m.interval)
    words = "How far was it moved? A linear read-out", "R² on test digits (1: the movement is recovered entirely)"
    path = intervals(lab.figure("read-out.png"), read, *words, (max(-1.0, min(0.0, lowest)), 1))
    report.draw(path, "How much of each movement a linear read-out recovers (R², test digits).")
    path = lines(
        lab.figure("routing.png"),
        [Line.of(f"to {TARGETS[target]}", range(1, len(row) + 1), row) for target, row in couplings.items()],
        "Which capsule is a part coupled to?",
        "mean over children that lie on one of two overlapping objects; bands: 95 % interval",
        "routing iteration",
        "coupling, %",
        level=(100 * report.raw["crowded"]["measured"][0]["chance"], "an even split"),
        zero=False,
    )
    report.draw(path, "The coupling of children on an object, iteration by iteration.")


def change_panels(path: Path, raw: dict[str, Any]) -> Path:
    """A column per movement: change of length above, of direction below; a curve with its band per network."""
    fig, axes = panels(2, len(MOVEMENTS), 2.4, 2.8)
    for row, (what, unit) in zip(axes, UNITS.items(), strict=True):
        for ax, (name, how) in zip(row, MOVEMENTS.items(), strict=True):
            for k, net in enumerate(NETS):
                runs = [m["change"][name][what] for m in raw[net]["measured"]]
                factor = 100 if what == "length" else 1
                draw_line(ax, k, Line(net, how.amounts, *(factor * np.mean([r[c] for r in runs], 0) for c in CURVES)))
            first = ax is row[0]
            tidy(ax, f"{name}, {how.unit}" if what == "angle" else "", f"change of {what}, {unit}" if first else "")
            ends = how.amounts[0], 0, how.amounts[-1]
            ax.set_xticks(ends, [f"{a:g}" for a in ends])
            ax.tick_params(labelleft=first)
        top = max(ax.get_ylim()[1] for ax in row)
        for ax in row:
            ax.set_ylim(0, top)
    note = "above: the capsule's length, the norm of the CNN's last hidden layer; below: their directions"
    heading(axes[0][0], "What changes when a digit is moved", f"{note}; bands: quartiles of the test digits")
    axes[0][0].legend(fontsize=LABEL, frameon=False, labelcolor=INK, loc="upper center")
    return save(fig, path, plot=True)
