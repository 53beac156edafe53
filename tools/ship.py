"""Turn a finished final run into a bundled model: half-precision weights, a card, a profile.

    python -m tools.ship runs/mine NAME [DATA ...]
    python -m tools.ship --profile NAME ...
    python -m tools.ship --card runs/mine docs/results/runs/NAME.json [DATA ...]
    python -m tools.ship --half-credit NAME ...

The run has been tested once, at its end. The bundled model is the same network with its numbers rounded to float16, so
the card has the accuracy of the *stored* numbers, and that of the run beside it where rounding changed it. DATA are
further test sets; the first one given becomes the one that `capsnet evaluate NAME` tests on. The card goes into the
weights file (from where docs/RESULTS.md takes it) and, as a page, beside it.

`--card` writes the card of a run that is not bundled, as a file that docs/RESULTS.md is made from. A run that another
one replaces leaves its card as the first free NAME-1, NAME-2, ...: every final run is reported.

Where a picture has several objects, the card also has the accuracy with half credit. `--half-credit` measures it anew
for bundled models and writes it into their cards; their weights stay as they are.

The profile is what the explorer's sliders, their names and its gallery come from. Ranges, means and hard examples are
`profiles.measure` on the test split; the dimensions are named by the rule of the experiment `perturb`, on validation
digits. A model of several digits at once gets no names: its sweep would have to be measured over the other digit.
"""

import argparse
import itertools
import json
import shlex
import tempfile
from pathlib import Path
from typing import Any

import torch

from capsnet import data, models, weights
from capsnet.drawing.document import Document, Table
from capsnet.experiments import lab, perturb
from capsnet.inference import Evaluation, evaluate, profiles
from capsnet.metrics import Proportion
from capsnet.models import Model
from capsnet.training import Run, first
from capsnet.training.run import CONFIG, ENV, RESULTS

EACH = 100  # digits of each class that are swept and measured
SLICE = 500  # test examples that a quick test looks at
SUMMARIES = {
    "capsnet-mnist": "the paper's network, three routing iterations, with reconstruction, on MNIST",
    "efficient-mnist": "Efficient-CapsNet, 161,824 parameters before the decoder, on MNIST",
    "capsnet-multimnist": "two overlapping digits, each drawn by its own capsule: a residual capsule network",
    "capsnet-multimnist-cnn": "the plain twin of capsnet-multimnist: the same stem, no capsules",
    "capsnet-multimnist-6": "two digits shifted by up to 6 pixels, as in the authors' code: a residual capsule network",
    "capsnet-multimnist-6-cnn": "the plain twin of capsnet-multimnist-6: the same stem, no capsules",
    "kuramoto-multimnist": "two overlapping digits, parts taught to go to the digit they lie on: Kuramoto routing",
    "capsnet-affine": "a residual capsule network on digits that were only shifted, tested on affine ones",
    "capsnet-affine-cnn": "the plain twin of capsnet-affine: the same stem, no capsules",
    "matrix-mnist": "matrix capsules with EM routing on a small residual stem, on MNIST",
    "capsnet-shapes": "Efficient-CapsNet on houses, boats and faces made of the same parts",
    "capsnet-shapes-cnn": "the plain twin of capsnet-shapes: the same convolutions, no capsules",
}
PURPOSES = {
    "capsnet-mnist": "The paper's network, and the one to begin with.",
    "capsnet-small-mnist": "Small and fast, for slow machines and as a start for your own data.",
    "efficient-mnist": "Few parameters and as accurate; it routes in one step of attention.",
    "capsnet-multimnist": "For two overlapping digits: see the panel Two digits.",
    "capsnet-multimnist-cnn": "No capsules: the plain network to hold capsnet-multimnist against.",
    "capsnet-multimnist-6": "For two digits that stand further apart, as in the authors' code.",
    "capsnet-multimnist-6-cnn": "No capsules: the plain network to hold capsnet-multimnist-6 against.",
    "kuramoto-multimnist": "Routing that parses: most parts of two overlapping digits go to their digit. Press Play.",
    "capsnet-affine": "Trained on shifted digits only: draw slanted and turned ones, and see how far it goes.",
    "capsnet-affine-cnn": "No capsules: the plain network to hold capsnet-affine against.",
    "matrix-mnist": "Poses are matrices, and the routing is EM; no decoder, so no knobs.",
    "capsnet-shapes": "Houses, boats and faces of the same parts: see the panel Build a scene.",
    "capsnet-shapes-cnn": "No capsules: the plain network to hold capsnet-shapes against.",
}
RUNS = Path("docs/results/runs")
CARD = ("recipe", "seed", "epoch", "at_its_end", "trained_on", "seconds", "origin")
HALF = "half_credit_at_its_end"  # where a picture has several objects
RESUMED = ("step", "started", "threads", "processes", "commit")  # of each time a run was resumed
ORIGIN = ("command", "commit", "capsnet", "torch", "numpy", "python", "processor", "threads", "started")


