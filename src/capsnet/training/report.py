"""The end of a run: test once, save the weights, draw figures, and write the README."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import torch

from capsnet import metrics
from capsnet.data import Dataset, is_given
from capsnet.drawing import figures
from capsnet.drawing.document import Code, Document, Figure, Heading, Table
from capsnet.inference import OFFSETS, PRESENT, Evaluation, evaluating, sweep_dimensions
from capsnet.metrics import Proportion
from capsnet.models import Model, Output
from capsnet.training.checkpoint import State
from capsnet.training.config import TrainConfig
from capsnet.training.distributed import evaluate, is_main
from capsnet.training.run import CONFIG, FIGURES, README, RESULTS, WEIGHTS, Run
from capsnet.weights import save

SHOWN = 24  # pictures in the figure of reconstructions


def report(state: State, run: Run, test: Dataset, pictures: bool = True) -> Evaluation:
    """Test the model and write the files of a finished run. The weights come first, so that a failing figure does not
    lose them; the results come last, because they mark the run as finished."""
    config, model = state.config, state.tested
    result = evaluate(model, test, progress=True)
    if not is_main():
        return result
    epoch = state.best_epoch if state.best_weights is not None else state.epoch
    origin = {key: getattr(config, key) for key in ("recipe", "data", "init", "teacher", "seed")}
    model.card = origin | {"epoch": epoch, "test_accuracy": result.accuracy._asdict()}
    save(model, run.folder / WEIGHTS)
    drawn = draw(model, test, result, run) if pictures else []
    run.write(README, run_page(state, result, epoch, drawn, run).to_markdown())
    run.write(RESULTS, {"split": "test", "epoch": epoch, **result.metrics})
    return result


def draw(model: Model, test: Dataset, result: Evaluation, run: Run) -> list[Path]:
    """The figures of a run."""
    folder = run.folder / FIGURES
    folder.mkdir(exist_ok=True)
    drawn = [figures.learning_curves(folder / "curves.png", run.records("epoch"))]
    if result.targets.ndim == 1:
        matrix = metrics.confusion_matrix(result.targets, result.lengths.argmax(axis=1), test.num_classes)
        drawn.append(figures.confusion_matrix(folder / "confusion.png", matrix, model.class_names))
    batch = test.batch(range(min(SHOWN, len(test))))
    images = batch.images.to(next(model.parameters()).device)
    with evaluating(model):
        output: Output = model(images)
    if output.reconstruction is None or output.poses is None:
        return drawn
    pictures = output.reconstruction
    if batch.sources is not None:  # decode the longest capsules one by one and add the pictures
        longest = output.lengths.topk(batch.sources.classes.shape[1], dim=1).indices
        with evaluating(model):
            pictures = model.decode(output.poses, longest).sum(dim=1).clamp(max=1)
    shown = (images.cpu(), pictures.cpu(), output.lengths.cpu(), batch.targets, model.class_names)
    threshold = None if batch.sources is not None else PRESENT
    label = int(output.lengths[0].argmax())
    sweep = sweep_dimensions(model, output.poses[0], label)
    title = f"Class {model.class_names[label]}: one dimension of its capsule moved at a time"
    return [
        figures.reconstructions(folder / "reconstructions.png", *shown, threshold),
        figures.dimension_sweep(folder / "sweep.png", sweep.cpu(), torch.tensor(OFFSETS), title),
        *drawn,
    ]


def run_page(state: State, result: Evaluation, epoch: int, drawn: list[Path], run: Run) -> Document:
    """The README of a run: configuration, results, usage."""
    config, model, folder = state.config, state.tested, shlex.quote(str(run.folder))
    limited = config.limit is not None and config.limit <= state.examples  # a limit beyond the split takes all of it
    examples = f"the first {state.examples:,} examples of the" if limited else "all examples of the"
    epochs = f"{config.epochs} epoch{'s' if config.epochs > 1 else ''}"
    if state.epoch < config.epochs:
        epochs = f"{state.epoch} of {epochs} (stopped at {state.best_score:.2%} validation accuracy)"
    start = f", starting from {config.init}" if config.init else ""
    start += f", taught by {config.teacher}" if config.teacher else ""
    chosen = ", the best on the validation split" if config.keep == "best" and config.train_on == "train" else ""
    credit = result.half_credit
    half = "" if credit is None else f" With half credit for one object of two: {credit}."
    takes = "TEXT" if model.takes_texts else "IMAGE"
    commands = [] if is_given(config.data) else [f"capsnet evaluate {folder}"]
    commands += [f"capsnet predict {takes} --model {folder}"]
    commands += [f"tensorboard --logdir {folder}"] * (run.folder / "tensorboard").is_dir()
    formats = {"class": "", "precision": ".2%", "recall": ".2%", "auc": ".5f", "support": ""}
    rows = [
        ["-" if row[key] is None else format(row[key], style) for key, style in formats.items()]
        for row in result.metrics["per_class"]
    ]
    page = Document(f"{config.recipe}: {config.model} on {data_of(config)}")
    return page.add(
        f"{model.num_parameters():,} parameters; {examples} `{config.train_on}` split, {epochs}, seed {config.seed}"
        f"{start}. The weights are those of epoch {epoch}{chosen}.",
        f"**Test accuracy {result.accuracy}**, measured once, after the last epoch.{half}",
        Table("", ["class", "precision", "recall", "AUC", "examples"], rows),
        *(Figure(path.relative_to(run.folder), path.stem) for path in drawn),
        Heading("Use it"),
        Code("\n".join(commands)),
        "`config.json` is the whole configuration, `env.json` the machine and the versions (and those of every "
        "resume), `metrics.jsonl` every logged number, `results.json` the test metrics, "
        "`model.safetensors` the weights.",
    )


def data_of(config: TrainConfig) -> str:
    """What a page calls the data."""
    return f"data given in Python ({config.data})" if is_given(config.data) else config.data


def folds_page(config: TrainConfig, folder: Path, result: str, accuracies: Sequence[Proportion]) -> Document:
    """The README of a cross-validation."""
    start = f" The networks started from {config.init}." if config.init else ""
    start += f" They were taught by {config.teacher}." if config.teacher else ""
    again = ("capsnet", "train", str(folder / CONFIG), "--folds", str(len(accuracies)), "--out", "ANOTHER_FOLDER")
    command = shlex.join(again)
    if is_given(config.data):
        command = f"capsnet.cross_validate(config, {len(accuracies)}, data=...)  # in Python, with the same data"
    rows = [[f"[{k}](fold-{k}/{README})", f"{one.value:.2%}", str(one.n)] for k, one in enumerate(accuracies)]
    page = Document(f"{config.recipe}: {len(accuracies)}-fold cross-validation of {config.model} on {data_of(config)}")
    return page.add(
        f"**Accuracy {result}.** Every image was tested once, by a network that was not trained on it.{start}",
        Table("", ["fold", "test accuracy", "images"], rows),
        "The folds estimate how well this *way of training* does. To use a network, train once more without `--folds`.",
        Code(command),
    )
