"""The engine of ``decoupled`` and ``complex``: networks that differ in one thing, on clean and on harder images.

Each variant is trained with the same settings and several seeds, then reads the same test images as they are, with less
contrast, with noise, and attacked: in one step, in several (PGD), and by images made on an ordinary network of other
initial weights (transfer).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from capsnet import data
from capsnet.drawing.pictures import Cell, Row, picture_rows
from capsnet.drawing.plots import TICK, series_style, tidy
from capsnet.drawing.style import FAINT, INK, MUTED, figure, heading, save
from capsnet.experiments import _attacks, _nets
from capsnet.experiments._report import Measure, Report, Table, error_measure
from capsnet.experiments.lab import Lab, Trained, device_of
from capsnet.metrics import compare
from capsnet.training import TrainConfig

CONTRAST, NOISE, EPS = 0.3, 0.3, 0.1
CONDITIONS = {  # name in tables: words in findings
    "clean": "clean images",
    "contrast": f"contrast times {CONTRAST:g}",
    "noise": f"noise of {NOISE:g}",
    "one step": f"one step of {EPS:g} along the gradient's sign",
    "PGD": f"PGD within {EPS:g}",
    "transfer": f"images attacked on another, ordinary network within {EPS:g}",
}
ATTACKS = ("one step", "PGD", "transfer")


class Options(NamedTuple):
    """A variant: a registered model and its options."""

    model: str
    options: dict[str, Any]


Errors = dict[str, dict[str, Measure]]  # by variant, by condition


def setting(lab: Lab) -> TrainConfig:
    """How long and on what, the same for all variants."""
    base = _nets.setting(lab)
    if lab.budget == "smoke":
        return base
    size, epochs, most = lab.pick((0, 0, 0), (8_000, 2, 2_000), (50_000, 10, 10_000))
    return dataclasses.replace(
        base, limit=size, epochs=epochs, eval_limit=most, batch_size=64, lr=2e-3, schedule="one-cycle"
    )


def config(lab: Lab, variant: Options, seed: int) -> TrainConfig:
    name, options = variant
    return dataclasses.replace(setting(lab), recipe=name, model=name, model_options=dict(options), seed=seed)


def surrogate(lab: Lab, seed: int) -> TrainConfig:
    """The ordinary network on which transfer attacks are made: no variant has its initial weights, which are He's."""
    options = ordinary(lab) | {"init": "he"}
    return config(lab, Options("cnn-small", options), seed)


def ordinary(lab: Lab) -> dict[str, Any]:
    """Sizes of the ordinary network, and of all that are compared with it layer by layer."""
    small = {"channels": [8, 16], "kernel_sizes": [3, 3], "widths": [16], "dropout": 0.0}
    quick = {"channels": [16, 32, 64], "kernel_sizes": [3, 3, 3], "widths": [64], "dropout": 0.0}
    return lab.pick(small, quick, {"dropout": 0.0})


def plan(lab: Lab, variants: Mapping[str, Options]) -> list[TrainConfig]:
    runs = [config(lab, one, seed) for one in variants.values() for seed in lab.seeds]
    return runs + [surrogate(lab, seed) for seed in lab.seeds]


def run(lab: Lab, variants: Mapping[str, Options], what: str, title: str) -> Report:
    """Train and measure all variants; the first is the ordinary one. ``what`` they are: operators, activations."""
    report = Report(differs=differences(lab))
    plain, attacked = lab.pick((200, 50), (2000, 500), (10_000, 2000))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
    sizes = {}
    for seed in lab.seeds:
        source = lab.train(surrogate(lab, seed))
        made = cache(lambda source=source: transferred(lab, source, attacked))
        for name, variant in variants.items():
            trained = lab.train(config(lab, variant, seed))
            sizes[name] = trained.model.num_parameters()
            inputs = {"run": trained.folder, "source": source.folder, "plain": plain, "attacked": attacked}
            inputs |= {"strength": [CONTRAST, NOISE, EPS, steps(lab)]}
            found[name].append(
                lab.remember("errors", lambda t=trained, made=made: measured(lab, t, made(), plain, attacked), **inputs)
            )
    report.raw = {
        "variants": {name: variant._asdict() | {"parameters": sizes[name]} for name, variant in variants.items()},
        "accuracy of each seed": found,
        "strength": {"contrast": CONTRAST, "noise": NOISE, "eps": EPS, "steps": steps(lab)},
    }
    errors = errors_of(report)
    report.measures = [one["clean"] for one in errors.values()]
    report.tables = [table(errors, sizes)]
    report.findings = findings(errors, sizes, what)
    report.draw(
        draw_errors(lab.figure(f"{lab.name}.png"), errors, title),
        "Test error of each variant: mean of the seeds, 95 % interval of the test set; dashed: the first one.",
    )
    report.draw(
        draw_images(lab, plain_images(5)),
        "The same digits as they are, with less contrast, with noise, and attacked on the ordinary network.",
    )
    return report


