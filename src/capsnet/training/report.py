"""The end of a run: test once, save the weights, draw, and write down what happened."""

import shlex
from pathlib import Path

import numpy as np
import torch

from capsnet import metrics
from capsnet.data import Dataset
from capsnet.drawing import figures
from capsnet.inference import OFFSETS, PRESENT, Evaluation, evaluating, sweep_dimensions
from capsnet.models import Model, Output
from capsnet.training.checkpoint import State
from capsnet.training.config import TrainConfig
from capsnet.training.distributed import evaluate, main
from capsnet.training.run import FIGURES, README, RESULTS, WEIGHTS, Run
from capsnet.weights import save

SHOWN = 24  # pictures in the figure of reconstructions


def report(config: TrainConfig, state: State, here: Run, test: Dataset, pictures: bool = True) -> Evaluation:
    """Everything a run leaves besides its curves. The weights come first, so that no figure can cost them; the results
    come last: they mark the run as finished."""
    model = state.tested
    result = evaluate(model, test, progress=True)
    if not main():
        return result
    kept = state.best_epoch if state.best_weights is not None else state.epoch
    named = {key: getattr(config, key) for key in ("recipe", "data", "init", "seed")}
    model.card = named | {"epoch": kept, "test_accuracy": result.accuracy._asdict()}
    save(model, here.folder / WEIGHTS)
    drawn = draw(model, test, result.lengths, result.targets, here) if pictures else []
    here.write(README, readme(config, state, result, kept, drawn, here))
    here.write(RESULTS, {"split": "test", "epoch": kept, **result.metrics})
    return result


def draw(model: Model, test: Dataset, lengths: np.ndarray, targets: np.ndarray, here: Run) -> list[Path]:
    """The figures of a run: what is drawn depends on what the model can do."""
    folder = here.folder / FIGURES
    folder.mkdir(exist_ok=True)
    drawn = [figures.learning_curves(folder / "curves.png", here.records("epoch"))]
    if targets.ndim == 1:
        matrix = metrics.confusion_matrix(targets, lengths.argmax(axis=1), test.num_classes)
        drawn.append(figures.confusion_matrix(folder / "confusion.png", matrix, model.class_names))
    batch = test.batch(range(min(SHOWN, len(test))))
    images = batch.images.to(next(model.parameters()).device)
    with evaluating(model):
        output: Output = model(images)
    if output.reconstruction is None or output.poses is None:
        return drawn
    pictures = output.reconstruction
    if batch.sources is not None:  # what the longest capsules draw one by one, laid over each other
        longest = output.lengths.topk(batch.sources.classes.shape[1], dim=1).indices
        with evaluating(model):
            pictures = model.decode(output.poses, longest).sum(dim=1).clamp(max=1)
    drawn.insert(
        0,
        figures.reconstructions(
            folder / "reconstructions.png",
            images.cpu(),
            pictures.cpu(),
            output.lengths.cpu(),
            batch.targets,
            model.class_names,
            None if batch.sources is not None else PRESENT,
        ),
    )
    label = int(output.lengths[0].argmax())
    sweep = sweep_dimensions(model, output.poses[0], label)
    title = f"Class {model.class_names[label]}: one dimension of its capsule moved at a time"
    drawn.insert(1, figures.dimension_sweep(folder / "sweep.png", sweep.cpu(), torch.tensor(OFFSETS), title))
    return drawn


def readme(config: TrainConfig, state: State, result: Evaluation, kept: int, drawn: list[Path], here: Run) -> str:
    """A page for a stranger: what was run, what came out, how to use it."""
    model = state.tested
    rows = [
        f"| {row['class']} | {_percent(row['precision'])} | {_percent(row['recall'])} | {_number(row['auc'])} "
        f"| {row['support']} |"
        for row in result.metrics["per_class"]
    ]
    pictures = [f"![{path.stem}]({FIGURES}/{path.name})" for path in drawn]
    few = config.limit is not None and config.limit <= state.examples  # a limit beyond the split takes all of it
    examples = f"the first {state.examples:,} examples of the" if few else "all examples of the"
    epochs = f"{config.epochs} epoch{'s' if config.epochs > 1 else ''}"
    if state.epoch < config.epochs:
        epochs = f"{state.epoch} of {epochs} (stopped at {state.best_score:.2%} validation accuracy)"
    chosen = ", the best on the validation split" if config.keep == "best" and config.train_on == "train" else ""
    folder = shlex.quote(str(here.folder))
    board = [f"    tensorboard --logdir {folder}"] if config.tensorboard else []
    return "\n".join(
        [
            f"# {config.recipe}: {config.model} on {config.data}",
            "",
            f"{model.num_parameters():,} parameters; {examples} `{config.train_on}` split, {epochs}, "
            f"seed {config.seed}"
            + (f", starting from {config.init}" if config.init else "")
            + f". The weights are those of epoch {kept}{chosen}.",
            "",
            f"**Test accuracy {result.accuracy}**, measured once, after the last epoch.",
            "",
            "| class | precision | recall | AUC | examples |",
            "|---|---|---|---|---|",
            *rows,
            "",
            *pictures,
            "",
            "## Use it",
            "",
            f"    capsnet evaluate {folder}",
            f"    capsnet predict {'TEXT' if model.takes_texts else 'IMAGE'} --model {folder}",
            *board,
            "",
            "`config.json` is the whole configuration, `env.json` the machine and the versions (and those of "
            "every time it was resumed), `metrics.jsonl` every "
            "logged number, `results.json` the test metrics, `model.safetensors` the weights.",
            "",
        ]
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5f}"