def ship(run: Path, name: str, tested_on: list[str], place: Path = weights.SHIPPED, runs: Path = RUNS) -> Path:
    """Write weights and card of a finished run under a name. The card of the run it replaces goes to ``runs``."""
    if name not in SUMMARIES:
        raise ValueError(f"there is no summary of {name!r}: choose one of {', '.join(SUMMARIES)}")
    with tempfile.TemporaryDirectory() as folder:  # rounded as they will be stored
        stored = weights.load(
            weights.save(weights.load(run), Path(folder) / "rounded.safetensors", dtype=torch.float16)
        )
    specs = list(dict.fromkeys([*tested_on, config_of(run)["data"]]))
    prepare = data.load(specs[0], "test").preprocess
    stored.preprocessing = {} if prepare is None else prepare.model_dump()
    tests = {spec: measured(stored, spec, None) for spec in specs}
    few = measured(stored, specs[0], SLICE).accuracy
    stored.card = {
        **history(run),
        "summary": SUMMARIES[name],
        "data": specs[0],
        "test_accuracy": tests[specs[0]].accuracy._asdict(),
        "tests": {spec: result.accuracy._asdict() for spec, result in tests.items()},
        **half_credit(tests),
        "slice": {"n": few.n, "right": round(few.value * few.n)},
    }
    file = place / f"{name}.safetensors"
    keep_card(file, stored.card, runs)
    write(stored, file)
    return file


def write(model: Model, file: Path) -> None:
    """A bundled model: half-precision weights with their card, and the card as a page."""
    weights.save(model, file, dtype=torch.float16)
    file.with_suffix(".md").write_text(page(file.stem, model))


def half_credit(tests: dict[str, Evaluation]) -> dict[str, Any]:
    """The entry of a card; nothing where pictures have one object."""
    shares = {spec: one.half_credit._asdict() for spec, one in tests.items() if one.half_credit}
    return {"half_credit": shares} if shares else {}


def add_half_credit(name: str, place: Path = weights.SHIPPED) -> None:
    """Measure a bundled model with half credit and write that into its card."""
    file = place / f"{name}.safetensors"
    model, before = weights.load(file), lab.identity(file)
    specs = [spec for spec in model.card.get("tests", {}) if data.info(spec).objects != 1]
    tests = {spec: measured(model, spec, None) for spec in specs}
    found = half_credit(tests)
    if not found:
        raise ValueError(f"{name} was not tested on pictures of several objects: there is no half credit")
    for spec, result in tests.items():
        given = model.card["tests"][spec]["value"]
        if abs(given - result.accuracy.value) > 1e-9:
            raise ValueError(f"{name} has {result.accuracy} on {spec}, its card {given:.2%}: ship it again")
    model.card = model.card | found
    write(model, file)
    assert lab.identity(file) == before  # the same numbers