def errors_of(report: Report) -> Errors:
    """The error of each variant under each condition, from the raw numbers."""
    return {
        name: {key: error_measure(f"{name}, {key}", [one[key] for one in seeds]) for key in CONDITIONS}
        for name, seeds in report.raw["accuracy of each seed"].items()
    }


def steps(lab: Lab) -> int:
    return lab.pick(3, 10, 40)


def plain_images(count: int) -> tuple[Tensor, Tensor]:
    """The first test digits."""
    batch = data.load("mnist", "test").batch(range(count))
    return batch.images, batch.targets


def on_device(trained: Trained, count: int) -> tuple[Tensor, Tensor]:
    device = device_of(trained.model)
    images, labels = plain_images(count)
    return images.to(device), labels.to(device)


def transferred(lab: Lab, source: Trained, count: int) -> Tensor:
    """Images attacked on the surrogate."""
    return _attacks.attack(source.model, *on_device(source, count), EPS, steps(lab)).cpu()


def measured(lab: Lab, trained: Trained, transfer: Tensor, plain: int, attacked: int) -> dict[str, Any]:
    """Accuracy under each condition, as plain numbers."""
    model = trained.model
    images, labels = on_device(trained, plain)
    some, theirs = images[:attacked], labels[:attacked]
    return {
        "clean": _attacks.accuracy(model, images, labels),
        "contrast": _attacks.accuracy(model, _attacks.lower_contrast(images, CONTRAST), labels),
        "noise": _attacks.accuracy(model, _attacks.add_noise(images, NOISE), labels),
        "one step": _attacks.accuracy(model, _attacks.attack(model, some, theirs, EPS, 1, start=False), theirs),
        "PGD": _attacks.accuracy(model, _attacks.attack(model, some, theirs, EPS, steps(lab)), theirs),
        "transfer": _attacks.accuracy(model, transfer, theirs),
    }


def differences(lab: Lab) -> list[str]:
    if lab.budget == "smoke":
        return _nets.differences(lab, [])
    one = setting(lab)
    return [
        f"Small networks on MNIST, {one.epochs} epochs of {one.limit:,} digits, one learning rate for all variants; "
        "the paper's are large networks on photos, each trained with its own settings.",
        "No network was trained with attacked images.",
        "Beyond chance means: the 95 % intervals of the test set do not overlap and, with several seeds, Welch's 95 % "
        "interval of the difference of their means does not contain 0.",
        f"The attacks have {steps(lab)} steps (one step: 1) and change a pixel by at most {EPS:g} of the range.",
    ]


def table(errors: Errors, sizes: Mapping[str, int]) -> Table:
    def cell(measure: Measure) -> str:
        return f"{measure.mean:.1f}" + ("" if measure.spread is None else f" ± {measure.spread:.1f}")

    rows = [[name, *(cell(one[key]) for key in CONDITIONS), f"{sizes[name]:,}"] for name, one in errors.items()]
    return Table("Test error in percent: mean and spread of the seeds", ["", *CONDITIONS, "parameters"], rows)


def findings(errors: Errors, sizes: Mapping[str, int], what: str) -> list[str]:
    """Each variant beside the ordinary network, condition by condition, then what the attacks show together."""
    first, *others = errors
    sentences = [size_sentence(sizes)]
    best = min(errors, key=lambda name: errors[name]["clean"].mean)
    if best != first and compare(errors[best]["clean"], errors[first]["clean"]) == 0:
        low, reference = (errors[name]["clean"].mean for name in (best, first))
        sentences.append(
            f"Of all {what} {best} has the lowest error on clean images, {low:.2f} % against {reference:.2f} % of "
            f"{first}: not beyond chance."
        )
    for key in ("clean", "contrast", "noise"):
        sentences.append(f"{CONDITIONS[key].capitalize()}: {beside(errors, key)}.")
    return sentences + attack_sentences(errors, others)


def size_sentence(sizes: Mapping[str, int]) -> str:
    low, high = min(sizes.values()), max(sizes.values())
    if low == high:
        return f"All networks have {low:,} parameters."
    return f"The networks have {low:,} to {high:,} parameters, {100 * (high / low - 1):.1f} % apart."


def beside(errors: Errors, key: str) -> str:
    """Which variants have a lower and which a higher error than the first, beyond chance."""
    first, *others = errors
    reference = errors[first][key]
    words = []
    for order, verb in ((-1, "lower"), (1, "higher")):
        if there := [name for name in others if compare(errors[name][key], reference) == order]:
            words.append(f"{verb} for {listed(there, errors, key)}")
    if level := [errors[name][key].mean for name in others if not compare(errors[name][key], reference)]:
        span = f"{min(level):.1f} to {max(level):.1f} %"
        words.append(f"not different beyond chance for {len(level)} of {len(others)} ({span})")
    return f"the error of {first} is {reference.mean:.1f} %; it is {', '.join(words)}"


