"""Procedure 1 of *Dynamic Routing Between Capsules* (Sabour, Frosst, Hinton 2017) where it can be seen: in the plane.

Every child capsule votes for the pose of every parent, and at first is divided equally among them. A parent sums the
votes it gets and squashes the sum: votes in all directions cancel, a bundle of similar ones adds up. Then each child's
couplings grow for the parents whose poses agree with its votes, and everything is repeated. Nothing is trained here.

Scene 1 has 24 children. Ten of them agree about parent A and ten others about B, while their votes for other parents
are scattered; four agree with no other child, and no children agree about C. In scene 2 all votes are scattered.

The claim to look at: routing finds agreement without supervision. Couplings of bundled votes grow, those of scattered
ones shrink, and the parents that children agree about grow to the unit circle. That the other one shrinks is true of
this picture, not in general.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from capsnet import routing
from capsnet.data import keyed
from capsnet.experiments._registry import register
from capsnet.experiments._report import Measure, Report, Table
from capsnet.experiments._routing_draw import Moment, Scene, draw_animation, draw_strip, moments
from capsnet.experiments.lab import Lab
from capsnet.routing import Routing, Trace

ITERATIONS = 5  # the paper takes 3; two more show where it goes
LONG = 30
DRAWS = 200
PARENTS = ("parent A", "parent B", "parent C")
GROUPS = (0,) * 10 + (1,) * 10 + (3,) * 4  # which parent a child belongs to; 3: none of them
BUNDLES = ((60.0, 150.0), (150.0, -150.0))  # degrees: where the bundles for A and B point, and how far off the rest is
SEED = 9  # picked: with most other keys C grows as well, see `other_keys`
KEYS = 30
STEPS = (
    "1  couple:  cᵢⱼ = softmax over j of bᵢⱼ",
    "2  sum and squash:  vⱼ = squash( Σᵢ cᵢⱼ ûⱼ|ᵢ )",
    "3  agree:  bᵢⱼ = bᵢⱼ + ûⱼ|ᵢ · vⱼ",
)


DIFFERS = [
    "The paper has no such figure: its capsules have 16 dimensions. The votes are made up for the picture, from a "
    "fixed key: how clear the case is says nothing about how clear it is in a trained network.",
    "Both scenes were picked for being clear: 210 combinations of settings and keys were looked at for the first, a "
    "dozen for the second.",
    f"{ITERATIONS} iterations instead of the paper's 3, to show where it goes, and {LONG}, where it ends.",
]


def polar(radius: np.ndarray | float, degrees: np.ndarray | float) -> np.ndarray:
    angle = np.deg2rad(degrees)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)


def spread(count: int, jitter: np.ndarray, stream: int, seed: int = SEED) -> np.ndarray:
    """Positions in (-1/2, 1/2), one in each of `count` equal intervals, in mixed order: no lumps by chance."""
    order = keyed.permutation(seed, stream, count, "routing-toy-angles")
    return (order + 0.5 + 0.6 * (jitter - 0.5)) / count - 0.5


def agreeing(seed: int = SEED) -> Tensor:
    """The votes of scene 1: (1, I, J, 2). What is not bundled lies in the opposite half; C's leans one way a little."""
    groups = np.array(GROUPS)
    u = keyed.uniform(seed, 0, np.arange(len(groups)), 8, "routing-toy")  # (I, 8)
    votes = np.zeros((len(groups), len(PARENTS), 2))
    for j, (towards, off) in enumerate(BUNDLES):
        ours, rest = np.flatnonzero(groups == j), np.flatnonzero(groups != j)
        noise = polar(0.12 * np.sqrt(-2 * np.log(1 - u[ours, 6])), 360 * u[ours, 7])  # Gaussian, Box and Muller's way
        votes[ours, j] = polar(0.95, towards) + noise
        votes[rest, j] = polar(0.7 + 0.5 * u[rest, 3 + j], towards + off + 180 * spread(len(rest), u[rest, j], j, seed))
    votes[:, 2] = polar(0.3 + 0.5 * u[:, 5], 360 * spread(len(groups), u[:, 2], 2, seed)) + polar(0.18, -60.0)
    return torch.from_numpy(votes)[None]


def disagreeing() -> Tensor:
    """The votes of scene 2: (1, I, J, 2), round the circle for every parent."""
    count = len(GROUPS)
    u = keyed.uniform(0, 1, np.arange(count), 6, "routing-toy")
    votes = [polar(0.8 + 0.2 * u[:, 3 + j], 360 * spread(count, u[:, j], 10 + j)) for j in range(len(PARENTS))]
    return torch.from_numpy(np.stack(votes, axis=1))[None]


