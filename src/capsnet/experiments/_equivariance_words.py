"""What `equivariance` says of its numbers: measures, tables and sentences that are true whichever way they came out."""

from typing import Any

import numpy as np

from capsnet.experiments._equivariance import TRANSFORMATIONS
from capsnet.experiments._report import Measure, Table
from capsnet.experiments.lab import Trained

NETS = ("CapsNet", "CNN")
POSE = 16  # dimensions of a class capsule; the CNN's layer is also read with that many principal components
READERS = {  # network, principal components
    "CapsNet, pose (16-D)": ("CapsNet", None),
    "CNN, 16 components": ("CNN", POSE),
    "CNN, whole layer": ("CNN", None),
}
READ_FROM = {"vector": "the vector", "change": "its change"}


def read_key(name: str, kind: str, components: int | None) -> str:
    return f"{name} {kind} {components or 'all'}"


def read_values(found: dict[str, list], reader: str, name: str, kind: str) -> list[dict[str, float]]:
    """A read-out's R^2 and interval, one per seed."""
    net, components = READERS[reader]
    return [m["read"][read_key(name, kind, components)] for m in found[net]]


def mean_r2(found: dict[str, list], reader: str, kind: str) -> list[float]:
    """R^2 averaged over the transformations, one per seed."""
    table = [[r["r2"] for r in read_values(found, reader, name, kind)] for name in TRANSFORMATIONS]
    return np.mean(table, axis=0).tolist()


def outermost(found: dict[str, list], net: str, name: str, what: str) -> float:
    """The mean change at the two largest steps, over the seeds."""
    return float(np.mean([[m["change"][name][what]["mean"][s] for s in (0, -1)] for m in found[net]]))


def read_out_measures(found: dict[str, list]) -> list[Measure]:
    return [
        Measure(f"R² of a linear read-out from {READ_FROM[kind]}, {reader}", mean_r2(found, reader, kind), "",
                note="mean over the five movements")
        for kind in READ_FROM
        for reader in READERS
    ]  # fmt: skip


def share_measures(shares: list[dict[str, Any]]) -> list[Measure]:
    rows = []
    for name, words in (
        ("own", "to its own capsule"),
        ("others", "to the other one that is there"),
        ("absent", "to the absent one"),
    ):
        values = [100 * s[name][-1] for s in shares]
        reach = 100 * float(np.mean([s[f"{name} interval"][-1] for s in shares]))
        middle = float(np.mean(values))
        note = f"last iteration; chance {100 * shares[0]['chance']:.1f} %"
        interval = middle - reach, middle + reach
        rows.append(Measure(f"coupling of children on a whole, {words}", values, interval=interval, note=note))
    return rows


def change_table(found: dict[str, list]) -> Table:
    lines = []
    for name, how in TRANSFORMATIONS.items():
        cells = [
            f
            for net in NETS
            for f in (
                f"{100 * outermost(found, net, name, 'length'):.1f} %",
                f"{outermost(found, net, name, 'angle'):.1f}°",
            )
        ]
        lines.append([f"{name}, {how.amounts[-1]:g} {how.unit} either way", *cells])
    columns = [
        "largest step",
        "capsule: length changes by",
        "its direction by",
        "CNN layer: norm changes by",
        "its direction by",
    ]
    return Table("Length and direction at the largest steps (mean over test digits)", columns, lines)


def read_out_table(found: dict[str, list], kind: str) -> Table:
    widest = found["CNN"][0]["dimensions"]
    lines = []
    for name in TRANSFORMATIONS:
        cells = []
        for reader in READERS:
            runs = read_values(found, reader, name, kind)
            r2, low, high = (float(np.mean([r[key] for r in runs])) for key in ("r2", "low", "high"))
            cells.append(f"{r2:.3f} ({low:.3f} to {high:.3f})")
        lines.append([name, *cells])
    columns = ["movement", *(f"{r} ({widest}-D)" if r == "CNN, whole layer" else r for r in READERS)]
    return Table(f"R² of a linear read-out from {READ_FROM[kind]}, test digits (95 %)", columns, lines)


