"""The named spaces: what may be changed of a recipe, and within which bounds.

A space is a function that suggests values by name. A name says what it sets: a field of ``TrainConfig`` (``lr``), a
part of one (``augment.rotate``, ``routing_options.inverse_temperature``) or an option of the network (``pose_dim``).
Bounds lie around the recipe's own values, so these are always among the candidates, and only what the recipe's network
really has is suggested: a convolutional network has no routing to choose.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from capsnet import routing as routings
from capsnet._names import check_name
from capsnet.models import model_options
from capsnet.training import TrainConfig

Choice = str | int | float | bool | None
CHOSEN = ("routing", "iterations", "decoder")  # options of a network that TrainConfig has a field for


class Suggest(Protocol):
    """The part of ``optuna.Trial`` that spaces use."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float: ...

    def suggest_int(self, name: str, low: int, high: int) -> int: ...

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any: ...


class Own:
    """What a recipe has now, by the names that spaces use."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.options = model_options(config.model) | config.model_options

    def __contains__(self, name: str) -> bool:
        """Whether the recipe's network has this option."""
        return name in self.options

    def __getitem__(self, name: str) -> Any:
        room, _, part = name.partition(".")
        if room == "augment":
            return getattr(self.config.augment, part)
        if room == "routing_options":
            return (self.options["routing_options"] or {}).get(part, routing_default("em", part))
        value = getattr(self.config, name) if hasattr(self.config, name) else self.options[name]
        if value is None and name in CHOSEN:
            value = self.options[name]
        if value is None and name == "iterations":
            value = routing_default(self["routing"], name)
        return tuple(value) if isinstance(value, list) else value


def routing_default(name: str, option: str) -> Any:
    """What a routing does if nothing is said; None if it has no such option."""
    return getattr(routings.get(name), option, None)


def rate(trial: Suggest, own: Own) -> None:
    """learning rate (a factor of 10 either way), schedule, batch size (half to double)"""
    trial.suggest_float("lr", own["lr"] / 10, max(own["lr"], min(10 * own["lr"], 1.0)), log=True)
    trial.suggest_categorical("schedule", ["paper", "one-cycle", "constant"])
    trial.suggest_categorical("batch_size", [n for n in halves(own["batch_size"]) if n >= own["accumulate"]])


def routing(trial: Suggest, own: Own) -> None:
    """which routing, its iterations (1 to 5), the inverse temperature of EM"""
    if "routing" not in own:
        return
    chosen = trial.suggest_categorical("routing", routings.list_routings())
    if "iterations" in routings.option_names(chosen):
        trial.suggest_int("iterations", 1, max(5, own["iterations"] or 1))
    if chosen == "em":
        now = own["routing_options.inverse_temperature"]
        trial.suggest_float("routing_options.inverse_temperature", min(0.001, now), max(0.3, now), log=True)


def loss(trial: Suggest, own: Own) -> None:
    """whether to reconstruct, how much that weighs (a factor of 20 either way), how large the decoder is"""
    if "decoder" not in own or not trial.suggest_categorical("decoder", [True, False]):
        return
    if weight := own["reconstruction_weight"]:
        trial.suggest_float("reconstruction_weight", weight / 20, weight * 20, log=True)
    else:
        trial.suggest_float("reconstruction_weight", 0.0, 0.01)
    for name in ("decoder_widths", "decoder_width"):
        if name in own:
            trial.suggest_categorical(name, halves(own[name]))


def squash(trial: Suggest, own: Own) -> None:
    """which squash, and the factor before it in the primary capsules"""
    if "squash" in own:
        kinds = ["exp", "power:3", "unit"] if own["squash"] is None else ["paper", "exp", "power:3", "unit"]
        trial.suggest_categorical("squash", list(dict.fromkeys([own["squash"], *kinds])))
    if "primary_scale" in own:
        now = own["primary_scale"]
        trial.suggest_float("primary_scale", min(0.03, now), max(3.0, now), log=True)


def capsules(trial: Suggest, own: Own) -> None:
    """how many types of capsules there are and how many numbers a capsule has"""
    if "primary_types" in own:
        trial.suggest_categorical("primary_types", halves(own["primary_types"]))
    if "primary_dim" in own:
        fits = [d for d in halves(own["primary_dim"]) if not isinstance(own.options.get("channels"), tuple | list)
                or own["channels"][-1] % d == 0]  # fmt: skip
        trial.suggest_categorical("primary_dim", fits)
    if "pose_dim" in own:
        trial.suggest_categorical("pose_dim", halves(own["pose_dim"]))
    if "widths" in own and "margin_steps" in own:  # matrix capsules: channels of the convolution, then types
        channels, *types = own["widths"]
        scaled = [(channels, *(max(1, round(n * factor)) for n in types)) for factor in (0.5, 1, 2)]
        trial.suggest_categorical("widths", [dashed(widths) for widths in dict.fromkeys(scaled)])