def listed(names: Sequence[str], errors: Errors, *keys: str) -> str:
    """``tanh · cos (PGD 50.0 %, transfer 9.1 %), ...``; one key is not named."""

    def numbers(name: str) -> str:
        return ", ".join(f"{key if len(keys) > 1 else ''} {errors[name][key].mean:.1f} %".strip() for key in keys)

    return ", ".join(f"{name} ({numbers(name)})" for name in names)


def masks(errors: Mapping[str, Measure]) -> bool:
    """Another network's gradients do more harm than its own."""
    return compare(errors["PGD"], errors["transfer"]) < 0


def attack_sentences(errors: Errors, others: Sequence[str]) -> list[str]:
    """What counts as robust: a lower error under PGD that transfer attacks confirm."""
    first = next(iter(errors))
    reference = errors[first]
    numbers = ", ".join(f"{key} {reference[key].mean:.1f} %" for key in ATTACKS)
    orders = [compare(errors[name]["PGD"], reference["PGD"]) for name in others]
    gap = max(errors, key=lambda name: errors[name]["PGD"].mean - errors[name]["one step"].mean)
    sentences = [
        f"Attacked, the error of {first} is: {numbers}. Under PGD it is higher for {orders.count(1)} and lower for "
        f"{orders.count(-1)} of {len(others)}.",
        f"The largest gap between one step and PGD: {listed([gap], errors, 'one step', 'PGD')}.",
    ]
    hidden = [name for name in errors if masks(errors[name])]
    for name in hidden:
        own, other = errors[name]["PGD"].mean, errors[name]["transfer"].mean
        sentences.append(
            f"Gradient masking: {name} misreads {own:.1f} % of the images attacked with its own gradients, and "
            f"{other:.1f} % of those attacked on an ordinary network, a difference beyond chance. It hides its "
            "gradients; it does not resist."
        )
    if not hidden:
        sentences.append(
            "No gradient masking was found: for none of them do transferred images do more harm than its own gradients."
        )
    rest = [name for name in others if name not in hidden]
    shallow = [
        name
        for name in rest
        if compare(errors[name]["one step"], reference["one step"]) < 0
        and compare(errors[name]["PGD"], reference["PGD"]) >= 0
    ]
    if shallow:
        sentences.append(
            f"Lower error than {first} after one step but not under PGD, so one step is not enough to judge: "
            f"{listed(shallow, errors, 'one step', 'PGD')}."
        )
    gained = [name for name in rest if compare(errors[name]["PGD"], reference["PGD"]) < 0]
    firm = [name for name in gained if compare(errors[name]["transfer"], reference["transfer"]) <= 0]
    if firm:
        sentences.append(
            f"Lower error than {first} under PGD, which transferred images do not contradict; more robust at this "
            f"strength of attack: {listed(firm, errors, 'PGD', 'transfer')}."
        )
    if doubtful := [name for name in gained if name not in firm]:
        sentences.append(
            f"Lower error than {first} under PGD but a higher one on transferred images, so not counted as robust: "
            f"{listed(doubtful, errors, 'PGD', 'transfer')}."
        )
    return sentences


def draw_errors(path: Path, errors: Errors, title: str) -> Path:
    """A panel per condition, a row per variant, with intervals."""
    names = list(errors)
    height = 0.3 * len(names) + 1.9
    fig = figure(14.0, height)
    for n, key in enumerate(CONDITIONS):
        ax = fig.add_axes((0.13 + 0.145 * n, 0.7 / height, 0.13, 1 - 1.6 / height))
        colour, marker = series_style(n)
        for y, name in enumerate(names):
            measure = errors[name][key]
            low, high = measure.interval or (measure.mean, measure.mean)
            ends = [[max(0.0, measure.mean - low)], [max(0.0, high - measure.mean)]]
            ax.errorbar([measure.mean], [y], xerr=ends, color=colour, marker=marker, markersize=6, capsize=2)
        ax.axvline(errors[names[0]][key].mean, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        tidy(ax, f"{key}, error %", "")
        ax.grid(axis="x", color=FAINT, linewidth=0.8)
        ax.set_xlim(left=0)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_yticks(range(len(names)), names if n == 0 else [""] * len(names), fontsize=TICK, color=INK)
        if n == 0:
            heading(ax, title, f"Scales differ. Dashed: {names[0]}.")
    return save(fig, path, plot=True)


def draw_images(lab: Lab, batch: tuple[Tensor, Tensor]) -> Path:
    images, labels = batch
    source = lab.train(surrogate(lab, lab.seeds[0])).model
    device = device_of(source)
    attacked = _attacks.attack(source, images.to(device), labels.to(device), EPS, steps(lab)).cpu()
    kinds = {
        "clean": images,
        f"contrast {CONTRAST:g}": _attacks.lower_contrast(images, CONTRAST),
        f"noise {NOISE:g}": _attacks.add_noise(images, NOISE),
        f"PGD {EPS:g}": attacked,
    }
    rows = [Row([Cell(image.numpy()) for image in torch.unbind(many)], name) for name, many in kinds.items()]
    path = lab.figure(f"{lab.name}-images.png")
    return picture_rows(path, rows, "What the networks have to read", "Digits of the test set.", size=84)
