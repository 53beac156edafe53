"""The command line: verbs, nothing else. Each one calls the function of the same name.

Bad input ends in one sentence and exit code 2. ``CAPSNET_DEBUG=1`` shows the traceback behind it.
"""

import dataclasses
import json
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tyro

import capsnet
from capsnet import data, experiments, models, recipes, routing, weights
from capsnet._flags import (
    CompareArgs,
    EvaluateArgs,
    ExperimentArgs,
    ExploreArgs,
    ListArgs,
    PredictArgs,
    ReproduceArgs,
    TrainArgs,
)
from capsnet._names import check_name
from capsnet.explorer import explore
from capsnet.inference import pick_device
from capsnet.training import Interrupted


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
    try:
        if args.folds is not None:
            options: dict[str, Any] = {"out": args.out, "resume": args.resume}
            result = capsnet.cross_validate(config, args.folds, **options, device=args.device, threads=args.threads)
            return say(f"\ncross-validation  {result}\neverything is in  {shown(result.folder)}")
        result = capsnet.train(config, out=args.out, resume=args.resume, device=args.device, threads=args.threads)
    except Interrupted as stop:
        again = "auto" if args.folds is not None else str(stop.folder)
        return complain(f"stopped; go on with\n  {resume_command(arguments, again)}", 130)
    folder = shown(result.folder)
    say(f"\ntest accuracy  {result.test.accuracy}")
    say(f"everything is in  {folder}  (start with README.md and figures/)\n")
    say("try next:")
    if isinstance(result.model, models.TextModel):
        say(f"  {program('capsnet')} predict TEXT --model {folder}       # any text, in quotes")
    else:
        say(f"  {program('capsnet')} predict IMAGE --model {folder}      # any picture, a photo of a pen digit too")
    say(f"  {program('capsnet')} evaluate {folder}                   # precision, recall and AUC per class")
    if config.tensorboard:
        say(f"  {program('tensorboard')} --logdir {folder}               # curves, reconstructions, the graph")
    return None


def program(name: str) -> str:
    """How to call a command of this environment from where the user is: by its path unless it is found without."""
    here = Path(sys.executable).parent / name
    if not here.exists() or shutil.which(name) == str(here):
        return name
    return shlex.quote(os.path.relpath(here) if here.is_relative_to(os.getcwd()) else str(here))


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
    result = capsnet.evaluate(
        args.model,
        args.data,
        split=args.split,
        batch_size=args.batch_size,
        device=pick_device(args.device),
        progress=True,
    )
    if args.json:
        return say(json.dumps(result.metrics))
    say(f"{args.model} on the {args.split} split{f' of {args.data}' if args.data else ''}\n")
    say(f"{'class':>12}  precision   recall      AUC  examples")
    for row in result.metrics["per_class"]:
        shown = [f"{row[key]:.4f}" if row[key] is not None else "-" for key in ("precision", "recall", "auc")]
        say(f"{row['class']:>12}     {shown[0]:>6}   {shown[1]:>6}   {shown[2]:>6}  {row['support']:>8,}")
    say(f"\naccuracy  {result.accuracy}")
    return None


def predict(arguments: Sequence[str]) -> None:
    args = tyro.cli(PredictArgs, args=arguments, prog="capsnet predict")
    if not args.images:
        raise ValueError("name at least one image file: capsnet predict IMAGE... --model MODEL")
    model = capsnet.load(args.model)
    problems = 0
    for path in args.images:
        try:
            answer = capsnet.predict(path, model)[0]
        except (ValueError, OSError) as error:  # the other pictures still get their answers
            problems += 1
            print(f"capsnet: {one_line(error)}", file=sys.stderr)
            continue
        if args.json:
            say(json.dumps({"image": path, "class": answer.label, "length": answer.length, "lengths": answer.lengths}))
        else:
            second = sorted(answer.lengths.items(), key=lambda pair: -pair[1])[1:2]
            rest = "".join(f"   next: {name} ({value:.2f})" for name, value in second)
            doubt = "" if answer.length >= 0.5 else ", not sure"
            say(f"{path}: {answer.label}   (length {answer.length:.2f}{doubt}){rest}")
    if problems:
        sys.exit(2)


def reproduce_(arguments: Sequence[str]) -> None:
    if not arguments or "--list" in arguments:
        return print_table(experiments.list_experiments(), experiments.describe)
    args = tyro.cli(ReproduceArgs, args=arguments, prog="capsnet reproduce")
    names = experiments.list_experiments() if args.name == "all" else [args.name]
    for name in names:
        check_name("experiment", name, experiments.list_experiments())
    for name in names:
        if run_experiment(name, args):
            break
    return None


def compare(arguments: Sequence[str]) -> None:
    args = tyro.cli(CompareArgs, args=arguments, prog="capsnet compare")
    options: dict[str, Any] = {"routings": args.routings} if args.routings else {}
    if args.recipe is not None:
        options["recipe"] = recipes.get(args.recipe)
    if not run_experiment("compare", args, **options):
        outcome = json.loads((Path(args.out) / args.budget / "compare" / "compare.json").read_text())
        for table in outcome["tables"]:
            print_columns([table["columns"], *table["rows"]])


def run_experiment(name: str, args: ExperimentArgs, **options: Any) -> bool:
    """Run one, say what came out and where it is. True if it was stopped."""
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
        return True
    except experiments.Declined as no:
        complain(str(no), 1)
        return True
    outcome = json.loads((folder / f"{name}.json").read_text())
    say(f"\n{outcome['title']}")
    for sentence in outcome["findings"]:
        say(f"  - {sentence}")
    say(f"everything is in  {shown(folder)}  (open {name}.html)")
    return False


def agreed(question: str) -> bool:
    """Tell how long it will take and ask; where nobody can answer, the answer is no."""
    say(question)
    if not sys.stdin.isatty():
        say("start it with --yes")
        return False
    return input("start? [y/N] ").strip().lower() in ("y", "yes")


def explore_(arguments: Sequence[str]) -> None:
    args = tyro.cli(ExploreArgs, args=arguments, prog="capsnet explore")
    explore(args.models, host=args.host, port=args.port, browser=args.browser, token=args.token, say=say)


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
    "predict": (predict, "say what is on a picture"),
    "reproduce": (reproduce_, "a table or figure of the literature, one command each"),
    "compare": (compare, "routings side by side on the same network and data"),
    "explore": (explore_, "draw a digit and turn the knobs of its capsules, in the browser"),
    "list": (list_, "models, routings, datasets, recipes or experiments"),
}


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
        complain(one_line(error), 2)


def dispatch(arguments: Sequence[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        say("usage: capsnet VERB [arguments]\n\nCapsule networks: train, test and use them.\n")
        print_table(VERBS, lambda verb: VERBS[verb][1])
        return say("\n`capsnet VERB --help` tells more. First steps: capsnet train demo")
    if arguments[0] == "--version":
        return say(f"capsnet {capsnet.__version__}")
    check_name("verb", arguments[0], VERBS)
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


def print_table(names: Any, describe: Callable[[str], str]) -> None:
    names = list(names)
    width = max(map(len, names), default=0)
    for name in names:
        say(f"  {name:<{width}}  {describe(name)}")


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        say("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def say(text: str) -> None:
    print(text, flush=True)


def one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def complain(message: str, code: int) -> None:
    print(f"capsnet: {message}", file=sys.stderr)
    sys.exit(code)
