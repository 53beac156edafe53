"""Cross-validation: with 400 images, one test split of 60 says little; k of them say what all 400 can.

Each fold is an ordinary run in a folder of its own, so a stopped cross-validation goes on where it was. Every image is
tested exactly once, by a network that has not seen it: so nothing may be left out of the tests, the images must be the
same in all folds, and first weights must come from elsewhere.
"""

import contextlib
import dataclasses
import hashlib
import json
import shlex
import statistics
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from capsnet import data, weights
from capsnet._files import write_atomically
from capsnet.data import FolderDataset
from capsnet.metrics import Proportion, wilson_interval
from capsnet.training import distributed
from capsnet.training.config import TrainConfig, read_config
from capsnet.training.loop import train
from capsnet.training.prepare import recorded
from capsnet.training.run import CONFIG, JOB, RESULTS, Run, begun_by, sign

SUMMARY = "folds.json"


class Folds(NamedTuple):
    """What cross-validation says: one accuracy per fold, and one over all images."""

    folder: Path
    accuracies: list[float]
    pooled: Proportion

    def __str__(self) -> str:
        spread = statistics.stdev(self.accuracies)
        mean = statistics.fmean(self.accuracies)
        return f"{mean:.2%} ± {spread:.2%} over {len(self.accuracies)} folds; all images together {self.pooled}"


def cross_validate(
    config: TrainConfig,
    folds: int,
    *,
    out: str | Path | None = None,
    resume: str = "no",
    device: str = "auto",
    threads: int | None = None,
    compile: bool = False,
) -> Folds:
    """Train `folds` times, each time on all but one part of the data, and test on that part.

    Args:
        config: what to do; its data must be one that can be folded, as `folder:PATH` can.
        out: folder of the whole; default ``runs/RECIPE/K-folds-SEED``. Fold n is in ``fold-n``.
        resume: "no", or "auto" to keep the finished folds there and go on with the others.
    """
    if resume not in ("no", "auto"):
        raise ValueError(f'resume must be "no" or "auto" with folds, got {resume!r}')
    if folds < 2:
        raise ValueError(f"folds must be at least 2, got {folds}")
    name = config.data.partition(":")[0]
    if not {"folds", "fold"} <= set(data.options_of(name)):
        foldable = [n for n in data.list_datasets() if {"folds", "fold"} <= set(data.options_of(n))]
        raise ValueError(f"{name} has its own test split: cross-validation is for {', '.join(foldable)}")
    if config.eval_limit is not None:
        raise ValueError(f"eval_limit={config.eval_limit} would leave images untested: folds test every image once")
    config = recorded(config)
    _check_start(config)
    folder = Path(out) if out is not None else Path("runs") / config.recipe / f"{folds}-folds-{config.seed}"
    with distributed.joined(device):
        job = distributed.job()
        if distributed.told(lambda: resume == "no" and not _is_free(folder, job)):
            raise ValueError(f"cannot train in {folder}: it is not empty; choose another --out, or --resume auto")
        files = distributed.told(lambda: _begin(folder, job, data.with_options(config.data, folds=folds)))
        finished: list[dict[str, Any]] = []
        for fold in range(folds):
            spec = data.canonical(data.with_options(config.data, folds=folds, fold=fold))
            part, here = dataclasses.replace(config, data=spec), folder / f"fold-{fold}"
            results = distributed.told(partial(_results, here, part))
            if results is None:
                train(part, out=here, resume="auto", device=device, threads=threads, compile=compile)
                results = distributed.told(partial(_results, here, part))
            finished.append(results or {})
        return distributed.told(lambda: _summarise(folder, config, files, finished))


def _is_free(folder: Path, job: distributed.Job) -> bool:
    """Whether nothing is there but the list of files of one that has not come to its first fold."""
    return begun_by(job, folder) or not (folder.is_dir() and any(path.name != SUMMARY for path in folder.iterdir()))


