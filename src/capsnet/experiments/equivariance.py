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

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from capsnet import data
from capsnet.data import Shapes, keyed
from capsnet.drawing.pictures import Cell, Row, Words, picture_rows
from capsnet.drawing.plots import COLOURS, LABEL, Line, draw_line, intervals, lines, panels, tidy
from capsnet.drawing.style import INK, MUTED, VERMILLION, heading, rgb, save
from capsnet.experiments import _equivariance, _nets
from capsnet.experiments._equivariance import MOVEMENTS, Crowd
from capsnet.experiments._registry import register
from capsnet.experiments._report import Measure, Report, Table
from capsnet.experiments.lab import Lab, Trained
from capsnet.inference import pick_device
from capsnet.metrics import compare, difference
from capsnet.models import CapsNet
from capsnet.training import TrainConfig

NETS = ("CapsNet", "CNN")
POSE = 16  # dimensions of a class capsule; the CNN's layer is also read with that many principal components
READERS = {  # network, principal components
    "CapsNet, pose (16-D)": ("CapsNet", None),
    "CNN, 16 components": ("CNN", POSE),
    "CNN, whole layer": ("CNN", None),
}
UNITS = {"length": "%", "angle": "°"}
READ_FROM = {"vector": "the vector", "change": "its change"}
TARGETS = {"own": "its own capsule", "others": "the other present one", "absent": "the absent one"}
OBJECTS = 2  # of three classes: one is always absent, to compare with
DIFFERS = [
    "Nothing was published to compare the numbers with: the paper argues these properties in words and pictures.",
    "Angles in a 16-dimensional pose and in a rectified hidden layer are not quite the same thing: two vectors without "
    "negative entries are never more than 90 degrees apart. Look at how they change, more than at which is larger.",
    "The read-out is learnt on validation digits, its ridge chosen on a fifth of them, and tested on test digits. A "
    "digit's own slant, size and thickness are not labelled and are noise for reading the *amount* it was moved by; "
    "the second table subtracts the unmoved digit's vector first.",
    "Thicken: the picture as a mosaic of square pixels, each grey level grown (or shrunk) by a disc of that radius, "
    "and averaged over the pixels again.",
    "Crowded pictures hold two of the three classes, so that one is absent; a child counts as lying on an object if "
    "the middle pixel of its 17x17 receptive field is that object's ink.",
]


def config(lab: Lab, net: str, seed: int) -> TrainConfig:
    """The networks of `table1`, and a CapsNet for pictures of two objects (`crowded`)."""
    if net == "CNN":
        return _nets.cnn(lab, "mnist", seed=seed)
    changes: dict[str, Any] = {"iterations": 3, "decoder": True}
    if net == "crowded":
        changes |= lab.pick({}, {"limit": 10_000, "epochs": 4, "batch_size": 32, "lr": 1e-3}, {"epochs": 20})
    return _nets.capsnet(lab, crowded_spec(lab) if net == "crowded" else "mnist", seed=seed, **changes)


def crowded_spec(lab: Lab) -> str:
    return f"shapes:kind=crowded,objects={OBJECTS}" + lab.pick(",count=200", "", "")


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, net, seed) for seed in lab.seeds for net in (*NETS, "crowded")]


@register(
    "equivariance", "Equivariance: does length stay and direction move? Which parts go to which whole?", plan=plan
)
def run(lab: Lab) -> Report:
    report = Report(differs=[*_nets.differences(lab, plan(lab)), *DIFFERS])
    sizes = {"learn": lab.pick(60, 1_000, 4_000), "test": lab.pick(20, 500, 2_000)}
    for net in NETS:
        trained = [lab.train(config(lab, net, seed)) for seed in lab.seeds]
        moved = [
            lab.remember("moved", lambda t=t: measure(t, lab.device, **sizes), run=t.folder, **sizes) for t in trained
        ]
        report.raw[net] = {"runs": [t.folder.name for t in trained], "measured": moved}
    crowds = [lab.train(config(lab, "crowded", seed)) for seed in lab.seeds]
    count, spec = lab.pick(20, 1_000, 2_000), crowded_spec(lab)
    report.raw["crowded"] = {
        "runs": [t.folder.name for t in crowds],
        "exact_match_error": [t.error for t in crowds],
        "measured": [
            lab.remember("crowded", lambda t=t: shares(route(t, lab, count)), run=t.folder, n=count, data=spec)
            for t in crowds
        ],
    }
    describe(report)
    draw(lab, report, crowds[0])
    return report


