"""The verbs that train by a recipe: train and search."""

import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import tyro

import capsnet
from capsnet import recipes
from capsnet._limits import DEEPEST
from capsnet._names import shown
from capsnet.cli._parse import Device
from capsnet.cli._talk import complain, print_columns, print_table, program, relative, say

if TYPE_CHECKING:
    from capsnet.training import Result, TrainConfig

FILE = "FILE.json"  # the name of the subcommand for the configuration of an earlier run


@dataclasses.dataclass(kw_only=True)
class Train:
    """Train a model by a recipe; any part of the recipe can be changed by a flag.

    RECIPE is a recipe's name or the config.json of an earlier run; `capsnet train RECIPE --help` shows all flags with
    the recipe's values. The run leaves a folder with configuration, metrics, environment, weights, figures and a
    README. Ctrl-C stops after the current step and says how to continue.
    """

    out: str | None = None
    """Folder of the run; default: runs/RECIPE/TIME-SEED."""
    resume: Annotated[str, tyro.conf.arg(metavar="auto|FOLDER")] = "no"
    """`auto` continues the newest unfinished run of an equal configuration, or starts one; or a run folder."""
    device: Device = "auto"
    threads: int | None = None
    """CPU threads; default: PyTorch's choice."""
    compile: bool = False
    """Compile the network with torch.compile: a minute at the start, faster steps after it."""
    folds: int | None = None
    """Cross-validate your own images in this many parts, e.g. 5: each image is tested once."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A further option of the network (see `capsnet info NETWORK`); may be repeated. The value is JSON or a text, a dot
    reaches into options of options: `--set pose_dim=8 --set routing_options.bias=true`."""
    config: Annotated[Any, tyro.conf.arg(name="")] = None  # its fields are flags of the verb

    def run(self, arguments: Sequence[str]) -> None:
        from capsnet.training import Interrupted, distributed

        capsnet.keep_freed_memory()
        config: TrainConfig = self.config
        if self.set:
            config = dataclasses.replace(config, model_options=with_options(config.model_options, self.set))
        options: dict[str, Any] = {key: getattr(self, key) for key in ("out", "resume", "device", "threads", "compile")}
        train = capsnet.train if self.folds is None else partial(capsnet.cross_validate, folds=self.folds)
        try:
            result = train(config, **options)
        except Interrupted as stop:
            if not distributed.is_main():
                sys.exit(130)
            folder = "auto" if self.folds is not None else str(stop.folder)
            complain(f"stopped; continue with\n  {resume_command(arguments, folder)}", 130)
        if not distributed.is_main():
            return
        if self.folds is None:
            report(result, config)  # type: ignore[arg-type]
        else:
            say(f"\ncross-validation  {result}\neverything is in  {relative(result.folder)}")


def report(result: "Result", config: "TrainConfig") -> None:
    """What came out of a run, where it is, and what can be done with it."""
    folder, command = relative(result.folder), program("capsnet")
    say(f"\ntest accuracy  {result.test.accuracy}")
    say(f"everything is in  {folder}  (start with README.md and figures/)\n\ntry next:")
    if result.model.takes_texts:
        say(f"  {command} predict TEXT --model {folder}       # any text, in quotes")
    else:
        say(f"  {command} predict IMAGE --model {folder}      # any picture")
    say(f"  {command} evaluate {folder}                   # precision, recall and AUC per class")
    if config.tensorboard and find_spec("tensorboard"):
        say(f"  {program('tensorboard')} --logdir {folder}               # curves, reconstructions, the graph")


def recipe_commands(words: list[str]) -> tuple[list[Any], list[str]]:
    """The recipes as subcommands of ``train``, and the words with the name of one in place of a file's.

    The recipe that the words name gets its values as defaults, or all of them if the words do not begin with ``train``.
    """
    name = words[1] if words[0] == "train" and len(words) > 1 and not words[1].startswith("-") else None
    configs = {} if words[0] == "train" else {known: recipes.get(known) for known in recipes.list_recipes()}
    if name is not None and name.endswith(".json"):
        configs[FILE], words = capsnet.read_config(name), [words[0], FILE, *words[2:]]
    elif name is not None:
        configs[name] = recipes.get(name)
    about = {known: recipes.describe(known) for known in recipes.list_recipes()}
    about[FILE] = "The configuration of an earlier run."
    return [
        Annotated[Train, tyro.conf.subcommand(known, description=text, default=Train(config=configs.get(known)))]
        for known, text in about.items()
    ], words


