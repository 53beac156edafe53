"""Which detail matters? The paper's text against the authors' published code, one change at a time.

The authors' code differs from the text of *Dynamic Routing Between Capsules*: its class capsules have a bias, every
bias starts at 0.1, the convolution of its primary capsules is divided by their number of types before the bias is
added, and its margin loss is halved and averaged over the classes, which makes the reconstruction weigh 0.01 instead of
0.0005 against a margin loss summed as in the text. It lets gradients flow through all routing iterations, where many
re-implementations stop them; and it has leaky routing, off for MNIST. It has not been published which of these explain
the 0.25 %.

There is no claim to look at. The variants are compared on the validation split, and each network is tested once.
"""

from statistics import fmean
from typing import Any

from capsnet.data import Augment
from capsnet.drawing.plots import ranked
from capsnet.experiments import _nets
from capsnet.experiments._registry import STRONG, register
from capsnet.experiments._report import Measure, Report, Table, error_measure
from capsnet.experiments.lab import Lab, main_metric
from capsnet.metrics import compare
from capsnet.training import TrainConfig

PAPER = "as in the paper's text"


def variants(lab: Lab) -> dict[str, dict[str, Any]]:
    """What each variant changes; the first changes nothing."""
    types = lab.pick(4, 8, 32, 8)
    biases = {"routing_options": {"bias": True}, "bias_start": 0.1}
    return {
        PAPER: {},
        "no reconstruction": {"decoder": False},
        "reconstruction weight 0.005": {"reconstruction_weight": 0.005},
        "loss scale of the code (weight 0.01)": {"reconstruction_weight": 0.01},
        "gradient through the last iteration only": {"routing_options": {"gradient": "last"}},
        "bias in the class capsules": {"routing_options": {"bias": True}},
        "that bias, and every bias starts at 0.1": biases,
        "primary capsules divided by their types": {"primary_scale": 1 / types},
        "leaky routing": {"routing_options": {"leaky": True}},
        "biases, division and loss scale together": {
            "primary_scale": 1 / types,
            "reconstruction_weight": 0.01,
            **biases,
        },
    }


def config(lab: Lab, name: str, seed: int) -> TrainConfig:
    changes = {"iterations": 3, "decoder": True} | variants(lab)[name]
    if lab.budget == "day":  # the residual network has no primary_scale
        return _nets.small_capsnet(seed=seed, epochs=10, augment=Augment(shift=2), **changes)
    return _nets.capsnet(lab, seed=seed, **lab.pick({}, {"epochs": 1}, {}), **changes)


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, name, seed) for name in variants(lab) for seed in lab.seeds]


@register(
    "ablation", "Ablation: the paper's text against its authors' code, one change at a time", plan=plan, budgets=STRONG
)
def run(lab: Lab) -> Report:
    report = Report(
        differs=[
            *_nets.differences(lab, plan(lab)),
            "The authors' factor of 1/20 on the whole loss is left out: Adam's steps do not depend on a common factor.",
            "The 0.25 % of the authors' code is after 300,000 steps of the full network.",
        ]
    )
    errors: dict[str, list[float]] = {}  # on the validation split
    for name in variants(lab):
        trained = [lab.train(config(lab, name, seed)) for seed in lab.seeds]
        errors[name] = [100 * (1 - (t.validation or 0.0)) for t in trained]
        report.measures.append(error_measure(name, [main_metric(t.test) for t in trained]))
        report.raw[name] = {
            "validation error": errors[name],
            "test error": [t.error for t in trained],
            "runs": [t.folder.name for t in trained],
        }
    means = {name: fmean(values) for name, values in errors.items()}
    order, text = sorted(means, key=lambda name: means[name]), means[PAPER]
    rows = [[name, f"{means[name]:.2f}", f"{means[name] - text:+.2f}"] for name in order]
    report.tables = [Table("Validation error, lowest first", ["variant", "error, %", "against the text"], rows)]
    size = min(10_000, config(lab, PAPER, 0).eval_limit or 10_000)
    checked = {
        name: error_measure(name, [{"value": 1 - one / 100, "n": size} for one in errors[name]]) for name in order
    }
    noise = 100 * (2 * (text / 100) * (1 - text / 100) / size) ** 0.5
    report.findings = [
        f"Lowest validation error: {order[0]} ({means[order[0]]:.2f} %); the text's own setting has {text:.2f} %.",
        against_text(checked),
        f"Two equally good networks differ by about {noise:.2f} points (one standard deviation) on {size:,} validation "
        "digits by chance: smaller differences in the table show nothing.",
    ]
    figure = ranked(
        lab.figure("ablation.png"),
        {name: errors[name] for name in order},
        "One change at a time: validation error",
        f"MNIST, {lab.budget} budget; grey: one standard deviation of chance around the paper's text",
        "validation error, %",
        (text - noise, text + noise),
    )
    report.draw(figure, "Validation error of each variant, the paper's text marked by the band.")
    return report


def against_text(checked: dict[str, Measure]) -> str:
    """Which variants differ from the text's setting by more than the intervals of the validation split."""
    orders = {name: compare(one, checked[PAPER]) for name, one in checked.items() if name != PAPER}
    words = [
        f"{side} error than the text's setting: {', '.join(found)}"
        for side, sign in (("lower", -1), ("higher", 1))
        if (found := [name for name, order in orders.items() if order == sign])
    ]
    if not words:
        return "No variant differs from the text's setting by more than the 95 % intervals."
    return f"Beyond the 95 % intervals, {'; '.join(words)}."
