"""The named spaces: what may be changed of a recipe, and within which bounds.

A space is a function that suggests values by name. The name says what is set: a field of ``TrainConfig`` (``lr``), a
part of one (``augment.rotate``, ``routing_options.inverse_temperature``) or an option of the network (``pose_dim``).
Bounds lie around the recipe's own values, so these are always among the candidates. Only settings that the recipe's
network has are suggested: a convolutional network has no routing to choose.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from capsnet import routing as routings
from capsnet._names import check_name
from capsnet.models import model_options
from capsnet.search._storage import need_optuna
from capsnet.training import TrainConfig, check_config

if TYPE_CHECKING:
    from optuna import Trial

Choice = str | int | float | bool | None
Values = dict[str, Any]  # the recipe's own values, by the names that spaces use


def current_values(config: TrainConfig) -> Values:
    """What a recipe has now: the options of its network, the fields it sets, and the parts of both."""
    values = model_options(config.model) | config.model_options
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    values |= {name: value for name, value in fields.items() if value is not None}
    values |= {f"augment.{name}": value for name, value in dataclasses.asdict(config.augment).items()}
    if "routing" in values:
        options = routings.get(values["routing"], **(values["routing_options"] or {})).options()
        values |= {f"routing_options.{name}": value for name, value in options.items()}
        if values["iterations"] is None:
            values["iterations"] = options.get("iterations")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def rate(trial: "Trial", current: Values) -> None:
    """learning rate (a factor of 10 either way), schedule, batch size (half to double)"""
    lr = current["lr"]
    trial.suggest_float("lr", lr / 10, max(lr, min(10 * lr, 1.0)), log=True)
    trial.suggest_categorical("schedule", list(get_args(get_type_hints(TrainConfig)["schedule"])))
    trial.suggest_categorical("batch_size", [n for n in halves(current["batch_size"]) if n >= current["accumulate"]])


def routing(trial: "Trial", current: Values) -> None:
    """which routing; its iterations (1 to 5) and its inverse temperature, if it has them"""
    if "routing" not in current:
        return
    chosen = trial.suggest_categorical("routing", routings.list_routings())
    options = routings.option_names(chosen)
    if "iterations" in options:
        trial.suggest_int("iterations", 1, max(5, current["iterations"] or 1))
    if "inverse_temperature" in options:
        name = "routing_options.inverse_temperature"
        now = current.get(name, routings.get(chosen).options()["inverse_temperature"])
        trial.suggest_float(name, min(0.001, now), max(0.3, now), log=True)


def loss(trial: "Trial", current: Values) -> None:
    """whether to reconstruct, how much that weighs (a factor of 20 either way), how large the decoder is"""
    if "decoder" not in current or not trial.suggest_categorical("decoder", [True, False]):
        return
    if weight := current["reconstruction_weight"]:
        trial.suggest_float("reconstruction_weight", weight / 20, weight * 20, log=True)
    else:
        trial.suggest_float("reconstruction_weight", 0.0, 0.01)
    for name in ("decoder_widths", "decoder_width"):
        if name in current:
            trial.suggest_categorical(name, halves(current[name]))


def squash(trial: "Trial", current: Values) -> None:
    """which squash, and the factor before it in the primary capsules"""
    if "squash" in current:
        kinds = ["exp", "power:3", "unit"] if current["squash"] is None else ["paper", "exp", "power:3", "unit"]
        trial.suggest_categorical("squash", list(dict.fromkeys([current["squash"], *kinds])))
    if "primary_scale" in current:
        now = current["primary_scale"]
        trial.suggest_float("primary_scale", min(0.03, now), max(3.0, now), log=True)


def capsules(trial: "Trial", current: Values) -> None:
    """how many types of capsules there are and how many numbers a capsule has"""
    if "primary_types" in current:
        trial.suggest_categorical("primary_types", halves(current["primary_types"]))
    if "primary_dim" in current:
        channels = current.get("channels")  # where capsules are cut from the channels of the last convolution
        fits = [d for d in halves(current["primary_dim"]) if not isinstance(channels, tuple) or channels[-1] % d == 0]
        trial.suggest_categorical("primary_dim", fits)
    if "pose_dim" in current:
        trial.suggest_categorical("pose_dim", halves(current["pose_dim"]))
    if "widths" in current and "routing" in current:  # channels of the convolution, then types of each capsule layer
        channels, *types = current["widths"]
        trial.suggest_categorical("widths", [f"{channels}-{scaled}" for scaled in halves(tuple(types))])


def augment(trial: "Trial", current: Values) -> None:
    """how far training images are moved, turned, scaled, sheared, bent, lit, erased; mirrored if the recipe does"""
    if "vocabulary" in current:
        return  # texts are not augmented
    trial.suggest_int("augment.shift", 0, max(4, current["augment.shift"]))
    trial.suggest_int("augment.erase", 0, max(8, current["augment.erase"]))
    for name, high in (("rotate", 25.0), ("scale", 0.2), ("shear", 0.25), ("elastic", 2.0), ("brightness", 0.3)):
        trial.suggest_float(f"augment.{name}", 0.0, max(high, current[f"augment.{name}"]))
    if current["augment.flip"]:
        trial.suggest_categorical("augment.flip", [True, False])


def everything(trial: "Trial", current: Values) -> None:
    """all of these at once: needs many trials"""
    for space in SPACES.values():
        if space is not everything:
            space(trial, current)


SPACES: dict[str, Callable[[Any, Values], None]] = {
    space.__name__: space for space in (rate, routing, loss, squash, capsules, augment)
} | {"all": everything}


def list_spaces() -> list[str]:
    """The names of the spaces."""
    return list(SPACES)


def describe(name: str) -> str:
    """One line about a space."""
    return (SPACES[check_name("space", name, SPACES)].__doc__ or "").strip().partition("\n")[0]


def default_params(space: str, config: TrainConfig) -> dict[str, Choice]:
    """The recipe's own values of a space's settings; a recipe that the space cannot change is refused."""
    check_name("space", space, SPACES)
    current = current_values(config)
    words = {name: dashed(value) if isinstance(value, tuple) else value for name, value in current.items()}

    def own_values(space: str) -> dict[str, Choice]:
        trial = need_optuna().trial.FixedTrial(words)
        SPACES[space](trial, current)
        return trial.params

    if not (params := own_values(space)):
        usable = ", ".join(filter(own_values, SPACES))
        raise ValueError(f"the space {space!r} changes nothing of {config.model}: use one of {usable}")
    return params


def change(config: TrainConfig, params: dict[str, Choice]) -> TrainConfig:
    """The configuration with the values of one trial.

    Another routing takes over only those of the recipe's routing options that it has.
    """
    values, known = dataclasses.asdict(config), model_options(config.model)
    options = values["model_options"]
    if "routing" in params and params["routing"] != current_values(config)["routing"]:
        values["iterations"], names = None, routings.option_names(str(params["routing"]))
        options.pop("iterations", None)
        before = options.pop("routing_options", None) or {}
        if remaining := {key: value for key, value in before.items() if key in names}:
            options["routing_options"] = remaining
    for name, value in params.items():
        group, _, part = name.partition(".")
        if group == "augment":
            values[group][part] = value
        elif group == "routing_options":
            options[group] = (options.get(group) or {}) | {part: value}
        elif name in values:
            values[name] = value
        else:
            several = isinstance(known[check_name(f"option of {config.model}", name, known)], tuple)
            options[name] = [int(word) for word in str(value).split("-")] if several else value
    return check_config(values)


def halves(value: Any) -> list[Any]:
    """Half, the same and double of a number, or of all numbers of a tuple (written as "256-512")."""
    if isinstance(value, tuple):
        return list(dict.fromkeys(dashed([max(1, round(n * factor)) for n in value]) for factor in (0.5, 1, 2)))
    return sorted({max(1, value // 2), value, value * 2})


def dashed(widths: Any) -> str:
    """Widths as one word, which a storage can hold."""
    return "-".join(map(str, widths))