def resume_command(arguments: Sequence[str], folder: str) -> str:
    """The command that was given, with --resume FOLDER (or auto) in place of its own --resume and --out."""
    replaced = ("--resume",) if folder == "auto" else ("--resume", "--out", "-o", "--output")
    words: list[str] = []
    remaining = iter(arguments)
    for word in remaining:
        flag, equals, _ = word.partition("=")
        if flag not in replaced:
            words.append(word)
        elif not equals:
            next(remaining, None)
    return f"{program('capsnet')} " + shlex.join([*words, "--resume", folder])


def with_options(options: dict[str, Any], pairs: Sequence[str]) -> dict[str, Any]:
    """The options with those of KEY=VALUE set, e.g. ``routing_options.bias=true``; what is not JSON is a text."""
    changed = json.loads(json.dumps(options))
    for pair in pairs:
        key, equals, text = pair.partition("=")
        *path, last = key.replace("-", "_").split(".")
        if not equals or not all([*path, last]):
            raise ValueError(f"--set takes KEY=VALUE, got {shown(pair)}")
        if len(path) > DEEPEST:
            raise ValueError(f"--set {shown(key)}: options are at most {DEEPEST} deep")
        inside = changed
        for part in path:
            if inside.get(part) is None:
                inside[part] = {}
            inside = inside[part]
            if not isinstance(inside, dict):
                raise ValueError(f"--set {key}: {part} has no options of its own, its value is {inside!r}")
        try:
            inside[last] = json.loads(text)
        except RecursionError:
            raise ValueError(f"--set {key[:60]}: the value is nested too deeply") from None
        except ValueError:
            inside[last] = text
    return changed


@dataclasses.dataclass(kw_only=True)
class Search:
    """Search for better settings of a recipe, judged by the validation split; compare the best with the recipe.

    Spaces say what can be searched: see `capsnet search --spaces`. Stopped or killed at any moment, the same command
    continues; started several times, on one machine or on many with one storage, it shares the work.
    """

    recipe: tyro.conf.Positional[str | None] = None
    """A recipe (see `capsnet list recipes`) or the config.json of a run."""
    spaces: bool = False
    """List the spaces, and end."""
    space: str | None = None
    """What to change (required)."""
    trials: int | None = None
    """How many finished trials the whole study shall have, pruned ones included (required)."""
    storage: str | None = None
    """sqlite:///PATH, journal:PATH (a network disk) or postgresql://USER@HOST/DATABASE; default: OUT/study.db."""
    study: str | None = None
    """The study's name in the storage; default: RECIPE-SPACE."""
    timeout: float | None = None
    """Seconds after which no further trial begins."""
    workers: int = 1
    """Processes on this machine."""
    epochs: int | None = None
    """Epochs of each trial; default: the recipe's."""
    limit: int | None = None
    """Training images of each trial; default: the recipe's."""
    seeds: int = 3
    """How often the best settings and the recipe are trained again, with new seeds, to compare them; 0: not at all."""
    out: str | None = None
    """Folder of everything; default: runs/RECIPE/search-SPACE."""
    device: Device = "auto"

    def run(self, arguments: Sequence[str]) -> None:
        from capsnet import search

        if self.spaces or len(arguments) == 1:
            say("usage: capsnet search RECIPE --space SPACE --trials N [flags]\n\nspaces:")
            return print_table(search.list_spaces(), search.describe)
        for flag, value in (("RECIPE", self.recipe), ("--space SPACE", self.space), ("--trials N", self.trials)):
            if value is None:
                raise ValueError(f"`capsnet search` needs {flag}: see `capsnet search --help`")
        return self.search(arguments)

    def search(self, arguments: Sequence[str]) -> None:
        from capsnet import search
        from capsnet.training import Interrupted

        capsnet.keep_freed_memory()
        options = {key: value for key, value in vars(self).items() if key not in ("recipe", "spaces")}
        recipe = str(self.recipe)
        try:
            best = search.search(capsnet.read_config(recipe) if recipe.endswith(".json") else recipe, **options)
        except (Interrupted, KeyboardInterrupt):
            again = f"{program('capsnet')} {shlex.join(arguments)}"
            complain(f"stopped; finished trials are kept, continue with\n  {again}", 130)
        say("")
        print_columns(best.table)
        say(f"\nbest: trial {best.trial}, validation accuracy {best.score:.2%} (the number it was chosen by)")
        if best.finished < best.wanted:
            say(f"time was over after {best.finished} of {best.wanted} trials; the same command continues")
        if best.verdict is not None:
            say(str(best.verdict))
        elif self.seeds and best.own:
            say("The recipe's own values were the best: there is nothing to compare.")
        say(f"everything is in  {relative(best.folder)}  (start with README.md)\n\ntry next:")
        say(f"  {program('capsnet')} train {relative(best.folder / 'best.json')}       # test it, once")