def measure(trained: Trained, device: str, learn: int, test: int) -> dict[str, Any]:
    """One network: curves of change, and the read-outs that its vectors allow."""
    model = trained.model.to(pick_device(device))
    batches = [data.load("mnist", split).batch(np.arange(n)) for split, n in (("validation", learn), ("test", test))]
    paths, tested = (_equivariance.trajectories(model, batch.images, batch.targets) for batch in batches)
    labels, answers = (batch.targets.numpy() for batch in batches)
    order = keyed.permutation(0, 0, learn, "equivariance.split")
    fit, choose = order[learn // 5 :], order[: learn // 5]
    result: dict[str, Any] = {"dimensions": int(tested["rotate"].shape[-1]), "change": {}, "read": {}}
    for name, how in MOVEMENTS.items():
        start = how.amounts.index(0)
        result["change"][name] = {
            what: {
                "mean": v.mean(0).tolist(),
                "low": np.quantile(v, 0.25, 0).tolist(),
                "high": np.quantile(v, 0.75, 0).tolist(),
            }
            for what, v in zip(("length", "angle"), _equivariance.changes(tested[name], start), strict=True)
        }
        for kind in READ_FROM:
            mine, other = (p - p[:, start, None] * (kind == "change") for p in (paths[name], tested[name]))
            trio = (mine[fit], labels[fit]), (mine[choose], labels[choose]), (other, answers)
            for components in (None, POSE):
                key = f"{name} {kind} {components or 'all'}"
                result["read"][key] = _equivariance.read_out(*trio, how.amounts, components)
    return result


def route(trained: Trained, lab: Lab, count: int) -> Crowd:
    model, test = trained.model.to(pick_device(lab.device)), data.load(crowded_spec(lab), "test")
    assert isinstance(model, CapsNet)
    assert isinstance(test, Shapes)
    return _equivariance.route_crowd(model, test, np.arange(count))


def shares(crowd: Crowd) -> dict[str, Any]:
    """What children on an object are coupled to, per iteration, with the half-widths of the intervals."""
    share = _equivariance.coupling_share(crowd.couplings, crowd.presence, crowd.owner, crowd.classes)
    ahead = share["own"] - share["others"]
    result: dict[str, Any] = {"chance": 1 / crowd.couplings.shape[-1], "pictures": len(crowd.images)}
    for name, values in (share | {"own minus others": ahead}).items():
        result[name], result[f"{name} interval"] = _equivariance.averaged(values)
    result["children on a whole"] = float(np.mean(crowd.owner >= 0))
    ahead = ahead[:, np.isfinite(share["own"]).all(axis=0)]  # (R, objects)
    result["own above other"] = np.where(abs(ahead) < 1e-6, 0.5, ahead > 0).mean(axis=1).tolist()
    return result


def r_squared(raw: dict[str, Any], kind: str) -> dict[str, list[Measure]]:
    """R² of each movement (over the seeds, with its interval), a measure for each of READERS."""
    table = {}
    for name in MOVEMENTS:
        table[name] = []
        for reader, (net, components) in READERS.items():
            runs = [m["read"][f"{name} {kind} {components or 'all'}"] for m in raw[net]["measured"]]
            r2, low, high = ([run[key] for run in runs] for key in ("r2", "low", "high"))
            table[name].append(Measure(reader, r2, "", interval=(fmean(low), fmean(high))))
    return table


def coupling(raw: dict[str, Any], target: str) -> list[Measure]:
    """The coupling of children on an object to one kind of capsule, in percent, at each iteration."""
    runs = raw["crowded"]["measured"]
    name, note = f"coupling of children on an object to {TARGETS[target]}", f"chance {100 * runs[0]['chance']:.1f} %"
    result = []
    for r in range(len(runs[0][target])):
        values = [100 * run[target][r] for run in runs]
        mean, reach = fmean(values), 100 * fmean(run[f"{target} interval"][r] for run in runs)
        result.append(Measure(name, values, interval=(mean - reach, mean + reach), note=note, n=runs[0]["pictures"]))
    return result


def largest(raw: dict[str, Any], net: str, movement: str, what: str) -> float:
    """The mean change at the two largest steps, over the seeds: percent of the length, or degrees."""
    steps = fmean(m["change"][movement][what]["mean"][step] for m in raw[net]["measured"] for step in (0, -1))
    return 100 * steps if what == "length" else steps


def describe(report: Report) -> None:
    """Measures, tables and findings from the raw numbers."""
    raw, read = report.raw, {kind: r_squared(report.raw, kind) for kind in READ_FROM}
    couplings = {target: coupling(raw, target) for target in TARGETS}
    for kind, table in read.items():
        for k, reader in enumerate(READERS):
            values = np.mean([row[k].values for row in table.values()], axis=0).tolist()
            name = f"R² of a linear read-out from {READ_FROM[kind]}, {reader}"
            report.measures.append(Measure(name, values, "", note="mean over the five movements"))
    report.measures += [measures[-1] for measures in couplings.values()]
    rows = [
        [f"{name}, {how.amounts[-1]:g} {how.unit} either way"]
        + [f"{largest(raw, net, name, what):.1f} {unit}" for net in NETS for what, unit in UNITS.items()]
        for name, how in MOVEMENTS.items()
    ]
    columns = ["largest step", "capsule: change of length", "of direction", "CNN layer: change of norm", "of direction"]
    report.tables = [Table("Length and direction at the largest steps (mean over test digits)", columns, rows)]
    for kind, table in read.items():
        rows = [[name, *(m.shown() for m in row)] for name, row in table.items()]
        title = f"R² of a linear read-out from {READ_FROM[kind]}, test digits"
        report.tables.append(Table(title, ["movement", *READERS], rows))
    above = np.mean([run["own above other"] for run in raw["crowded"]["measured"]], axis=0)  # (R,)
    rows = [
        [str(r + 1), *(f"{m[r].mean:.1f} %" for m in couplings.values()), f"{100 * share:.1f} %"]
        for r, share in enumerate(above)
    ]
    columns = ["iteration", *TARGETS.values(), "objects whose own capsule gets more than the other"]
    report.tables.append(Table("Coupling of the children on an object, by iteration", columns, rows))
    report.findings = findings(raw, report.measures[:3], read["vector"], couplings)


def findings(
    raw: dict[str, Any],
    r2: Sequence[Measure],
    table: Mapping[str, Sequence[Measure]],
    couplings: dict[str, list[Measure]],
) -> list[str]:
    """What the numbers say of the three questions."""
    (caps_length, caps_angle), (cnn_length, cnn_angle) = (
        [Measure(net, [fmean(largest(raw, net, m, what) for m in MOVEMENTS)], unit) for what, unit in UNITS.items()]
        for net in NETS
    )
    length = difference("the change of the capsule's length", caps_length, "that of the CNN layer's norm", cnn_length)
    angle = difference("the change of the capsule's direction", caps_angle, "that of the CNN layer's", cnn_angle)
    pose, few, every = (m.mean for m in r2)
    best = [name for name, row in table.items() if all(compare(row[0], other) > 0 for other in row[1:])]
    own, others, absent = (measures[-1] for measures in couplings.values())
    part = difference("the coupling of children on an object to its capsule", own, "that to the other object's", others)
    path = [m.mean for m in couplings["own"]]
    return [
        f"At the largest steps, on average over the five movements, {length}; {angle}.",
        f"A linear read-out recovers the movement with R² {pose:.2f} from the 16-D pose, {few:.2f} from 16 principal "
        f"components of the CNN's last hidden layer and {every:.2f} from all dimensions of it. Beyond the 95 % "
        f"intervals, the pose is the best of the three for {', '.join(best) or 'none of the five movements'}.",
        f"Two overlapping objects ({fmean(raw['crowded']['exact_match_error']):.1f} % of the pictures are classified "
        f"wrongly): {part}. {absent.mean:.2f} % go to the absent class's; {absent.note}. Over the iterations it "
        f"{'rises' if (np.diff(path) > 0).all() else 'does *not* steadily rise'}: "
        f"{', '.join(f'{value:.1f}' for value in path)} %.",
    ]


def draw(lab: Lab, report: Report, crowd: Trained) -> None:
    digit = data.load("mnist", "test").batch(np.array([0])).images
    rows = [
        Row([Cell(_equivariance.move(digit, name, a)[0].numpy(), [Words(f"{a:+.3g}" if a else "0")],
                  None if a else VERMILLION) for a in how.amounts], f"{name}\n{how.unit}")
        for name, how in MOVEMENTS.items()
    ]  # fmt: skip
    words = "One digit, moved in steps", "framed: as it is in the test split"
    report.draw(
        picture_rows(lab.figure("steps.png"), rows, *words, gap=8),
        "The steps of each movement, on the first test digit.",
    )
    report.draw(
        change_panels(lab.figure("change.png"), report.raw),
        "How length and direction change as a digit is moved: mean, and between the quartiles of the test digits. "
        "Above: length (CNN: norm); below: direction.",
    )
    table = r_squared(report.raw, "vector")
    lowest = min(m.interval[0] for row in table.values() for m in row if m.interval)
    words = "How far was it moved? A linear read-out", "R² on test digits (1: the movement is recovered entirely)"
    report.draw(
        intervals(lab.figure("read-out.png"), table, *words, (max(-1.0, min(0.0, lowest)), 1)),
        "How much of each movement a linear read-out recovers (R², test digits).",
    )
    names = data.load(crowded_spec(lab), "test").class_names
    report.draw(
        coupling_pictures(lab.figure("couplings.png"), route(crowd, lab, lab.pick(2, 5, 5)), names),
        "The first crowded test pictures. A mark at the middle of what the children at one position see shows how "
        "present they are and how far their coupling to that capsule is above an even split. Framed: the objects that "
        "are present.",
    )
    even = 100 * report.raw["crowded"]["measured"][0]["chance"]
    curves = []
    for target, words in TARGETS.items():
        above = [m._replace(values=[v - even for v in m.values], interval=(m.interval[0] - even, m.interval[1] - even))
                 for m in coupling(report.raw, target) if m.interval]  # fmt: skip
        curves.append(Line.of(f"to {words}", range(1, len(above) + 1), above))
    path = lines(
        lab.figure("routing.png"),
        curves,
        "Which capsule is a part coupled to?",
        "mean over children that lie on one of two overlapping objects; bands: 95 % interval",
        "routing iteration",
        f"points above an even split ({even:.1f} %)",
        level=(0, "an even split"),
    )
    report.draw(path, "The coupling of children on an object, iteration by iteration.")


def change_panels(path: Path, raw: Mapping[str, Any]) -> Path:
    """A column per movement: change of length above, of direction below; a curve with its band per network."""
    fig, axes = panels(2, len(MOVEMENTS), 2.4, 2.8)
    for row, (what, unit) in zip(axes, UNITS.items(), strict=True):
        for c, (ax, (name, how)) in enumerate(zip(row, MOVEMENTS.items(), strict=True)):
            for k, net in enumerate(NETS):
                runs = [m["change"][name][what] for m in raw[net]["measured"]]
                factor = 100 if what == "length" else 1
                curve = [factor * np.mean([run[key] for run in runs], axis=0) for key in ("mean", "low", "high")]
                draw_line(ax, k, Line(net, how.amounts, *curve))
            tidy(ax, f"{name}, {how.unit}" if what == "angle" else "", f"change of {what}, {unit}" if c == 0 else "")
            ends = (how.amounts[0], 0, how.amounts[-1])
            ax.set_xticks(ends, [f"{value:g}" for value in ends])
        top = max(ax.get_ylim()[1] for ax in row)
        for c, ax in enumerate(row):
            ax.set_ylim(0, top)
            if c:
                ax.set_yticklabels([])
    note = "above: the capsule's length, the norm of the CNN's last hidden layer; below: their directions"
    heading(axes[0][0], "What changes when a digit is moved", f"{note}; bands: quartiles of the test digits")
    axes[0][0].legend(fontsize=LABEL, frameon=False, labelcolor=INK, loc="upper center")
    return save(fig, path, plot=True)


def coupling_pictures(path: Path, crowd: Crowd, names: Sequence[str]) -> Path:
    """A row per class, a column per picture: what its children see, coloured by their coupling, over the picture."""
    (B, _, H, W), J = crowd.images.shape, crowd.couplings.shape[-1]
    presence, mass = np.zeros((B, H, W)), np.zeros((B, H, W, J))
    at = (slice(None), *crowd.centres)
    np.add.at(presence, at, crowd.presence)
    np.add.at(mass, at, crowd.couplings[-1] * crowd.presence[..., None])
    above = np.clip(mass / np.maximum(presence, 1e-12)[..., None] - 1 / J, 0, None)  # (B, H, W, J)
    strength = above / above.max() * (presence / presence.max(axis=(1, 2), keepdims=True))[..., None]
    for axis in (1, 2):  # a child's square is as wide as the stride
        strength = np.maximum(strength, np.roll(strength, 1, axis))
    rows = [Row([Cell(image) for image in crowd.images], "picture")]
    for j, name in enumerate(names):
        cells = []
        for n, image in enumerate(crowd.images):
            present = j in crowd.classes[n]
            words = f"{crowd.lengths[n, j]:.2f}" if present else f"absent, {crowd.lengths[n, j]:.2f}"
            tinted = (1 - 0.28 * image) * (1 - strength[n, ..., j]) + rgb(COLOURS[j])[:, None, None] * strength[
                n, ..., j
            ]
            words = Words(words, INK if present else MUTED, present)
            cells.append(Cell(tinted, [words], COLOURS[j] if present else None))
        rows.append(Row(cells, f"to the\n{name}"))
    note = f"coupling above an even split, last iteration (full colour: {100 * above.max():.0f} points above it), "
    note += "times the presence of the children; number: the capsule's length"
    return picture_rows(path, rows, "Which parts go to which whole", note, size=240, gap=12)
