"""Decoupled convolutions: how strong a patch is and how well it fits the filter, each by its own function.

Liu et al., *Decoupled Networks* (CVPR 2018), replace w . x = |w| |x| cos(theta) by h(|x|) g(theta). They report lower
errors than ordinary convolutions for several choices of h and g, and that bounded h resist attacked images better.

Here every h (sphere, ball, tanh, linear, segmented, logarithmic) meets every g (cosine, linear, squared cosine) in the
same network with the same number of parameters as one with ordinary convolutions: the radius of a decoupled filter
stands for the bias. All are trained alike on MNIST and tested on clean images, with less contrast, with noise, and
under attacks: one step along the gradient's sign, PGD, and images attacked on another, ordinary network.

The claims to look at: a bounded h does not mind low contrast; is an operator that PGD hardly harms robust, or does it
only hide its gradients? If images made on another network harm it more than its own gradients do, it is gradient
masking, and the report says so.
"""

from capsnet.experiments import _robust
from capsnet.experiments._claims import Claim, most_often_lower
from capsnet.experiments._registry import register
from capsnet.experiments._report import Report
from capsnet.experiments._robust import Options
from capsnet.experiments.lab import Lab
from capsnet.layers.decoupled import ANGLES, LENGTHS
from capsnet.training import TrainConfig

ORDINARY = "ordinary convolution"
BOUNDED = ("sphere", "ball", "tanh")
G = {"cosine": "cos", "linear": "linear", "squared": "cos²"}


def variants(lab: Lab) -> dict[str, Options]:
    """The ordinary convolution, then all pairs of h and g; two of them for smoke."""
    pairs = [(h, g) for g in ANGLES for h in LENGTHS]
    pairs = lab.pick([("tanh", "cosine"), ("linear", "squared")], pairs, pairs)
    sizes = _robust.ordinary(lab)
    return {ORDINARY: Options("cnn-small", sizes)} | {
        f"{h} · {G[g]}": Options("decoupled-cnn-small", sizes | {"length": h, "angle": g}) for h, g in pairs
    }


def plan(lab: Lab) -> list[TrainConfig]:
    return _robust.plan(lab, variants(lab))


def claims(report: Report) -> list[Claim]:
    """Lower errors, and more robust where h is bounded, by the number of operators."""
    errors = _robust.errors_of(report)
    ordinary, others = errors[ORDINARY], [name for name in errors if name != ORDINARY]
    bounded = [name for name in others if name.partition(" ")[0] in BOUNDED]
    source = "Liu et al. 2018"
    return [
        most_often_lower(text, source, [(errors[name][key], ordinary[key]) for name in names], where)
        for text, names, key, where in (
            ("Decoupled convolutions have a lower error", others, "clean", "operators"),
            ("Decoupled convolutions with a bounded h resist attacks", bounded, "PGD", "bounded operators under PGD"),
        )
    ]


TITLE = "Decoupled convolutions: error, low contrast, noise, attacks and what only hides"


@register("decoupled", TITLE, plan=plan, claims=claims)
def run(lab: Lab) -> Report:
    report = _robust.run(lab, variants(lab), "operators", "Decoupled convolutions: h of the length, g of the angle")
    report.differs.append(
        "`sphere`, `linear` and `logarithmic` do not use the learned radius: it counts among their parameters."
    )
    return report
