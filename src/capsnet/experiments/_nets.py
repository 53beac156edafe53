"""The networks that experiments compare, trained alike: a CapsNet and a CNN of similar size, at each budget.

- smoke: tiny ones on a few hundred images, to see that everything runs. Their numbers have no meaning.
- quick: `capsnet-small` and `cnn-small`, minutes on two cores, one-cycle schedule.
- shipped: the bundled networks; nothing is trained.
- day: capsules with dynamic routing on a residual stem, and the plain network on the same stem with as many parameters,
  trained alike and long enough to be good: hours on two cores. Overlapping digits need millions of pairs: for them both
  start from the stem of the bundled plain network (``trained_stem``), where there is one for these pairs.
- paper: `capsnet` and the paper's baselines with the paper's schedule: hours on a GPU, days on two cores.
"""

import bisect
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from capsnet import data
from capsnet.data import Augment
from capsnet.experiments.lab import Lab, bundled_for
from capsnet.inference import pick_device
from capsnet.training import Objective, TrainConfig, build, choose_precision, first, loss_inputs
from capsnet.weights import read_metadata, resolve

TINY = {"conv_channels": 16, "primary_types": 4, "decoder_widths": [32, 64]}
TINY_CNN = {"channels": [8, 16, 16], "widths": [32]}
GRID = {"routing": "dynamic", "primary": "grid", "primary_dim": 16, "squash": "paper"}  # capsules at each position
PAIRS_CNN = {"channels": [512, 256], "kernel_sizes": [9, 5], "widths": [1024], "pool": True}  # the paper's, MultiMNIST


def usual(spec: str = "mnist") -> TrainConfig:
    """The setting that budgets start from: minutes of training for small networks."""
    several = data.info(spec).objects != 1
    return TrainConfig(
        recipe="experiment",
        data=spec,
        batch_size=128,
        lr=2e-3,
        schedule="one-cycle",
        augment=Augment() if several or not spec.startswith("mnist") else Augment(shift=1),
        epochs=2,
        tensorboard=False,
    )


def setting(lab: Lab, spec: str = "mnist") -> TrainConfig:
    """How long and on what: the same for both networks."""
    base, several = usual(spec), data.info(spec).objects != 1
    if lab.budget == "smoke":
        return dataclasses.replace(base, epochs=1, batch_size=50, limit=400, eval_limit=300)
    if lab.budget == "quick":
        # pairs cost more (a larger canvas) and are harder: fewer of them, in smaller and hence more steps
        return dataclasses.replace(base, limit=40_000, batch_size=50, lr=1e-3) if several else base
    shift = 2 if spec.startswith("mnist") else 0
    if lab.budget == "day":
        strong = {"optimizer": "adamw", "lr": 3e-3, "ema": 0.999, "precision": "auto"}
        if stem := trained_stem(spec):
            return dataclasses.replace(base, **strong | {"lr": 1e-3}, epochs=2, init=stem)
        return dataclasses.replace(base, **strong, epochs=10 if several else 6, augment=Augment(shift=shift))
    return dataclasses.replace(base, epochs=200, lr=1e-3, schedule="paper", augment=Augment(shift=shift))


def trained_stem(spec: str) -> str | None:
    """The bundled plain network for these pictures of several objects, from whose stem others start.

    Its stem was trained without capsules, so it favours no routing, and the plain network rather than capsules.
    """
    if data.info(spec).objects == 1:
        return None
    try:
        name = bundled_for(TrainConfig(model="residual-cnn", data=spec))
    except ValueError:
        return None
    return name if read_metadata(resolve(name))["config"]["name"] == "residual-cnn" else None


def seen(configs: Sequence[TrainConfig]) -> list[str]:
    """What starting from trained stems means for the numbers."""
    stems = sorted({config.init for config in configs if config.init and config.init == trained_stem(config.data)})
    if not stems:
        return []
    names = " and ".join(f"`{stem}`" for stem in stems)
    return [
        f"The stems of {names} were trained on all 60,000 digits, those of the validation pairs among them: errors on "
        "validation pairs are too low, for all networks alike. They have not seen the digits of the test pairs. They "
        "were trained without capsules; a plain network that starts from them keeps its depthwise convolution, too."
    ]


def capsnet(lab: Lab, spec: str = "mnist", *, seed: int = 0, **changes: Any) -> TrainConfig:
    """A CapsNet; ``changes`` are settings of the configuration or options of the network."""
    name = lab.pick("capsnet", "capsnet-small", "capsnet", "residual-capsnet")
    options = lab.pick(dict(TINY), {}, {}, dict(GRID))
    return _with(setting(lab, spec), name, options, seed, changes)


def small_capsnet(spec: str = "mnist", *, seed: int = 0, **changes: Any) -> TrainConfig:
    """The CapsNet of the budget quick, for a budget whose own network lacks an option."""
    return _with(usual(spec), "capsnet-small", {}, seed, changes)