def keep_card(file: Path, other: dict[str, Any], runs: Path) -> None:
    """Keep the card of weights that another final run replaces, with the numbers of its end, and of further tests."""
    card = weights.read_metadata(file)["card"] if file.is_file() else {}
    if "origin" not in card or card["origin"] == other["origin"]:
        return  # no file, no final run, or the same run again
    spec, end = card["trained_on"]["data"], card["at_its_end"]
    tests = card["tests"] | {spec: end}
    old = {key: card[key] for key in CARD} | {
        "data": card["data"],
        "test_accuracy": tests[card["data"]],
        "tests": tests,
    }
    old |= {key: card[key] for key in ("init", "teacher") if key in card}
    old |= {HALF: card[HALF], "half_credit": {spec: card[HALF]}} if HALF in card else {}
    taken = {path.stem for path in runs.glob(f"{file.stem}-*.json")} | SUMMARIES.keys()
    name = next(name for n in itertools.count(1) if (name := f"{file.stem}-{n}") not in taken)
    write_card(old, runs / f"{name}.json")


def card_alone(run: Path, file: Path, tested_on: list[str]) -> None:
    """Write the card of a run that is not bundled, tested on further sets as it is."""
    card = history(run)
    tests = {spec: measured(weights.load(run), spec, None).accuracy._asdict() for spec in tested_on}
    if tests:
        card |= {"data": tested_on[0], "test_accuracy": tests[tested_on[0]], "tests": tests | card["tests"]}
    write_card(card, file)


def write_card(card: dict[str, Any], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(card, indent=2) + "\n")


def config_of(run: Path) -> dict[str, Any]:
    return json.loads((run / CONFIG).read_text())


def history(run: Path) -> dict[str, Any]:
    """What a card says about the origin of weights."""
    config, env, results = (json.loads((run / file).read_text()) for file in (CONFIG, ENV, RESULTS))
    end, half = lab.main_metric(results), results.get("half_credit")
    resumed = [{key: one[key] for key in RESUMED} for one in env.get("resumed", [])]
    return {
        "recipe": config["recipe"],
        "data": config["data"],
        "seed": config["seed"],
        **{key: Path(config[key]).name for key in ("init", "teacher") if config.get(key)},  # no path of this machine
        "epoch": results["epoch"],
        "test_accuracy": end,
        "tests": {config["data"]: end},
        "at_its_end": end,
        "trained_on": {"data": config["data"], "split": config["train_on"], "augment": config["augment"]},
        "seconds": round(sum(line["seconds"] for line in Run(run).records("epoch"))),
        "origin": {key: env[key] for key in ORIGIN}
        | {"command": command(env["command"])}
        | ({"resumed": resumed} if resumed else {}),
        **({"half_credit": {config["data"]: half}, HALF: half} if half else {}),
    }


def measured(model: Model, spec: str, limit: int | None) -> Evaluation:
    """A model on (the first of) a test split."""
    return evaluate(model, first(data.load(spec, "test"), limit), progress=True)


def page(name: str, model: Model) -> str:
    """The card as a page."""
    card, origin = model.card, model.card["origin"]
    rows = [(f"test accuracy, {spec}", str(Proportion(**share))) for spec, share in card["tests"].items()]
    rows += [(f"with half credit, {spec}", str(Proportion(**s))) for spec, s in card.get("half_credit", {}).items()]
    if card["at_its_end"] != card["tests"][card["trained_on"]["data"]]:
        rows.append(("at the end of the run, in float32", str(Proportion(**card["at_its_end"]))))
    trained = card["trained_on"]
    moved = [f"{key} {value:g}" for key, value in trained["augment"].items() if value] or ["not augmented"]
    rows += [
        ("trained on", f"`{trained['data']}`, split `{trained['split']}`; {', '.join(moved)}"),
        *([("started from", f"`{card['init']}`")] if card.get("init") else []),
        *([("taught by", f"`{card['teacher']}`")] if card.get("teacher") else []),
        ("command", f"`{origin['command']}`"),
        (
            "time",
            f"{card['seconds'] / 60:.0f} minutes of training; {origin['processor']}, {origin['threads']} thread(s)",
        ),
        ("seed, commit", f"{card['seed']}, {origin['commit']}"),
        *(("resumed", resumption(one)) for one in origin.get("resumed", [])),
        ("versions", ", ".join(f"{key} {origin[key]}" for key in ("capsnet", "torch", "numpy", "python"))),
        ("stored as", "float16, loaded as float32; the test accuracy is that of the stored numbers"),
    ]
    about = models.describe(model.config["name"])
    document = Document(
        name,
        [
            f"{card['summary'][0].upper()}{card['summary'][1:]}.\n"
            f"`{model.config['name']}`, {model.num_parameters():,} parameters here. As registered: {about}.",
            Table("", ["", ""], [list(row) for row in rows]),
            f"`capsnet evaluate {name}` gives the first number again.",
        ],
    )
    return document.to_markdown()


