"""Stopping and resuming: the result is that of an uninterrupted run, also across versions."""

import dataclasses
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import capsnet
from capsnet.training import Interrupted, TrainConfig, loop
from capsnet.training import run as run_folder


def weights_of(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def interrupt(config: TrainConfig, steps: int, **options: Any) -> Path:
    """Train until Ctrl-C is pressed during step ``steps``; the folder of the run."""
    count = itertools.count(1)
    options.setdefault("figures", False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "stop_politely", lambda: nullcontext(lambda: next(count) >= steps))
        with pytest.raises(Interrupted, match="--resume") as caught:
            capsnet.train(config, **options)
    return caught.value.folder


@contextmanager
def older_checkpoint(folder: Path) -> Iterator[dict[str, Any]]:
    """The content of a checkpoint, to be changed and written without a digest, as older versions did."""
    content = torch.load(folder / "checkpoint.pt", weights_only=True)
    yield content
    content.pop("digest", None)
    torch.save(content, folder / "checkpoint.pt")


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"model": "cnn-small", "model_options": {}, "ema": None, "keep": "last"},
        {"model": "efficient-capsnet", "model_options": {"channels": [4, 4, 4, 8], "decoder_widths": [8, 9]}},
        {"model": "akorn-small", "model_options": {"channels": 2, "depth": 1, "steps": 2}},
    ],
)
def test_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict
) -> None:
    """Mid-epoch and at an epoch's end, with augmentation, one-cycle, averaged weights; with dropout in the CNN, with
    BatchNorm in Efficient-CapsNet, with first phases at random in AKOrN."""
    monkeypatch.setattr(loop, "RECORD_EVERY", 1)
    config = dataclasses.replace(quick, **change)
    uninterrupted = capsnet.train(config, out=tmp_path / "whole", figures=False)
    for steps in (1, 2, 4, 6):
        folder = interrupt(config, steps, out=tmp_path / f"stopped in step {steps}")
        assert not (folder / "model.safetensors").exists()
        parts = capsnet.train(config, out=folder, resume="auto", figures=False)
        assert weights_of(parts.folder) == weights_of(uninterrupted.folder)
        lines = [[_without_clock(line) for line in run_folder.Run(r.folder).records()] for r in (uninterrupted, parts)]
        assert lines[0] == lines[1]
        assert not (parts.folder / "checkpoint.pt").exists()


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_epoch_seconds_add_up_over_resumes(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Stopped in the middle or at the end of an epoch; a step takes ten seconds, and a day passes in between."""
    now = [0.0]
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    real = loop.train_step

    def slow(*arguments: object) -> object:
        now[0] += 10
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "train_step", slow)
    interrupt(quick, steps, out=tmp_path / "run")
    now[0] += 86_400
    capsnet.train(quick, out=tmp_path / "run", resume="auto", figures=False)
    epochs = run_folder.Run(tmp_path / "run").records("epoch")
    assert [line["seconds"] for line in epochs] == [40, 40]
    assert [line["images_per_second"] for line in epochs] == [5, 5]  # 200 images


def test_checkpoint_without_times_resumes(quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As earlier versions wrote them; at an epoch's end there is nothing to be timed."""
    with older_checkpoint(interrupt(quick, 4, out=tmp_path / "run")) as content:
        del content["spent"]
    monkeypatch.setattr(loop.time, "perf_counter", lambda: 0.0)
    capsnet.train(quick, out=tmp_path / "run", resume="auto", figures=False)
    assert run_folder.Run(tmp_path / "run").records("epoch")[0]["images_per_second"] == 0


def _without_clock(line: dict) -> dict:
    return {key: value for key, value in line.items() if key not in ("images_per_second", "seconds")}


def test_resume_auto_takes_the_newest_unfinished_run_of_an_equal_config(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stopped = [interrupt(config, 2) for config in (quick, quick, dataclasses.replace(quick, seed=5))]
    assert len(set(stopped)) == 3
    assert all(folder.parent == Path("runs/quick") for folder in stopped)
    assert capsnet.train(quick, resume="auto", figures=False).folder == stopped[1]
    assert capsnet.train(quick, resume="auto", figures=False).folder == stopped[0]
    assert capsnet.train(quick, resume="auto", figures=False).folder not in stopped  # nothing left to resume: a new run


def test_run_in_progress_is_not_resumed(quick: TrainConfig, tmp_path: Path) -> None:
    running = run_folder.open_run(quick, tmp_path / "a", "no")
    with running.lock():
        with pytest.raises(ValueError, match="the run there is in use"):
            capsnet.train(quick, out=tmp_path / "a", resume="auto", figures=False)
        with pytest.raises(ValueError, match="another process"):
            capsnet.train(quick, resume=tmp_path / "a", figures=False)
    assert capsnet.train(quick, out=tmp_path / "a", resume="auto", figures=False).folder == tmp_path / "a"


def test_impossible_resume_gives_the_reason(quick: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not a run folder"):
        capsnet.train(quick, resume=tmp_path, figures=False)
    done = capsnet.train(quick, out=tmp_path / "done", figures=False)
    with pytest.raises(ValueError, match="finished already"):
        capsnet.train(quick, resume=done.folder, figures=False)
    with pytest.raises(ValueError, match="not empty"):
        capsnet.train(quick, out=done.folder, figures=False)
    interrupt(quick, 1, out=tmp_path / "stopped")
    with pytest.raises(ValueError, match="another configuration: lr differ"):
        capsnet.train(dataclasses.replace(quick, lr=1e-4), resume=tmp_path / "stopped", figures=False)
    with pytest.raises(ValueError, match="the run there has another configuration"):
        capsnet.train(dataclasses.replace(quick, lr=1e-4), out=tmp_path / "stopped", resume="auto", figures=False)
    with pytest.raises(ValueError, match="the run there is finished"):
        capsnet.train(quick, out=done.folder, resume="auto", figures=False)
    (tmp_path / "stopped" / "checkpoint.pt").write_bytes(b"half a checkpoint")
    with pytest.raises(ValueError, match="not a usable checkpoint: it is damaged"):
        capsnet.train(quick, resume=tmp_path / "stopped", figures=False)


def test_metrics_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    run = run_folder.Run(tmp_path)
    for step in (1, 2, 3):
        run.record({"kind": "step", "step": step})
    for epoch, step in ((1, 1), (2, 2)):
        run.record({"kind": "epoch", "epoch": epoch, "step": step})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"kind": "step", "st')
    run.forget_after(2, 1)  # all steps of the second epoch are done, but it has not ended
    assert [line["step"] for line in run.records("step")] == [1, 2]
    assert [line["epoch"] for line in run.records("epoch")] == [1]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 3


def test_environment_lists_where_a_run_was_resumed(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sit(commit: str, steps: int | None) -> dict:
        with monkeypatch.context() as patch:
            patch.setattr(run_folder, "commit", lambda: commit)
            if steps is None:
                capsnet.train(quick, out=tmp_path / "run", resume="auto", figures=False)
            else:
                interrupt(quick, steps, out=tmp_path / "run", resume="auto")
        return json.loads((tmp_path / "run" / "env.json").read_text())

    first = sit("a", 1)
    assert "resumed" not in first
    second = sit("b", 2)
    assert {key: value for key, value in second.items() if key != "resumed"} == first
    assert [(one["step"], one["commit"], one["processes"]) for one in second["resumed"]] == [(1, "b", 1)]
    run = run_folder.Run(tmp_path / "run")
    run.record_environment(3, {"commit": "killed before its first checkpoint"})
    last = sit("c", None)
    assert [(one["step"], one["commit"]) for one in last["resumed"]] == [(1, "b"), (3, "c")]
    run.record_environment(0, {"commit": "d"})  # there was no checkpoint: it starts again
    assert json.loads((tmp_path / "run" / "env.json").read_text()) == {"commit": "d"}


def test_tensorboard_keeps_every_epoch_over_a_resume(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = dataclasses.replace(quick, tensorboard=True)

    def pull_the_plug(*arguments: object, **more: object) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(loop, "report", pull_the_plug)
        with pytest.raises(RuntimeError, match="power cut"):
            capsnet.train(config, out=tmp_path / "run", figures=False)
    capsnet.train(config, out=tmp_path / "run", resume="auto", figures=False)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"), size_guidance={"images": 0}).Reload()
    assert [event.step for event in events.Scalars("epoch/val_accuracy")] == [4, 8]


@pytest.mark.parametrize("model", ["capsnet", "matrix-capsnet-small"])
def test_checkpoint_of_an_earlier_version_resumes_exactly(quick: TrainConfig, tmp_path: Path, model: str) -> None:
    """Earlier versions wrote no scaler and no times, and matrix capsules had a buffer that counted steps."""
    matrix = {"widths": [4, 2, 2, 2], "margin_steps": 5}
    config = quick if model == "capsnet" else dataclasses.replace(quick, model=model, model_options=matrix)
    uninterrupted = capsnet.train(config, out=tmp_path / "whole", figures=False)
    with older_checkpoint(interrupt(config, 6, out=tmp_path / "run")) as content:
        del content["spent"], content["scaler"], content["examples"]
        if model != "capsnet":
            for part, prefix in (("model", ""), ("average", "module."), ("best_weights", "")):
                content[part][f"{prefix}steps"] = torch.tensor(6)
    resumed = capsnet.train(config, out=tmp_path / "run", resume="auto", figures=False)
    assert weights_of(resumed.folder) == weights_of(uninterrupted.folder)


def test_checkpoint_with_the_former_primary_scale_is_refused(quick: TrainConfig, tmp_path: Path) -> None:
    config = dataclasses.replace(quick, model_options={**quick.model_options, "primary_scale": 0.5})
    with older_checkpoint(interrupt(config, 6, out=tmp_path / "run")) as content:
        del content["format"]
    with pytest.raises(ValueError, match="another version"):
        capsnet.train(config, out=tmp_path / "run", resume="auto", figures=False)


def test_checkpoint_of_another_model_is_refused_in_one_sentence(quick: TrainConfig, tmp_path: Path) -> None:
    with older_checkpoint(interrupt(quick, 1, out=tmp_path / "run")) as content:
        content["model"]["unknown"] = content["model"].popitem()[1]
    with pytest.raises(
        ValueError, match=r"not a usable checkpoint: it was written for another model or by another ver"
    ):
        capsnet.train(quick, resume=tmp_path / "run", figures=False)
