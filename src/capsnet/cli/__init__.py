"""The command line: ``capsnet VERB``. Most verbs call the function of the same name.

Bad input ends in one sentence and exit code 2. ``CAPSNET_DEBUG=1`` shows the traceback behind it.
"""

import inspect
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

from capsnet._names import check_name
from capsnet._plugins import load_plugins
from capsnet._version import __version__
from capsnet.cli._experiments import Compare, Reproduce
from capsnet.cli._listing import List
from capsnet.cli._models import Ensemble, Export, Info
from capsnet.cli._parse import Leaf, choice, command, modern, parse
from capsnet.cli._talk import complain, hint, one_line, say
from capsnet.cli._training import Search, Train, recipe_commands
from capsnet.cli._using import Evaluate, Explore, Predict

ABOUT = """Capsule networks: train, test and use them.

More about a verb: `capsnet VERB --help` or `capsnet help VERB`. The version: `capsnet -V`.

First steps: `capsnet train demo`"""

SHELLS = ("bash", "zsh", "fish")  # that tyro writes completions for
VERBS: dict[str, tuple[type, str]] = {
    "train": (Train, "train a model by a recipe"),
    "evaluate": (Evaluate, "test a trained model on a data set"),
    "predict": (Predict, "say what is on a picture"),
    "info": (Info, "describe a trained model or a network"),
    "list": (List, "list models, weights, routings, datasets, recipes, experiments or spaces"),
    "explore": (Explore, "draw a digit and change the numbers of its capsules, in the browser"),
    "compare": (Compare, "compare routings on the same network and data"),
    "reproduce": (Reproduce, "reproduce a table or figure of the literature"),
    "search": (Search, "search for better settings of a recipe"),
    "ensemble": (Ensemble, "make one model of several trained ones"),
    "export": (Export, "write a trained model as one ONNX file"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb; exit with 0 if it worked, 2 on bad input, 130 if stopped by hand."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    try:
        run(arguments)
    except KeyboardInterrupt:
        complain("stopped", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `capsnet list models | head -1` is no error
    except (ValueError, OSError) as error:
        if os.environ.get("CAPSNET_DEBUG"):
            raise
        complain(process_name() + one_line(error), 2)


def run(arguments: Sequence[str]) -> None:
    words, old = modern(arguments)
    if not words or words[0] == "help":
        words = [*words[1:], "--help"]
    if words == ["train"]:
        words.append("--help")
    if words[0] in ("-V", "--version"):
        return say(f"capsnet {__version__}")
    if not words[0].startswith("-"):
        check_name("verb", words[0], VERBS)
    commands, words = subcommands(words)
    verb = parse(commands, words, ABOUT)
    load_plugins()
    for flag in old:
        hint(f"{flag} is now {modern([flag])[0][0]}; the old spelling works until the next version")
    return verb.run(arguments)


def subcommands(words: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """The verbs for tyro, and the words for it. Only the verb that is asked for has flags, or all for completion."""
    completion = words[0].startswith("--tyro-")
    if completion:
        check_name("shell", " ".join(words[1:2]), SHELLS)
    commands = []
    for name, (verb, summary) in VERBS.items():
        if words[0] != name and not completion:
            commands.append(command(name, Leaf, summary))
        elif verb is Train:
            load_plugins()  # they may register recipes
            recipes, words = recipe_commands(words, everything=completion)
            commands.append(command(name, recipes, inspect.getdoc(verb)))
        else:
            commands.append(command(name, verb))
    return choice(commands), words


def process_name() -> str:
    """Which of several processes complains, under torchrun."""
    if "WORLD_SIZE" not in os.environ:
        return ""
    from capsnet.training import distributed

    return distributed.rank_prefix()