def augment(trial: Suggest, own: Own) -> None:
    """how far training images are moved, turned, scaled, sheared, bent, lit; mirrored only if the recipe does"""
    if "vocabulary" in own:
        return  # words are not bent
    trial.suggest_int("augment.shift", 0, max(4, own["augment.shift"]))
    for name, most in (("rotate", 25.0), ("scale", 0.2), ("shear", 0.25), ("elastic", 2.0), ("brightness", 0.3)):
        trial.suggest_float(f"augment.{name}", 0.0, max(most, own[f"augment.{name}"]))
    if own["augment.flip"]:
        trial.suggest_categorical("augment.flip", [True, False])


def everything(trial: Suggest, own: Own) -> None:
    """all of these at once: needs many trials"""
    for name in SPACES:
        if name != "all":
            SPACES[name](trial, own)


SPACES: dict[str, Callable[[Suggest, Own], None]] = {
    "rate": rate,
    "routing": routing,
    "loss": loss,
    "squash": squash,
    "capsules": capsules,
    "augment": augment,
    "all": everything,
}


def list_spaces() -> list[str]:
    """The names of the spaces."""
    return list(SPACES)


def describe(name: str) -> str:
    """One line about a space."""
    return (SPACES[check_name("space", name, SPACES)].__doc__ or "").strip().partition("\n")[0]


class _Recorder:
    """Stands in for a trial and chooses what the recipe has anyway."""

    def __init__(self, own: Own) -> None:
        self.own = own
        self.params: dict[str, Choice] = {}

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        return self._take_between(name, low, high)

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return self._take_between(name, low, high)

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        value = self.own[name]
        value = dashed(value) if isinstance(value, tuple) else value
        assert value in choices, f"the space leaves out the recipe's own {name} = {value!r}"
        return self._take(name, value)

    def _take_between(self, name: str, low: float, high: float) -> Any:
        value = self.own[name]
        assert low <= value <= high, f"the space leaves out the recipe's own {name} = {value!r}"
        return self._take(name, value)

    def _take(self, name: str, value: Any) -> Any:
        self.params[name] = value
        return value


def own_params(space: str, config: TrainConfig) -> dict[str, Choice]:
    """The point of a space at which the recipe stands; a recipe that the space cannot change is refused."""
    check_name("space", space, SPACES)
    recorder = _Recorder(Own(config))
    SPACES[space](recorder, recorder.own)
    if not recorder.params:
        able = [name for name in SPACES if name != space and _changes(name, config)]
        raise ValueError(f"the space {space!r} changes nothing of {config.model}: use one of {', '.join(able)}")
    return recorder.params


def _changes(space: str, config: TrainConfig) -> bool:
    recorder = _Recorder(Own(config))
    SPACES[space](recorder, recorder.own)
    return bool(recorder.params)


def change(config: TrainConfig, params: dict[str, Choice]) -> TrainConfig:
    """The configuration with the values of one trial."""
    fields = {field.name for field in dataclasses.fields(TrainConfig)}
    known = model_options(config.model)
    options, changes, bent = dict(config.model_options), {}, {}
    if "routing" in params and params["routing"] != Own(config)["routing"]:
        _forget_routing(str(params["routing"]), options, changes)
    for name, value in params.items():
        room, _, part = name.partition(".")
        if room == "augment":
            bent[part] = value
        elif room == "routing_options":
            options[room] = (options.get(room) or {}) | {part: value}
        elif name in fields:
            changes[name] = value
        else:
            wide = isinstance(known[check_name(f"option of {config.model}", name, known)], tuple)
            options[name] = [int(word) for word in str(value).split("-")] if wide else value
    return dataclasses.replace(
        config, augment=dataclasses.replace(config.augment, **bent), model_options=options, **changes
    )


def _forget_routing(new: str, options: dict[str, Any], changes: dict[str, Any]) -> None:
    """Another routing does not take over what was said to the recipe's own one."""
    changes["iterations"] = None
    options.pop("iterations", None)
    kept = {k: v for k, v in (options.pop("routing_options", None) or {}).items() if k in routings.option_names(new)}
    if kept:
        options["routing_options"] = kept


def halves(value: Any) -> list[Any]:
    """Half, the same and double: of a number, or of all numbers of a tuple (told as "256-512")."""
    if isinstance(value, tuple):
        return list(dict.fromkeys(dashed([max(1, round(n * factor)) for n in value]) for factor in (0.5, 1, 2)))
    return sorted({max(1, value // 2), value, value * 2})


def dashed(widths: Any) -> str:
    """Widths as one word, which is what a storage can hold."""
    return "-".join(map(str, widths))