def cnn(lab: Lab, spec: str = "mnist", *, seed: int = 0, **changes: Any) -> TrainConfig:
    """The CNN to compare with: of similar size, or for the paper's budget the paper's own."""
    several = data.info(spec).objects != 1
    name = lab.pick("cnn-small", "cnn-small", "baseline-cnn", "residual-cnn")
    options: dict[str, Any] = dict(TINY_CNN) if lab.budget == "smoke" else {}
    if lab.budget == "day":
        options = {"widths": [twin_width(spec)] * 2}
    if several:
        options = options | (PAIRS_CNN if lab.budget == "paper" else {}) | {"multi_label": True}
    return _with(setting(lab, spec), name, options, seed, changes)


@functools.cache
def twin_width(spec: str, whole: bool = False) -> int:
    """The width of two linear layers with which the plain network on the residual stem has as many parameters as the
    capsules on it, without their decoder; of one layer for capsules of the ``whole`` map, the network's default."""

    def count(model: str, **options: Any) -> int:
        return parameters(TrainConfig(model=model, data=spec, model_options=options))

    wanted = count("residual-capsnet", decoder=False, **({} if whole else GRID))
    layers = 1 if whole else 2
    return bisect.bisect_left(range(8192), wanted, 1, key=lambda width: count("residual-cnn", widths=[width] * layers))


def _with(base: TrainConfig, model: str, options: dict[str, Any], seed: int, changes: dict[str, Any]) -> TrainConfig:
    fields = {field.name for field in dataclasses.fields(TrainConfig)}
    settings = {key: value for key, value in changes.items() if key in fields}
    options = {key: value for key, value in (options | changes).items() if key not in settings}
    return dataclasses.replace(base, recipe=model, model=model, model_options=options, seed=seed, **settings)


def training_step(config: TrainConfig, device: str = "cpu") -> Callable[[], int]:
    """A function that computes a batch forward and backward as training does, in its precision, and returns the batch's
    size, for measuring time or memory."""
    training = first(data.load(config.data, config.train_on), config.limit)
    model = build(config, training).to(pick_device(device))
    precision = choose_precision(config, model, training)[0] if config.precision == "auto" else config.precision
    objective = Objective(model, precision)
    batch = training.batch(range(min(config.batch_size, len(training))))
    inputs = loss_inputs(batch, model)

    def step() -> int:
        objective(*inputs, 0)[0].backward()
        return len(batch.images)

    return step


def parameters(config: TrainConfig) -> int:
    """The number of parameters of a configuration's network."""
    return build(config, data.load(config.data, "test")).num_parameters()


def sizes(best: TrainConfig, cnn: TrainConfig) -> tuple[dict[str, int], str]:
    """Parameters of a CapsNet with and without its decoder, which serves training only, and of a CNN; and in words."""
    named = {"capsnet": best, "bare": dataclasses.replace(best, decoder=False), "cnn": cnn}
    count = {name: parameters(config) for name, config in named.items()}
    words = f"CapsNet {count['capsnet']:,} parameters ({count['bare']:,} without its decoder), CNN {count['cnn']:,}"
    return count, words


def differences(lab: Lab, configs: Sequence[TrainConfig]) -> list[str]:
    """What every report says about its budget, from the configurations that were trained."""
    if lab.budget == "smoke":
        return ["A smoke run: tiny networks on a few hundred images, to see that it runs. The numbers have no meaning."]
    if lab.budget == "shipped":
        names = " and ".join(f"`{name}`" for name in sorted(set(map(bundled_for, configs))))
        return [f"The networks are the bundled {names}: docs/weights.md describes them."]
    small = "small networks (the paper's has 256 convolution channels and 32 primary types)"
    if lab.budget == "quick":
        network = f"Quick budget: {small}, minutes of training instead of hundreds of epochs."
    elif lab.budget == "day" and configs and all(config.model.endswith("-small") for config in configs):
        network = f"Budget of a day: {small}."
    elif lab.budget == "day":
        network = "Budget of a day: all networks have the same residual stem, which the paper's have not."
    else:
        network = "The authors trained for 300,000 steps, about 640 passes over the data."
    return [network, *sorted({f"Trained: {training(config)}." for config in configs}), *seen(configs)]


def training(config: TrainConfig) -> str:
    """One training in words: ``capsnet-small`` on mnist, 2 epochs of 50,000, batches of 128, one-cycle schedule."""
    whole = len(data.load(config.data, config.train_on))
    size = min(config.limit or whole, whole)
    width = config.model_options.get("conv_channels")
    changed = f" with {width} convolution channels" if width else ""
    stop = f", stopped at {100 * config.stop_at:g} % validation accuracy" if config.stop_at else ""
    start = f", starting from the stem of `{config.init}`" if config.init else ""
    passes = "1 epoch" if config.epochs == 1 else f"{config.epochs} epochs"
    passes = f"at most {passes}" if config.stop_at else passes
    return (
        f"`{config.model}`{changed} on `{config.data}`, {passes} of {size:,}, batches of {config.batch_size}, "
        f"{config.schedule} schedule{stop}{start}"
    )
