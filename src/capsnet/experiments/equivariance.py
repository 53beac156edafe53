"""Does a capsule's length stay while its direction moves?

The paper (Sections 2 and 5.1, and its discussion) wants of a capsule that its *length* says whether a thing is there
and its *direction* how it is there: shift or turn the thing, and the length should stay (invariance) while the pose
changes in step (equivariance), so simply that a linear map reads the movement off.

Three looks. Test digits are shifted, turned, scaled and thickened in steps: how much do length and direction of the
true class's capsule change, beside the norm and direction of a CNN's last hidden layer? Then a ridge regression reads
the amount of each movement off these vectors, on digits it has not seen. And in pictures of two overlapping wholes
(`shapes:kind=crowded`): do the children that lie on a whole route themselves to *its* capsule, and more so from
iteration to iteration?
"""

from typing import Any

import numpy as np

from capsnet import data
from capsnet.data import Shapes, keyed
from capsnet.experiments import _nets
from capsnet.experiments._crowded import Routed, averaged, coupling_share, route
from capsnet.experiments._equivariance import TRANSFORMATIONS, Part, changes, read_out, trajectories
from capsnet.experiments._equivariance_figures import (
    change_panels,
    coupling_lines,
    coupling_pictures,
    read_out_dots,
    steps_picture,
)
from capsnet.experiments._equivariance_words import (
    NETS,
    POSE,
    READ_FROM,
    READERS,
    change_finding,
    change_table,
    read_key,
    read_out_finding,
    read_out_measures,
    read_out_table,
    read_values,
    share_finding,
    share_measures,
    share_table,
)
from capsnet.experiments._report import Report
from capsnet.experiments.lab import Lab, Trained
from capsnet.inference import pick_device
from capsnet.models import CapsNet
from capsnet.training import TrainConfig

TITLE = "Equivariance: length stays, direction moves? And which parts go to which whole"
OBJECTS = 2  # of three classes: one is always absent, to compare with


def config(lab: Lab, net: str, seed: int) -> TrainConfig:
    """The networks of `table1`."""
    if net == "CNN":
        return _nets.cnn(lab, "mnist", seed=seed)
    return _nets.capsnet(lab, "mnist", seed=seed, iterations=3, decoder=True)


def crowded_spec(lab: Lab) -> str:
    return f"shapes:kind=crowded,objects={OBJECTS}" + lab.pick(",count=200", "", "")


def crowded_config(lab: Lab, seed: int) -> TrainConfig:
    changes = lab.pick({}, {"limit": 10_000, "epochs": 4, "batch_size": 32, "lr": 1e-3}, {"epochs": 20})
    return _nets.capsnet(lab, crowded_spec(lab), seed=seed, iterations=3, decoder=True, **changes)


def plan(lab: Lab) -> list[TrainConfig]:
    return [c for s in lab.seeds for c in (*(config(lab, net, s) for net in NETS), crowded_config(lab, s))]


def run(lab: Lab) -> Report:
    report = Report(differs=[*_nets.differences(lab, plan(lab)), *DIFFERS])
    sizes = {"learn": lab.pick(60, 1_000, 4_000), "test": lab.pick(20, 500, 2_000)}
    found = {}
    for net in NETS:
        trained = [lab.train(config(lab, net, seed)) for seed in lab.seeds]
        found[net] = [
            lab.remember("moved", lambda t=t: measure(t, lab.device, **sizes), run=t.folder, **sizes) for t in trained
        ]
        report.raw[net] = {"runs": [t.folder.name for t in trained], "measured": found[net]}
    crowds = [lab.train(crowded_config(lab, seed)) for seed in lab.seeds]
    count = lab.pick(20, 1_000, 2_000)
    spec = crowded_spec(lab)
    shares = [
        lab.remember(
            "crowded", lambda t=t: crowded_shares(t, lab.device, spec, count), run=t.folder, n=count, data=spec
        )
        for t in crowds
    ]
    report.raw["crowded"] = {
        "runs": [t.folder.name for t in crowds], "exact_match_error": [t.error for t in crowds], "measured": shares,
    }  # fmt: skip
    report.measures = [*read_out_measures(found), *share_measures(shares)]
    report.tables = [change_table(found), *(read_out_table(found, kind) for kind in READ_FROM), share_table(shares)]
    report.findings = [change_finding(found), read_out_finding(found), share_finding(shares, crowds)]
    draw(lab, report, found, shares, crowds[0])
    return report


