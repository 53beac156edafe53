"""Cross-validation, for data too few for a useful test split.

Each fold is an ordinary run in its own folder, so a stopped cross-validation can be resumed. Every image is tested once
by a network that was not trained on it, so the images must be the same in all folds, and initial weights must not have
been trained on them.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from capsnet import data, weights
from capsnet._files import write_atomically
from capsnet.data import FolderDataset, Given, given_folds
from capsnet.metrics import Proportion, wilson_interval
from capsnet.training import distributed
from capsnet.training.config import TrainConfig, read_config
from capsnet.training.loop import train
from capsnet.training.precision import check_precision
from capsnet.training.prepare import recorded
from capsnet.training.report import folds_page
from capsnet.training.run import CONFIG, JOB, README, RESULTS, Run, begun_by, record_job

SUMMARY = "folds.json"


class CrossValidation(NamedTuple):
    """The outcome of a cross-validation: one accuracy per fold, and one over all images."""

    folder: Path
    accuracies: list[float]
    pooled: Proportion

    def __str__(self) -> str:
        spread = statistics.stdev(self.accuracies)
        mean = statistics.fmean(self.accuracies)
        return f"{mean:.2%} ± {spread:.2%} over {len(self.accuracies)} folds; all images together {self.pooled}"

    def __repr__(self) -> str:
        return f"<CrossValidation in {self.folder}: {self}>"


def cross_validate(
    config: TrainConfig,
    folds: int,
    *,
    data: Any = None,
    out: str | Path | None = None,
    resume: str = "no",
    device: str = "auto",
    threads: int | None = None,
    compile: bool = False,
) -> CrossValidation:
    """Train ``folds`` times, each time on all but one part of the data, and test on that part.

    Args:
        config: the configuration; its data must be one that can be folded, as ``folder:PATH`` can.
        data: data in Python instead: what ``capsnet.data.adapt`` takes, all examples in one source.
        out: folder of all folds; default ``runs/RECIPE/K-folds-SEED``. Fold n is in ``fold-n``.
        resume: "no", or "auto" to keep finished folds and train the others.
    """
    if resume not in ("no", "auto"):
        raise ValueError(f'resume must be "no" or "auto" with folds, got {resume!r}')
    if folds < 2:
        raise ValueError(f"folds must be at least 2, got {folds}")
    if config.eval_limit is not None:
        raise ValueError(f"eval_limit={config.eval_limit} would leave images untested: folds test every image once")
    if data is None:
        _check_foldable(config.data)
    source = None if data is None else given_folds(data, folds)
    config = recorded(config, source and Given(source.spec, {}))
    _check_start(config)
    folder = Path(out) if out is not None else Path("runs") / config.recipe / f"{folds}-folds-{config.seed}"
    with distributed.process_group(device) as rank_device:
        check_precision(config, rank_device)
        job = distributed.current_job()
        if distributed.broadcast_from_main(lambda: resume == "no" and not _is_free(folder, job)):
            raise ValueError(f"cannot train in {folder}: it is not empty; choose another --out, or --resume auto")
        files = distributed.broadcast_from_main(lambda: _begin(folder, job, config.data, folds))
        finished: list[dict[str, Any]] = []
        for fold in range(folds):
            examples = source.folds[fold] if source else None
            spec = examples.spec if examples else _spec(config.data, folds, fold)
            part, fold_folder = dataclasses.replace(config, data=spec), folder / f"fold-{fold}"
            results = distributed.broadcast_from_main(partial(_results, fold_folder, part))
            if results is None:
                options: dict[str, Any] = {"device": device, "threads": threads, "compile": compile}
                train(part, data=examples, out=fold_folder, resume="auto", **options)
                results = distributed.broadcast_from_main(partial(_results, fold_folder, part))
            finished.append(results or {})
        return distributed.broadcast_from_main(lambda: _summarise(folder, config, files, finished))


def _check_foldable(spec: str) -> None:
    name = spec.partition(":")[0]
    if not {"folds", "fold"} <= set(data.options_of(name)):
        foldable = [n for n in data.list_datasets() if {"folds", "fold"} <= set(data.options_of(n))]
        raise ValueError(f"{name} has its own test split: cross-validation is for {', '.join(foldable)}")


def _spec(spec: str, folds: int, fold: int) -> str:
    return data.canonical(data.with_options(spec, folds=folds, fold=fold))


def _is_free(folder: Path, job: distributed.Job) -> bool:
    """Whether the folder holds nothing but the list of files of a cross-validation without a fold."""
    return begun_by(job, folder) or not (folder.is_dir() and any(path.name != SUMMARY for path in folder.iterdir()))


def _begin(folder: Path, job: distributed.Job, spec: str, folds: int) -> str:
    """Record which images there are, or refuse to resume with others; returns their fingerprint."""
    files = spec if data.is_given(spec) else _fingerprint(data.with_options(spec, folds=folds))
    if (folder / SUMMARY).is_file() and any(folder.glob("fold-*")):
        before = json.loads((folder / SUMMARY).read_text(encoding="utf-8")).get("files", files)
        if before != files:
            raise ValueError(
                f"the images or labels of {spec} are not those that the cross-validation in {folder} was begun with: "
                "restore them, or choose another --out"
            )
        return files
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / SUMMARY, json.dumps({"files": files}, indent=2) + "\n")
    record_job(job, folder)
    return files


def _fingerprint(spec: str) -> str:
    """A hash of the names, groups and labels of all images."""
    parts = [cast(FolderDataset, data.load(spec, split)) for split in ("train+validation", "test")]
    lines = [line for part in parts for line in zip(part.files, part.groups, part.targets.tolist(), strict=True)]
    words = json.dumps([parts[0].class_names, sorted(lines)])
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def _check_start(config: TrainConfig) -> None:
    """Refuse initial weights or a teacher trained on the images to be tested, or that came from such weights."""
    for option, model in (("init", config.init), ("teacher", config.teacher)):
        for spec in _seen(model) if model is not None else ():
            if _overlap(spec, config.data):
                raise ValueError(
                    f"{model} was trained on {spec}, and so on images that the folds test: train without {option}, or "
                    "with other weights"
                )


def _seen(model: str) -> Iterator[str]:
    """The data that weights were trained on, those they started from, their teachers, and members of an ensemble."""
    cards = [weights.read_metadata(weights.resolve(model))["card"]]
    for card in itertools.islice(cards, 100):  # it grows below
        yield from (spec for spec in (card.get("data"), _trained_on(card)) if spec)
        cards += card.get("members", [])
        for earlier in (str(card[key]) for key in ("init", "teacher") if card.get(key)):
            with contextlib.suppress(OSError, ValueError):  # weights that are gone
                path = weights.resolve(earlier, download=False)  # a card from elsewhere must not cause downloads
                cards.append(weights.read_metadata(path)["card"])


def _overlap(one: str, other: str) -> bool:
    """Whether two specs name the same data set and one path equals or contains the other."""
    if one.partition(":")[0] != other.partition(":")[0]:
        return False
    if data.is_given(one):
        return one.partition(",")[0] == other.partition(",")[0]
    with contextlib.suppress(ValueError, OSError):  # an option of another version, images that are gone
        a, b = data.path_of(one), data.path_of(other)
        if a is None or b is None or a.is_relative_to(b) or b.is_relative_to(a):
            return True
        files = data.image_files(a), data.image_files(b)  # a CSV file may list images of any folder
        return not files[0].isdisjoint(files[1])
    return False


def _results(folder: Path, part: TrainConfig) -> dict[str, Any] | None:
    """The test metrics of a fold, or None if it is not finished."""
    if not Run(folder).finished:
        return None
    if read_config(folder / CONFIG) != part:
        raise ValueError(f"{folder} is finished with another configuration: choose another --out")
    return json.loads((folder / RESULTS).read_text(encoding="utf-8"))


def _summarise(folder: Path, config: TrainConfig, files: str, finished: list[dict[str, Any]]) -> CrossValidation:
    accuracies = [Proportion(**(results.get("accuracy") or results["exact_match"])) for results in finished]
    right, n = sum(round(accuracy.value * accuracy.n) for accuracy in accuracies), sum(a.n for a in accuracies)
    pooled = Proportion(right / n, *wilson_interval(right, n), n)
    result = CrossValidation(folder, [accuracy.value for accuracy in accuracies], pooled)
    values = {"config": dataclasses.asdict(config), "accuracies": result.accuracies, "pooled": pooled._asdict()}
    write_atomically(folder / SUMMARY, json.dumps(values | {"files": files}, indent=2) + "\n")
    write_atomically(folder / CONFIG, config.to_json())
    write_atomically(folder / README, folds_page(config, folder, str(result), accuracies).to_markdown())
    (folder / JOB).unlink(missing_ok=True)
    return result


def _trained_on(card: dict[str, Any]) -> str | None:
    """The data of a card's training; older cards have a sentence there."""
    trained = card.get("trained_on")
    return trained.get("data") if isinstance(trained, dict) else None