def _begin(folder: Path, job: distributed.Job, spec: str) -> str:
    """Write down which images there are, or refuse to go on with others; returns their fingerprint."""
    files = _fingerprint(spec)
    if (folder / SUMMARY).is_file() and any(folder.glob("fold-*")):
        before = json.loads((folder / SUMMARY).read_text()).get("files", files)
        if before != files:
            raise ValueError(
                f"the images or labels of {spec} are not those that the cross-validation in {folder} was begun with: "
                "bring them back, or choose another --out"
            )
        return files
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / SUMMARY, json.dumps({"files": files}, indent=2) + "\n")
    sign(job, folder)
    return files


def _fingerprint(spec: str) -> str:
    """The names, groups and labels of all images, in however many splits, as one short word."""
    parts = [cast(FolderDataset, data.load(spec, split)) for split in ("train+validation", "test")]
    lines = [line for part in parts for line in zip(part.files, part.groups, part.targets.tolist(), strict=True)]
    words = json.dumps([parts[0].class_names, sorted(lines)])
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def _check_start(config: TrainConfig) -> None:
    """Refuse weights that have learnt from the images to be tested, themselves or the weights they started from."""
    start, cards = config.init, []
    while start is not None and len(cards) < 100:
        try:
            cards.append(weights.read_metadata(weights.resolve(start))["card"])
        except (OSError, ValueError):
            if not cards:
                raise
            break  # what they once started from is gone
        start = cards[-1].get("init")
    for spec in (s for card in cards for s in (card.get("data"), (card.get("trained_on") or {}).get("data")) if s):
        if _overlap(spec, config.data):
            raise ValueError(
                f"{config.init} has learnt from {spec}, and so from images that the folds test: without init, or with "
                "weights from elsewhere, the accuracy is that on unseen images"
            )


def _overlap(one: str, other: str) -> bool:
    """Whether two specs are of the same data set and one path is (in) the other."""
    if one.partition(":")[0] != other.partition(":")[0]:
        return False
    with contextlib.suppress(ValueError):  # an option of another version
        a, b = data.path_of(one), data.path_of(other)
        return a is None or b is None or a.is_relative_to(b) or b.is_relative_to(a)
    return False


def _results(here: Path, part: TrainConfig) -> dict[str, Any] | None:
    """What came out of a fold, or None if it is not finished."""
    if not Run(here).finished:
        return None
    if read_config(here / CONFIG) != part:
        raise ValueError(f"{here} is finished with another configuration: choose another --out")
    return json.loads((here / RESULTS).read_text())


def _summarise(folder: Path, config: TrainConfig, files: str, finished: list[dict[str, Any]]) -> Folds:
    shares = [results.get("accuracy") or results["exact_match"] for results in finished]
    right, n = sum(round(share["value"] * share["n"]) for share in shares), sum(share["n"] for share in shares)
    result = Folds(folder, [share["value"] for share in shares], Proportion(right / n, *wilson_interval(right, n), n))
    values = {"config": dataclasses.asdict(config), "accuracies": result.accuracies, "pooled": result.pooled._asdict()}
    write_atomically(folder / SUMMARY, json.dumps(values | {"files": files}, indent=2) + "\n")
    rows = [f"| [{k}](fold-{k}/README.md) | {s['value']:.2%} | {s['n']} |" for k, s in enumerate(shares)]
    write_atomically(folder / CONFIG, config.to_json())
    again = folder / CONFIG
    command = shlex.join(["capsnet", "train", str(again), "--folds", str(len(shares)), "--out", "ANOTHER_FOLDER"])
    lines = [
        f"# {config.recipe}: {len(shares)}-fold cross-validation of {config.model} on {config.data}",
        "",
        f"**Accuracy {result}.** Every image was tested once, by a network that had not seen it."
        + (f" The networks started from {config.init}." if config.init else ""),
        "",
        "| fold | test accuracy | images |",
        "|---|---|---|",
        *rows,
        "",
        "The folds say how well this *way of training* does. To use a network, train once more without `--folds`.",
        "",
        f"    {command}",
        "",
    ]
    write_atomically(folder / "README.md", "\n".join(lines))
    (folder / JOB).unlink(missing_ok=True)
    return result
