"""The command line: ``capsnet VERB``. Most verbs call the function of the same name.

Bad input ends in one sentence and exit code 2. ``CAPSNET_DEBUG=1`` shows the traceback behind it.
"""

import inspect
import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Union

from tyro.conf import subcommand

from capsnet._limits import is_out_of_memory
from capsnet._names import check_name
from capsnet._plugins import load_plugins
from capsnet._version import __version__
from capsnet.cli._experiments import Compare, Reproduce
from capsnet.cli._listing import List
from capsnet.cli._models import Ensemble, Export, Info, Push
from capsnet.cli._parse import parse
from capsnet.cli._talk import complain, hint, one_line, say, write_in_any_locale
from capsnet.cli._training import Search, Train, recipe_commands
from capsnet.cli._using import Evaluate, Explain, Explore, Predict

ABOUT = """Capsule networks: train, test and use them.

More about a verb: `capsnet VERB --help` or `capsnet help VERB`. The version: `capsnet -V`.

First steps: `capsnet train demo`"""

SHELLS = ("bash", "zsh", "fish")  # that tyro writes completions for
VERBS: dict[str, tuple[type, str]] = {
    "train": (Train, "train a model by a recipe"),
    "evaluate": (Evaluate, "test a trained model on a data set"),
    "predict": (Predict, "say what is on a picture"),
    "explain": (Explain, "show which places of a picture speak for a class"),
    "info": (Info, "describe a trained model or a network"),
    "list": (List, "list models, weights, routings, datasets, recipes, experiments or spaces"),
    "explore": (Explore, "draw a digit and change the numbers of its capsules, in the browser"),
    "compare": (Compare, "compare routings on the same network and data"),
    "reproduce": (Reproduce, "reproduce a table or figure of the literature"),
    "search": (Search, "search for better settings of a recipe"),
    "ensemble": (Ensemble, "make one model of several trained ones"),
    "export": (Export, "write a trained model as one ONNX file"),
    "push": (Push, "upload a trained model to the Hugging Face hub"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb; exit with 0 if it worked, 2 on bad input, 130 if stopped by hand."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    write_in_any_locale()
    configure_logging()
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
    except (MemoryError, RecursionError, RuntimeError) as error:
        if os.environ.get("CAPSNET_DEBUG") or not (is_out_of_memory(error) or isinstance(error, RecursionError)):
            raise
        full = "there is not enough memory for this: choose a smaller network, image size or batch size"
        complain(process_name() + ("the input is nested too deeply" if isinstance(error, RecursionError) else full), 2)


def configure_logging() -> None:
    """Progress to standard output, warnings to standard error; Pillow's own messages are in our errors."""
    results, problems = logging.StreamHandler(sys.stdout), logging.StreamHandler(sys.stderr)
    results.addFilter(lambda record: record.levelno < logging.WARNING)
    problems.setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[results, problems])
    logging.getLogger("PIL").setLevel(logging.CRITICAL)


def run(arguments: Sequence[str]) -> None:
    words = [re.sub(r"^--output(?=$|=)", "--out", word) for word in arguments]
    if not words or words[0] == "help":
        words = [*words[1:], "--help"]
    if words == ["train"]:
        words.append("--help")
    if words[0] in ("-V", "--version"):
        return say(f"capsnet {__version__}")
    if not words[0].startswith("-"):
        check_name("verb", words[0], VERBS)
    verb = parse(*subcommands(words), ABOUT)
    load_plugins()
    if words[1:] != arguments[1:]:
        hint("--output is now --out; the old spelling works until the next version")
    return verb.run(arguments)


def subcommands(words: list[str]) -> tuple[list[Any], list[str]]:
    """The verbs for tyro, and the words for it. A verb's own help is its docstring, the list of verbs has summaries."""
    completion = words[0].startswith("--tyro-")
    if completion:
        check_name("shell", " ".join(words[1:2]), SHELLS)
    commands: list[Any] = []
    for name, (verb, summary) in VERBS.items():
        about = inspect.getdoc(verb) if words[0] == name else summary
        if verb is Train and (completion or words[0] == name):
            load_plugins()  # they may register recipes
            recipes, words = recipe_commands(words)
            verb = Union[tuple(recipes)]  # noqa: UP007 - made at run time
        commands.append(Annotated[verb, subcommand(name, description=about)])
    return commands, words


def process_name() -> str:
    """Which of several processes complains, under torchrun."""
    if "WORLD_SIZE" not in os.environ:
        return ""
    from capsnet.training import distributed

    return distributed.rank_prefix()