def scattered(draws: int) -> Tensor:
    """Scene 2 left to chance: angles at random instead of evenly round. Shapes: -> (draws, I, J, 2)"""
    shape = (draws, len(GROUPS), len(PARENTS))
    u = keyed.uniform(0, 2, np.arange(draws), 2 * shape[1] * shape[2], "routing-toy")
    near, turned = u.reshape(draws, 2, *shape[1:]).swapaxes(0, 1)
    return torch.from_numpy(polar(0.8 + 0.2 * near, 360 * turned))


def other_keys(iterations: int) -> dict[str, int]:
    """Scene 1 by the same rules with KEYS keys: how often it ends as in the picture, which is one of them."""
    votes = torch.cat([agreeing(key) for key in range(KEYS)])
    lengths = route(votes, iterations)[0].activations  # (R, KEYS, J)
    return {
        "keys": KEYS,
        "A and B above 0.95": int((lengths[-1, :, :2] > 0.95).all(dim=1).sum()),
        "C shorter than at first": int((lengths[-1, :, 2] < lengths[0, :, 2]).sum()),
    }


def route(votes: Tensor, iterations: int = ITERATIONS, name: str = "dynamic") -> tuple[Trace, Routing]:
    algorithm = routing.get(name)
    algorithm = routing.get(name, iterations=iterations) if algorithm.iterates else algorithm
    trace = algorithm(votes, trace=True).trace
    assert trace is not None
    return trace, algorithm


def history(votes: Tensor, iterations: int = ITERATIONS) -> list[Moment]:
    return moments(*route(votes, iterations))


def last_moment(name: str, votes: Tensor) -> Moment:
    """The last iteration of a routing on these votes."""
    return moments(*route(votes, name=name))[-1]._replace(label=name)


def measured(history: list[Moment]) -> dict[str, list]:
    """Lengths of the parents (R, J), how undecided the children are (R) and couplings (R, I, J), as plain lists."""
    keys = {"lengths": "activations", "undecided": "undecided", "couplings": "couplings"}
    return {key: [np.asarray(getattr(moment, name)).tolist() for moment in history] for key, name in keys.items()}


def settings(lab: Lab) -> dict[str, Any]:
    """It draws every registered routing, so with another one its figure is of an earlier version."""
    return {"routings": routing.list_routings()}


TITLE = "Routing by agreement in the plane: votes, couplings and parents, iteration by iteration"


@register("routing-toy", TITLE, settings=settings)
def run(lab: Lab) -> Report:
    report = Report(differs=DIFFERS)
    iterations = lab.pick(2, ITERATIONS, ITERATIONS)
    votes = {"agree": agreeing(), "disagree": disagreeing()}
    for name, title in (("agree", "Scene 1: bundles for A and B"), ("disagree", "Scene 2: all votes scattered")):
        report.raw[name] = measured(history(votes[name], iterations)) | {"votes": votes[name][0].tolist()}
        report.raw[f"{name}, {LONG} iterations"] = measured(history(votes[name], LONG))
        report.tables.append(table(title, report.raw[name]))
    longest = route(scattered(DRAWS), iterations)[0].activations.amax(dim=-1)  # (R, draws)
    report.raw["longest parent of votes scattered by chance"] = longest.mean(dim=1).tolist()
    report.raw["scene 1 under other keys"] = other_keys(iterations)
    report.measures = measures(report.raw, iterations)
    report.findings = findings(report.raw, iterations)
    draw(lab, report, votes, iterations)
    return report