DIFFERS = [
    "Nothing was published to set the numbers beside: the paper argues these properties in words and pictures.",
    "Angles in a 16-dimensional pose and in a rectified hidden layer are not quite the same thing: two vectors without "
    "negative entries are never more than 90 degrees apart. Look at how they change, more than at which is larger.",
    "The read-out is learnt on validation digits, its ridge chosen on a fifth of them, and tested on test digits. A "
    "digit's own slant, size and thickness, which nobody labelled, are noise for reading the *amount* it was moved by; "
    "the second table takes the unmoved digit's vector off first.",
    "Thicken: the picture as a mosaic of square pixels, each grey level grown (or shrunk) by a disc of that radius, "
    "and averaged over the pixels again.",
    "Crowded pictures hold two of the three classes, so that one is absent; a child counts as lying on a whole if the "
    "middle pixel of its 17x17 receptive field is that whole's ink.",
]


def measure(trained: Trained, device: str, learn: int, test: int) -> dict[str, Any]:
    """One network: curves of change, and the read-outs that its vectors allow."""
    model = trained.model.to(pick_device(device))
    parts = {}
    for split, n in (("validation", learn), ("test", test)):
        batch = data.load("mnist", split).batch(np.arange(n))
        parts[split] = trajectories(model, batch.images, batch.targets), batch.targets.numpy()
    order = keyed.permutation(0, 0, learn, "equivariance.split")
    fit, choose = order[learn // 5 :], order[: learn // 5]
    (paths, labels), (tested, answers) = parts["validation"], parts["test"]
    result: dict[str, Any] = {"dimensions": int(tested["rotate"].shape[-1]), "change": {}, "read": {}}
    for name, how in TRANSFORMATIONS.items():
        length, angle = changes(tested[name], how.start)
        result["change"][name] = {"length": summary(length), "angle": summary(angle)}
        for kind in READ_FROM:
            mine, other = (p - p[:, how.start, None] * (kind == "change") for p in (paths[name], tested[name]))
            trio = Part(mine[fit], labels[fit]), Part(mine[choose], labels[choose]), Part(other, answers)
            for components in (None, POSE):
                got = read_out(*trio, how.amounts, components)
                result["read"][read_key(name, kind, components)] = got._asdict()
    return result


def summary(values: np.ndarray) -> dict[str, list[float]]:
    """Mean and quartiles at each step. Shapes: (N, S) -> lists of S"""
    low, high = np.quantile(values, (0.25, 0.75), axis=0)
    return {"mean": values.mean(axis=0).tolist(), "low": low.tolist(), "high": high.tolist()}


def crowded_shares(trained: Trained, device: str, spec: str, count: int) -> dict[str, Any]:
    """Where children on a whole route themselves, per iteration, with the half-widths of the intervals."""
    routed = routes(trained, device, spec, np.arange(count))
    share = coupling_share(routed.couplings, routed.presence, routed.owner, routed.classes)
    result: dict[str, Any] = {"chance": 1 / routed.couplings.shape[-1], "pictures": count}
    for name, values in (share._asdict() | {"own minus others": share.own - share.others}).items():
        result[name], result[f"{name} interval"] = averaged(values)
    result["children on a whole"] = float(np.mean(routed.owner >= 0))
    ahead = (share.own - share.others)[:, np.isfinite(share.own).all(axis=0)]  # (R, wholes)
    result["own above other"] = np.where(abs(ahead) < 1e-6, 0.5, ahead > 0).mean(axis=1).tolist()
    return result


def routes(trained: Trained, device: str, spec: str, index: np.ndarray) -> Routed:
    model, test = trained.model.to(pick_device(device)), data.load(spec, "test")
    assert isinstance(model, CapsNet)
    assert isinstance(test, Shapes)
    return route(model, test, index)


def draw(lab: Lab, report: Report, found: dict[str, list], shares: list[dict[str, Any]], crowd: Trained) -> None:
    digit = data.load("mnist", "test").batch(np.array([0])).images
    report.draw(steps_picture(lab.figure("steps.png"), digit), "The steps of each movement, on the first test digit.")
    curves = {net: [m["change"] for m in found[net]] for net in NETS}
    caption = (
        "How length and direction change as a digit is moved: mean, and between the quartiles of the test digits. "
        "Above: length (CNN: norm); below: direction."
    )
    report.draw(change_panels(lab.figure("change.png"), curves), caption)
    rows = {
        name: {reader: read_values(found, reader, name, "vector") for reader in READERS} for name in TRANSFORMATIONS
    }
    report.draw(
        read_out_dots(lab.figure("read-out.png"), rows),
        "How much of each movement a linear read-out recovers (R², test digits).",
    )
    test = data.load(crowded_spec(lab), "test")
    routed = routes(crowd, lab.device, crowded_spec(lab), np.arange(lab.pick(2, 5, 5)))
    caption = (
        "The first crowded test pictures. Each dot is the middle of what the children at that position see: as large "
        "as they are present, as strong as their coupling to that capsule is above an even split. Framed in colour: "
        "the wholes that are there."
    )
    report.draw(coupling_pictures(lab.figure("couplings.png"), routed, test.class_names), caption)
    report.draw(
        coupling_lines(lab.figure("routing.png"), shares),
        "Where children on a whole route themselves, iteration by iteration.",
    )
