"""The command line: verbs, nothing else. Each one calls the function of the same name.

Bad input ends in one sentence and exit code 2. ``CAPSNET_DEBUG=1`` shows the traceback behind it.
"""

import dataclasses
import json
import logging
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tyro

import capsnet
from capsnet import data, experiments, models, recipes, routing, search, weights
from capsnet._allocator import keep_freed_memory
from capsnet._names import check_name
from capsnet.cli._flags import (
    CompareArgs,
    EvaluateArgs,
    ExperimentArgs,
    ExploreArgs,
    ListArgs,
    ReproduceArgs,
    SearchArgs,
    TrainArgs,
)
from capsnet.cli._talk import complain, one_line, print_columns, print_table, program, say
from capsnet.cli._using import ensemble_verb, export_verb, predict_verb
from capsnet.explorer import explore
from capsnet.inference import pick_device
from capsnet.training import Interrupted, distributed


def train(arguments: Sequence[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        say("usage: capsnet train RECIPE [flags]\n")
        say("Train a model by a recipe, or by the config.json of an earlier run.")
        say("`capsnet train RECIPE --help` shows every flag and the recipe's values.\n")
        return print_table(recipes.list_recipes(), recipes.describe)
    name, *rest = arguments
    config = capsnet.read_config(name) if name.endswith(".json") else recipes.get(name)
    args = tyro.cli(TrainArgs, default=TrainArgs(config=config), args=rest, prog=f"capsnet train {name}")
    config = args.config
    if args.set:
        config = dataclasses.replace(config, model_options=config.model_options | parse_options(args.set))
    told: dict[str, Any] = {key: getattr(args, key) for key in ("out", "resume", "device", "threads", "compile")}
    try:
        if args.folds is not None:
            result = capsnet.cross_validate(config, args.folds, **told)
            if not distributed.is_main():
                return None
            return say(f"\ncross-validation  {result}\neverything is in  {shown(result.folder)}")
        result = capsnet.train(config, **told)
    except Interrupted as stop:
        if not distributed.is_main():
            sys.exit(130)
        again = "auto" if args.folds is not None else str(stop.folder)
        return complain(f"stopped; go on with\n  {resume_command(arguments, again)}", 130)
    if not distributed.is_main():
        return None
    folder = shown(result.folder)
    say(f"\ntest accuracy  {result.test.accuracy}")
    say(f"everything is in  {folder}  (start with README.md and figures/)\n")
    say("try next:")
    if result.model.takes_texts:
        say(f"  {program('capsnet')} predict TEXT --model {folder}       # any text, in quotes")
    else:
        say(f"  {program('capsnet')} predict IMAGE --model {folder}      # any picture, a photo of a pen digit too")
    say(f"  {program('capsnet')} evaluate {folder}                   # precision, recall and AUC per class")
    if config.tensorboard:
        say(f"  {program('tensorboard')} --logdir {folder}               # curves, reconstructions, the graph")
    return None


def shown(folder: Path) -> str:
    """A folder as a person would type it from here."""
    return shlex.quote(os.path.relpath(folder) if folder.resolve().is_relative_to(os.getcwd()) else str(folder))


def resume_command(arguments: Sequence[str], again: str) -> str:
    """The command that was given, with --resume FOLDER (or auto) in place of its own --resume and --out."""
    replaced = ("--resume",) if again == "auto" else ("--resume", "--out")
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        flag, equals, _ = word.partition("=")
        if flag not in replaced:
            kept.append(word)
        elif not equals:
            next(words, None)
    return f"{program('capsnet')} " + shlex.join(["train", *kept, "--resume", again])


def evaluate(arguments: Sequence[str]) -> None:
    args = tyro.cli(EvaluateArgs, args=arguments, prog="capsnet evaluate")
    model = capsnet.load(args.model)
    spec = args.data or model.card.get("data", "mnist")
    result = capsnet.evaluate(
        model,
        spec,
        split=args.split,
        batch_size=args.batch_size,
        device=pick_device(args.device),
        progress=True,
    )
    if args.json:
        return say(json.dumps({"data": spec, "split": args.split} | result.metrics))
    say(f"{args.model} on the {args.split} split of {spec}\n")
    say(f"{'class':>12}  precision   recall      AUC  examples")
    for row in result.metrics["per_class"]:
        shown = [f"{row[key]:.4f}" if row[key] is not None else "-" for key in ("precision", "recall", "auc")]
        say(f"{row['class']:>12}     {shown[0]:>6}   {shown[1]:>6}   {shown[2]:>6}  {row['support']:>8,}")
    say(f"\naccuracy  {result.accuracy}")
    return None


def search_(arguments: Sequence[str]) -> None:
    if not arguments or "--spaces" in arguments:
        say("usage: capsnet search RECIPE --space NAME --trials N [flags]\n\nspaces:")
        return print_table(search.list_spaces(), search.describe)
    args = tyro.cli(SearchArgs, args=arguments, prog="capsnet search")
    options = {key: value for key, value in vars(args).items() if key != "recipe"}
    try:
        name = args.recipe
        found = search.search(capsnet.read_config(name) if name.endswith(".json") else name, **options)
    except (Interrupted, KeyboardInterrupt):
        again = f"{program('capsnet')} {shlex.join(['search', *arguments])}"
        return complain(f"stopped; finished trials are kept, go on with\n  {again}", 130)
    say("")
    print_columns(found.table)
    say(f"\nbest: trial {found.trial}, validation accuracy {found.score:.2%} (what it was chosen by)")
    if found.finished < found.wanted:
        say(f"time was over after {found.finished} of {found.wanted} trials; the same command goes on")
    if found.verdict is not None:
        say(str(found.verdict))
    elif args.seeds and found.own:
        say("The recipe's own values were the best: there is nothing to compare.")
    say(f"everything is in  {shown(found.folder)}  (start with README.md)\n\ntry next:")
    return say(f"  {program('capsnet')} train {shown(found.folder / 'best.json')}       # test it, once")


def reproduce_(arguments: Sequence[str]) -> None:
    if not arguments or "--list" in arguments:
        return print_table(experiments.list_experiments(), experiments.describe)
    args = tyro.cli(ReproduceArgs, args=arguments, prog="capsnet reproduce")
    if args.name == "all":
        names = experiments.list_experiments(args.budget)
    else:
        names = [check_name("experiment", args.name, experiments.list_experiments())]
    for name in names:
        run_experiment(name, args)
    return None


def compare(arguments: Sequence[str]) -> None:
    args = tyro.cli(CompareArgs, args=arguments, prog="capsnet compare")
    given = {"routings": args.routings, "recipe": args.recipe}
    outcome = run_experiment("compare", args, **{key: value for key, value in given.items() if value})
    for table in outcome["tables"]:
        print_columns([table["columns"], *table["rows"]])


def run_experiment(name: str, args: ExperimentArgs, **options: Any) -> dict[str, Any]:
    """Run one, say what came out and where it is, and return it; or end, where it was stopped."""
    try:
        folder = experiments.reproduce(
            name,
            budget=args.budget,
            seeds=args.seeds,
            out=args.out,
            device=args.device,
            fresh=args.fresh,
            ask=(lambda question: say(question) is None) if args.yes else agreed,
            **options,
        )
    except Interrupted:
        complain(f"stopped; the same command{' without --fresh' * args.fresh} goes on where it was", 130)
    except experiments.Declined as no:
        complain(str(no), 1)
    outcome = json.loads((folder / f"{name}.json").read_text())
    say(f"\n{outcome['title']}")
    for sentence in outcome["findings"]:
        say(f"  - {sentence}")
    say(f"everything is in  {shown(folder)}  (open {name}.html)")
    return outcome


def agreed(question: str) -> bool:
    """Tell how long it will take and ask; where nobody can answer, the answer is no."""
    say(question)
    if not sys.stdin.isatty():
        say("start it with --yes")
        return False
    try:
        return input("start? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # Ctrl-D
        return False


def explore_(arguments: Sequence[str]) -> None:
    args = tyro.cli(ExploreArgs, args=arguments, prog="capsnet explore")
    explore(
        args.models, host=args.host, port=args.port, browser=args.browser, token=args.token, names=args.name, say=say
    )


def list_(arguments: Sequence[str]) -> None:
    what = tyro.cli(ListArgs, args=arguments, prog="capsnet list").what
    if what == "models":
        print_table(models.list_models(), models.describe)
        if weights.list_weights():
            say("\ntrained, ready to use:")
            print_table(weights.list_weights(), shipped_summary)
    elif what == "routings":
        print_table(routing.list_routings(), routing.describe)
    elif what == "datasets":
        print_table(data.list_datasets(), data.describe)
    elif what == "experiments":
        print_table(experiments.list_experiments(), experiments.describe)
    else:
        print_table(recipes.list_recipes(), recipes.describe)


def shipped_summary(name: str) -> str:
    return weights.read_metadata(weights.resolve(name))["card"]["summary"]


VERBS: dict[str, tuple[Callable[[Sequence[str]], None], str]] = {
    "train": (train, "train a model by a recipe"),
    "evaluate": (evaluate, "test a trained model on a data set"),
    "predict": (predict_verb, "say what is on a picture"),
    "ensemble": (ensemble_verb, "several trained models as one"),
    "export": (export_verb, "a trained model as one ONNX file"),
    "search": (search_, "search for better settings of a recipe"),
    "reproduce": (reproduce_, "a table or figure of the literature, one command each"),
    "compare": (compare, "routings side by side on the same network and data"),
    "explore": (explore_, "draw a digit and turn the knobs of its capsules, in the browser"),
    "list": (list_, "models, routings, datasets, recipes or experiments"),
}


TRAINING = ("train", "reproduce", "compare", "search")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb; leave with 0 when it worked, 2 on bad input, 130 when stopped by hand."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    try:
        dispatch(arguments)
    except KeyboardInterrupt:
        complain("stopped", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `capsnet list models | head -1` is no error
    except (ValueError, OSError) as error:
        if os.environ.get("CAPSNET_DEBUG"):
            raise
        complain(distributed.rank_prefix() + one_line(error), 2)


def dispatch(arguments: Sequence[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        say("usage: capsnet VERB [arguments]\n\nCapsule networks: train, test and use them.\n")
        print_table(VERBS, lambda verb: VERBS[verb][1])
        return say("\n`capsnet VERB --help` tells more. First steps: capsnet train demo")
    if arguments[0] == "--version":
        return say(f"capsnet {capsnet.__version__}")
    check_name("verb", arguments[0], VERBS)
    if arguments[0] in TRAINING:
        keep_freed_memory()
    return VERBS[arguments[0]][0](arguments[1:])


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE with values as in JSON; what is not JSON is a string."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set takes KEY=VALUE, got {pair!r}")
        try:
            options[key.replace("-", "_")] = json.loads(value)
        except json.JSONDecodeError:
            options[key.replace("-", "_")] = value
    return options
