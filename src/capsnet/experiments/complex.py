"""Complex-valued networks: three activations beside their twin of real numbers.

Trabelsi et al., *Deep Complex Networks* (ICLR 2018), build convolutions, BatchNorm and initial weights for complex
numbers and compare activations: modReLU (keeps the angle), zReLU (keeps the first quadrant) and CReLU (ReLU of both
parts). They find CReLU best and complex networks about as good as real ones of the same size on pictures.

Here the same network has each activation, and a twin of real numbers has as many parameters: sqrt(2) times as many
channels, because a complex weight is two numbers. All are trained alike on MNIST and tested on clean images, with less
contrast, with noise, and under attacks: one step along the gradient's sign, PGD, and images attacked on another,
ordinary network.

The claims to look at: CReLU is the best of the three; complex numbers are worth their price at equal parameters. An
activation that hides its gradients (images made on another network harm it more than its own gradients do) is said to
mask them.
"""

from typing import Any

from capsnet.experiments import _robust
from capsnet.experiments._claims import Claim, lower
from capsnet.experiments._registry import register
from capsnet.experiments._report import Report
from capsnet.experiments._robust import Options
from capsnet.experiments.lab import Lab
from capsnet.training import TrainConfig

TWIN = "real twin"
NAMES = {"modReLU": "modrelu", "zReLU": "zrelu", "CReLU": "crelu"}


def variants(lab: Lab) -> dict[str, Options]:
    """The twin of real numbers, then the complex network with each activation."""
    small: dict[str, Any] = {"channels": [4, 8], "width": 16}
    sizes = lab.pick(small, {"channels": [12, 24, 48], "width": 64}, {})
    return {TWIN: Options("complex-cnn-small", sizes | {"real": True})} | {
        name: Options("complex-cnn-small", sizes | {"activation": activation}) for name, activation in NAMES.items()
    }


def plan(lab: Lab) -> list[TrainConfig]:
    return _robust.plan(lab, variants(lab))


def claims(report: Report) -> list[Claim]:
    text, source = "Complex networks are as good as real ones of the same size", "Trabelsi et al. 2018"
    return [lower(f"{text}: {name}", source, report, f"{name}, clean", f"{TWIN}, clean") for name in NAMES]


TITLE = "Complex-valued networks: activations beside a real twin, on clean, noisy and attacked images"


@register("complex", TITLE, plan=plan, claims=claims)
def run(lab: Lab) -> Report:
    return _robust.run(lab, variants(lab), "activations", "Complex numbers and their twin of real numbers")