def draw(lab: Lab, report: Report, votes: dict[str, Tensor], iterations: int) -> None:
    note = f"Dots: votes of {len(GROUPS)} children, larger where coupled more. Arrows: the parents, their sums."
    scenes = {name: Scene(values[0].numpy(), PARENTS, GROUPS) for name, values in votes.items()}
    shown = history(votes["agree"], iterations)
    path = draw_animation(
        lab.figure("routing-toy.gif"), scenes["agree"], shown, "Routing by agreement", note, STEPS, lab.pick(1, 4, 4)
    )
    report.draw(path, "Votes, couplings and parents, step by step: votes that agree darken, the others fade.")
    path = lab.figure("routing-toy-agree.png")
    draw_strip(path, scenes["agree"], shown, "Routing by agreement: two parents get their children", note)
    report.draw(
        path, "Scene 1, one column per iteration. Blue children agree about A, orange ones about B, grey ones never."
    )
    longer = history(votes["disagree"], LONG)
    path = draw_strip(
        lab.figure("routing-toy-disagree.png"),
        scenes["disagree"]._replace(groups=(len(PARENTS),) * len(GROUPS)),
        [longer[r - 1] for r in lab.pick((1, LONG), (1, 3, 5, 8, 12, LONG), (1, 3, 5, 8, 12, LONG))],
        "Scattered votes: no parent wins, until the procedure runs too long",
        "Squashing keeps short sums short. But small agreements reinforce themselves, iteration by iteration.",
    )
    report.draw(path, f"Scene 2, the same procedure on votes that do not agree; the last column is iteration {LONG}.")
    ends = {name: last_moment(name, votes["agree"]) for name in routing.list_routings()}
    report.raw["family"] = {
        name: {"lengths": moment.activations.tolist(), "couplings": moment.couplings.tolist()}
        for name, moment in ends.items()
    }
    path = draw_strip(
        lab.figure("routing-toy-family.png"),
        scenes["agree"],
        list(ends.values()),
        f"The same votes under {len(ends)} routings",
        "Last iteration. In most routings children are divided among parents; in attention, parents among children.",
    )
    report.draw(
        path,
        "Scene 1 under each routing at its last iteration. Where couplings are normalised over the children "
        "(attention), the bars of a child may sum to more or less than 1.",
    )


def table(title: str, values: dict[str, list]) -> Table:
    rows = [
        [str(r + 1), *(f"{length:.2f}" for length in lengths), f"{entropy:.2f}"]
        for r, (lengths, entropy) in enumerate(zip(values["lengths"], values["undecided"], strict=True))
    ]
    return Table(f"{title}, lengths of the parents", ["iteration", *PARENTS, "undecided (1 to 0)"], rows)


def own_share(couplings: list, group: int) -> float:
    """The mean coupling of the children of a group to the parent they agree about, in percent."""
    return 100 * float(np.array(couplings)[np.array(GROUPS) == group, group].mean())


def measures(raw: dict[str, Any], iterations: int) -> list[Measure]:
    agree, longest = raw["agree"], max(raw["disagree"]["lengths"][-1])
    length, share = f"scene 1, length of {{}} after {iterations} iterations", "scene 1, coupling of {}'s children to it"
    return [
        *(Measure(length.format(name), [agree["lengths"][-1][j]], "") for j, name in enumerate(PARENTS)),
        *(Measure(share.format(PARENTS[j]), [own_share(agree["couplings"][-1], j)]) for j in (0, 1)),
        Measure(f"scene 2, longest parent after {iterations} iterations", [longest], ""),
    ]


def findings(raw: dict[str, Any], iterations: int) -> list[str]:
    chance, others = raw["longest parent of votes scattered by chance"], raw["scene 1 under other keys"]
    first, last = raw["agree"]["lengths"][0], raw["agree"]["lengths"][-1]
    entropy = raw["agree"]["undecided"]
    shares = [own_share(raw["agree"]["couplings"][-1], group) for group in (0, 1)]
    few, many = raw["disagree"], raw[f"disagree, {LONG} iterations"]
    moved = ", ".join(f"{name} from {a:.2f} to {b:.2f}" for name, a, b in zip(PARENTS, first, last, strict=True))
    return [
        f"Where votes agree, in {iterations} iterations: {moved}.",
        f"The children decide: the entropy of their couplings, relative to its largest value, goes from "
        f"{entropy[0]:.2f} to {entropy[-1]:.2f}, and the couplings of those that agree about A and B to these parents "
        f"end at {shares[0]:.0f} % and {shares[1]:.0f} % (all start at 33 %).",
        f"The picture is a picked one. Of {KEYS} scenes by the same rules, A and B both end above 0.95 in "
        f"{others['A and B above 0.95']}, but C ends shorter than before in only {others['C shorter than at first']}: "
        "a parent that no group agrees about grows from votes that agree by chance.",
        f"Where votes do not agree, the longest parent has {max(few['lengths'][-1]):.2f} after {iterations} iterations "
        f"and the entropy is still {few['undecided'][-1]:.2f}.",
        f"That needs votes spread evenly: of votes scattered by chance the longest parent has {chance[0]:.2f} at first "
        f"and {chance[-1]:.2f} after {iterations} iterations (mean of {DRAWS} draws): some always agree.",
        f"It also depends on the number of iterations: after {LONG} on the same votes the longest parent has "
        f"{max(many['lengths'][-1]):.2f} and the entropy is {many['undecided'][-1]:.2f}. The procedure cannot say that "
        "nothing agrees; with enough iterations every child chooses a parent.",
    ]