def share_table(shares: list[dict[str, Any]]) -> Table:
    names = ("own", "others", "absent", "own above other")
    lines = []
    for r in range(len(shares[0]["own"])):
        cells = [f"{100 * float(np.mean([s[name][r] for s in shares])):.1f} %" for name in names]
        lines.append([str(r + 1), *cells])
    columns = [
        "iteration",
        "own capsule",
        "the other present one",
        "the absent one",
        "wholes whose own gets more than the other",
    ]
    return Table("Coupling of the children on a whole, by iteration", columns, lines)


def change_finding(found: dict[str, list]) -> str:
    """Whether the length keeps still and the direction moves, beside the CNN's layer."""
    (caps_length, caps_angle), (cnn_length, cnn_angle) = (
        [
            float(np.mean([outermost(found, net, name, what) for name in TRANSFORMATIONS]))
            for what in ("length", "angle")
        ]
        for net in NETS
    )
    calm = "more" if caps_length < cnn_length else "*not* more"
    more = "more" if caps_angle > cnn_angle else "less"
    return (
        f"At the largest steps, on average over the five movements, the capsule's length changes by "
        f"{100 * caps_length:.1f} % and its direction by {caps_angle:.1f}°; the norm of the CNN's last hidden layer by "
        f"{100 * cnn_length:.1f} % and its direction by {cnn_angle:.1f}°. So the length is {calm} steady than the "
        f"CNN's norm, and the capsule turns {more} than the CNN's layer."
    )


def read_out_finding(found: dict[str, list]) -> str:
    """Who is ahead, at equal dimensions and with all that the CNN has."""
    pose, few, every = (float(np.mean(mean_r2(found, reader, "vector"))) for reader in READERS)
    equal, whole = (
        "level with" if abs(pose - other) < 0.01 else "ahead of" if pose > other else "*behind*"
        for other in (few, every)
    )
    table = {
        name: [np.mean([r["r2"] for r in read_values(found, reader, name, "vector")]) for reader in READERS]
        for name in TRANSFORMATIONS
    }
    best = [name for name, row in table.items() if row[0] == max(row)]
    winners = ", ".join(best) if best else "none of the five movements"
    return (
        f"A linear read-out recovers the movement with R² {pose:.2f} from the 16-D pose, {equal} 16 principal "
        f"components of the CNN's last hidden layer ({few:.2f}) and {whole} all of its {found['CNN'][0]['dimensions']} "
        f"dimensions ({every:.2f}). The pose is the best of the three for {winners}."
    )


def share_finding(shares: list[dict[str, Any]], crowds: list[Trained]) -> str:
    """Whether routing sends parts to their own whole, said either way."""
    own, others, absent, ahead, reach, apart = (
        float(np.mean([s[name][-1] for s in shares]))
        for name in ("own", "others", "absent", "own minus others", "own interval", "own minus others interval")
    )
    chance = shares[0]["chance"]
    path = np.mean([s["own"] for s in shares], axis=0)
    verdict = "no different from chance"
    if abs(own - chance) > reach:
        points = f"{100 * abs(own - chance):.1f} points"
        verdict = f"{points} above chance" if own > chance else f"{points} *below* chance"
    against = "about as much as"
    if abs(ahead) > apart:
        against = "more than" if ahead > 0 else "*less* than"
    missed = float(np.mean([t.error for t in crowds]))
    steps = ", ".join(f"{100 * p:.1f}" for p in path)
    return (
        f"Two overlapping wholes ({missed:.1f} % of the pictures not named exactly): children on a whole give "
        f"{100 * own:.1f} % of themselves to its capsule, {verdict} ({100 * chance:.1f} %) and {against} to the other "
        f"whole in the picture ({100 * others:.1f} %); {100 * absent:.1f} % go to the class that is absent. Over the "
        f"iterations this share {'rises' if (np.diff(path) > 0).all() else 'does *not* steadily rise'}: {steps} %."
    )