def resumption(one: dict[str, Any]) -> str:
    """When and with what a run was resumed."""
    return (
        f"at step {one['step']:,} with {one['threads']} thread(s), {one['processes']} process(es), "
        f"commit {one['commit']}"
    )


def command(words: str) -> str:
    """A run's command without the folders it wrote to or resumed from."""
    remaining, result = iter(shlex.split(words)), []
    for word in remaining:
        flag, equals, _ = word.partition("=")
        if flag not in ("--out", "--resume"):
            result.append(word)
        elif not equals:
            next(remaining, None)
    return shlex.join(result)


def write_profile(name: str) -> None:
    """Measure the profile of a bundled model."""
    model = weights.load(name)
    spec = str(model.card.get("data", "mnist"))
    dataset = data.load(spec, "test")
    profile = profiles.measure(model, dataset, limit=10_000)
    assert profile is not None
    if profile.names is not None and spec == "mnist" and model.draws:
        profile.names = name_dimensions(model)
    profile.purpose = PURPOSES[name]
    profiles.write(name, profile)


def name_dimensions(model: Model, each: int = EACH) -> list[list[str | None]]:
    """The name of each dimension of each class, by the rule of ``perturb`` on validation digits: [J][D]."""
    return perturb.name_dimensions(model, data.load("mnist", "validation").subset(range(4000)), each)


def main(arguments: list[str] | None = None) -> None:
    about, _, details = (__doc__ or "").partition("\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tools.ship", None, about, details, formatter_class=form)
    parser.add_argument("run", type=Path, nargs="?", help="folder of a finished run")
    parser.add_argument("name", choices=SUMMARIES, nargs="?", help="name of the bundled model")
    parser.add_argument("data", nargs="*", help="test sets besides that of the run")
    parser.add_argument("--profile", nargs="+", metavar="NAME", help="measure the profiles of bundled models")
    words = "write the card of a run alone: RUN FILE [DATA ...]"
    parser.add_argument("--card", nargs="+", metavar=("RUN", "FILE"), help=words)
    parser.add_argument("--half-credit", nargs="+", metavar="NAME", help="add half credit to cards of bundled models")
    args = parser.parse_args(arguments)
    jobs = (args.run, args.profile, args.card, args.half_credit)
    if sum(job is not None for job in jobs) != 1 or (args.run and not args.name) or len(args.card or (1, 2)) < 2:
        parser.error("give RUN and NAME, or --profile NAME ..., or --card RUN FILE, or --half-credit NAME ...")
    try:
        if args.card:
            run, file, *specs = args.card
            card_alone(Path(run), Path(file), specs)
        elif args.run:
            ship(args.run, args.name, args.data)
        for name in args.half_credit or []:
            add_half_credit(name)
        for name in args.profile or ([args.name] if args.run else []):
            write_profile(name)
    except (ValueError, OSError) as error:
        parser.error(" ".join(str(error).split()))


if __name__ == "__main__":
    main()
