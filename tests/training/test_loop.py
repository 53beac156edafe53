"""The training loop: what a run leaves, that it learns, and that stopping and resuming changes nothing at all."""

import dataclasses
import itertools
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import capsnet
from capsnet.training import Diverged, Interrupted, TrainConfig, loop, read_config
from capsnet.training import report as report_module
from capsnet.training import run as run_folder


def weights_of(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def stop_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Make the next runs believe that Ctrl-C was pressed during their step ``steps``."""

    @contextmanager
    def pressed() -> Iterator[Callable[[], bool]]:
        count = itertools.count(1)
        yield lambda: next(count) >= steps

    monkeypatch.setattr(loop, "stop_politely", pressed)


def test_a_run_learns_and_leaves_a_readable_folder(quick: TrainConfig, tmp_path: Path) -> None:
    config = dataclasses.replace(quick, epochs=20, lr=2e-2, ema=None, tensorboard=True)
    result = capsnet.train(config, out=tmp_path / "run")
    assert result.test.accuracy.value > 0.5  # chance is 0.1
    assert result.folder == tmp_path / "run"
    names = {path.name for path in result.folder.iterdir()}
    files = {"config.json", "env.json", "metrics.jsonl", "results.json", "model.safetensors", "README.md"}
    assert names == files | {"figures", "tensorboard"}
    drawn = {path.name for path in (result.folder / "figures").iterdir()}
    assert drawn == {"reconstructions.png", "sweep.png", "confusion.png", "curves.png"}
    assert read_config(result.folder / "config.json") == config
    assert not (result.folder / ".lock").exists()
    epochs = run_folder.Run(result.folder).records("epoch")
    assert [line["epoch"] for line in epochs] == list(range(1, 21))
    assert epochs[-1]["train_loss"] < epochs[0]["train_loss"]
    text = (result.folder / "README.md").read_text()
    assert str(result.test.accuracy) in text
    assert "capsnet predict" in text
    environment = json.loads((result.folder / "env.json").read_text())
    assert environment["torch"] == torch.__version__
    # what is saved is what was tested
    again = capsnet.evaluate(result.folder, config.data)
    assert again.metrics == result.test.metrics
    assert json.loads((result.folder / "results.json").read_text())["accuracy"] == result.test.metrics["accuracy"]


def test_tensorboard_holds_curves_pictures_and_the_graph(quick: TrainConfig, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = capsnet.train(dataclasses.replace(quick, tensorboard=True, epochs=1), out=tmp_path / "run")
    events = EventAccumulator(str(result.folder / "tensorboard"), size_guidance={"images": 0})
    events.Reload()
    assert "epoch/val_accuracy" in events.Tags()["scalars"]
    assert "reconstructions" in events.Tags()["images"]
    graph = " ".join(node.name for node in events.Graph().node)
    assert "primary" in graph
    assert "classes" in graph
    assert "decoder" in graph


@pytest.mark.parametrize("steps", [1, 2, 4, 6])
@pytest.mark.parametrize("change", [{}, {"model": "cnn-small", "model_options": {}, "ema": None, "keep": "last"}])
def test_stop_and_resume_equals_one_run_bit_for_bit(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, change: dict
) -> None:
    """Mid-epoch and at an epoch's end, with augmentation, one-cycle, averaged weights; with dropout in the CNN."""
    monkeypatch.setattr(loop, "RECORD_EVERY", 1)
    config = dataclasses.replace(quick, **change)
    whole = capsnet.train(config, out=tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop_after(patch, steps)
        with pytest.raises(Interrupted, match="--resume"):
            capsnet.train(config, out=tmp_path / "parts")
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    parts = capsnet.train(config, out=tmp_path / "parts", resume="auto")
    assert weights_of(parts.folder) == weights_of(whole.folder)
    lines = [[_without_clock(line) for line in run_folder.Run(r.folder).records()] for r in (whole, parts)]
    assert lines[0] == lines[1]
    assert not (parts.folder / "checkpoint.pt").exists()


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_an_epoch_takes_as_long_as_all_its_sittings_together(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Stopped in the middle or at its end; a step takes ten seconds, and a day goes by in between."""
    now = [0.0]
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    real = loop.train_step

    def slow(*arguments: object) -> object:
        now[0] += 10
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "train_step", slow)
    with monkeypatch.context() as patch:
        stop_after(patch, steps)
        with pytest.raises(Interrupted):
            capsnet.train(quick, out=tmp_path / "run", figures=False)
    now[0] += 86_400
    capsnet.train(quick, out=tmp_path / "run", resume="auto", figures=False)
    epochs = run_folder.Run(tmp_path / "run").records("epoch")
    assert [line["seconds"] for line in epochs] == [40, 40]
    assert [line["images_per_second"] for line in epochs] == [5, 5]  # 200 images


def test_a_checkpoint_without_a_clock_still_goes_on(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As versions before wrote them; at an epoch's end nothing of it is left to be timed."""
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        with pytest.raises(Interrupted):
            capsnet.train(quick, out=tmp_path / "run")
    path = tmp_path / "run" / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    del content["spent"]
    torch.save(content, path)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: 0.0)
    capsnet.train(quick, out=tmp_path / "run", resume="auto", figures=False)
    assert run_folder.Run(tmp_path / "run").records("epoch")[0]["images_per_second"] == 0


def _without_clock(line: dict) -> dict:
    return {key: value for key, value in line.items() if key not in ("images_per_second", "seconds")}


def test_no_figure_and_no_name_costs_the_weights(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idx_folder: Path
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("no font for this")

    config, out = dataclasses.replace(quick, epochs=1), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(report_module.figures, "learning_curves", fail)
        with pytest.raises(RuntimeError, match="no font"):
            capsnet.train(config, out=out)
    assert capsnet.load(out / "model.safetensors").card["epoch"] == 1
    assert not (out / "results.json").exists()
    assert capsnet.train(config, out=out, resume="auto").folder == out
    odd = tmp_path / os.fsdecode(b"sch\xf6n")
    with pytest.raises(ValueError, match=r"sch.udcf6n/run: the name of the run's folder is not UTF-8: rename it"):
        capsnet.train(config, out=odd / "run")  # no weights could be read from there
    shutil.copytree(idx_folder, odd)
    with pytest.raises(ValueError, match=r"sch.udcf6n: the name of the data is not UTF-8: rename it"):
        capsnet.train(dataclasses.replace(config, data=f"mnist:{odd}"), out=tmp_path / "other")


def test_the_seed_decides_everything(quick: TrainConfig, tmp_path: Path) -> None:
    torch.manual_seed(1)
    first = capsnet.train(quick, out=tmp_path / "a")
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    second = capsnet.train(quick, out=tmp_path / "b")
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's generator is not touched
    other = capsnet.train(dataclasses.replace(quick, seed=1), out=tmp_path / "c")
    assert weights_of(first.folder) == weights_of(second.folder) != weights_of(other.folder)


def test_resume_auto_takes_the_newest_unfinished_run_of_an_equal_config(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = dataclasses.replace(quick, seed=5)
    with monkeypatch.context() as patch:
        stopped = []
        for config in (quick, quick, other):
            stop_after(patch, 2)
            with pytest.raises(Interrupted) as caught:
                capsnet.train(config)
            stopped.append(caught.value.folder)
    assert len(set(stopped)) == 3
    assert all(folder.parent == Path("runs/quick") for folder in stopped)
    assert capsnet.train(quick, resume="auto").folder == stopped[1]
    assert capsnet.train(quick, resume="auto").folder == stopped[0]
    assert capsnet.train(quick, resume="auto").folder not in stopped  # nothing left to resume: a new run


def test_a_run_in_progress_is_not_resumed(quick: TrainConfig, tmp_path: Path) -> None:
    running = run_folder.open_run(quick, tmp_path / "a", "no")
    with running.lock():
        with pytest.raises(ValueError, match="the run there is in use"):
            capsnet.train(quick, out=tmp_path / "a", resume="auto")
        with pytest.raises(ValueError, match="another process"):
            capsnet.train(quick, resume=tmp_path / "a")
    assert capsnet.train(quick, out=tmp_path / "a", resume="auto").folder == tmp_path / "a"


def test_what_cannot_be_resumed_is_said(quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="not a run folder"):
        capsnet.train(quick, resume=tmp_path)
    done = capsnet.train(quick, out=tmp_path / "done")
    with pytest.raises(ValueError, match="finished already"):
        capsnet.train(quick, resume=done.folder)
    with pytest.raises(ValueError, match="not empty"):
        capsnet.train(quick, out=done.folder)
    stop_after(monkeypatch, 1)
    with pytest.raises(Interrupted):
        capsnet.train(quick, out=tmp_path / "stopped")
    with pytest.raises(ValueError, match="another configuration: lr differ"):
        capsnet.train(dataclasses.replace(quick, lr=1e-4), resume=tmp_path / "stopped")
    with pytest.raises(ValueError, match="the run there has another configuration"):
        capsnet.train(dataclasses.replace(quick, lr=1e-4), out=tmp_path / "stopped", resume="auto")
    with pytest.raises(ValueError, match="the run there is finished"):
        capsnet.train(quick, out=done.folder, resume="auto")
    (tmp_path / "stopped" / "checkpoint.pt").write_bytes(b"half a checkpoint")
    with pytest.raises(ValueError, match="not a usable checkpoint: it is damaged"):
        capsnet.train(quick, resume=tmp_path / "stopped")


def test_a_loss_that_is_not_a_number_stops_the_run_and_keeps_the_last_good_checkpoint(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = loop.learning_rate
    with monkeypatch.context() as patch:
        patch.setattr(loop, "learning_rate", lambda c, step, total: math.nan if step == 4 else real(c, step, total))
        with pytest.raises(Diverged, match=r"diverged at step 6 \(epoch 2, batch 2\).*margin nan.*checkpoint\.pt"):
            capsnet.train(dataclasses.replace(quick, checkpoint_every=4), out=tmp_path / "run")
    config = dataclasses.replace(quick, checkpoint_every=4)
    state = loop.new_state(config, loop.build(config, loop.load_splits(config)[0]))
    loop.load_checkpoint(state, tmp_path / "run" / "checkpoint.pt")
    assert state.step == 4
    assert all(p.isfinite().all() for p in state.model.parameters())
    assert capsnet.train(config, resume=tmp_path / "run").folder == tmp_path / "run"


def test_weights_that_are_not_numbers_are_never_saved(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = loop.learning_rate
    monkeypatch.setattr(loop, "learning_rate", lambda c, step, total: math.nan if step == 2 else real(c, step, total))
    with pytest.raises(Diverged, match=r"no longer finite after step 3"):
        capsnet.train(dataclasses.replace(quick, checkpoint_every=1), out=tmp_path / "run")
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["step"] == 2


def test_fine_tuning_starts_from_trained_weights(quick: TrainConfig, tmp_path: Path) -> None:
    first = capsnet.train(dataclasses.replace(quick, epochs=10, lr=1e-2, ema=None), out=tmp_path / "first")
    short = dataclasses.replace(quick, epochs=1, lr=1e-6, ema=None)
    cold = capsnet.train(short, out=tmp_path / "cold")
    warm = capsnet.train(dataclasses.replace(short, init=str(first.folder)), out=tmp_path / "warm")
    assert str(first.folder) in (warm.folder / "README.md").read_text()
    assert warm.model.card["init"] == str(first.folder)
    assert warm.test.accuracy.value == pytest.approx(first.test.accuracy.value, abs=0.1)
    assert warm.test.accuracy.value > cold.test.accuracy.value + 0.2


def test_validation_chooses_the_epoch_and_the_test_split_is_seen_once(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from capsnet import data

    asked: list[str] = []
    real = data.load
    monkeypatch.setattr(data, "load", lambda spec, split: asked.append(split) or real(spec, split))
    evaluated: list[str] = []
    for module in (loop, report_module):
        measure = module.evaluate
        monkeypatch.setattr(
            module, "evaluate", lambda m, d, _measure=measure, **k: evaluated.append(d.name) or _measure(m, d, **k)
        )
    capsnet.train(quick, out=tmp_path / "a")
    assert sorted(asked) == ["test", "train", "validation"]
    assert evaluated == ["mnist validation", "mnist validation", "mnist test"]  # two epochs, then the test, once
    asked.clear()
    evaluated.clear()
    final = capsnet.train(dataclasses.replace(quick, train_on="train+validation"), out=tmp_path / "b")
    assert sorted(asked) == ["test", "train+validation"]
    assert evaluated == ["mnist test"]
    assert "val_accuracy" not in run_folder.Run(final.folder).records("epoch")[-1]


def test_limit_uses_the_first_examples_only(quick: TrainConfig) -> None:
    training, validation, _ = loop.load_splits(dataclasses.replace(quick, limit=30))
    assert len(training) == 30
    assert validation is not None
    assert len(validation) == 40


def test_a_model_without_decoder_and_without_options_for_it(quick: TrainConfig, tmp_path: Path) -> None:
    result = capsnet.train(dataclasses.replace(quick, decoder=False, epochs=1), out=tmp_path / "run")
    assert {p.name for p in (result.folder / "figures").iterdir()} == {"confusion.png", "curves.png"}
    with pytest.raises(ValueError, match="'decoder'"):
        capsnet.train(
            dataclasses.replace(quick, model="cnn-small", model_options={}, decoder=False), out=tmp_path / "x"
        )
    assert not (tmp_path / "x").exists()  # nothing is left by a run that never began


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
            capsnet.train(config, out=tmp_path / "run")
    capsnet.train(config, out=tmp_path / "run", resume="auto")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"), size_guidance={"images": 0}).Reload()
    assert [event.step for event in events.Scalars("epoch/val_accuracy")] == [4, 8]


def test_lines_after_the_checkpoint_are_forgotten(tmp_path: Path) -> None:
    here = run_folder.Run(tmp_path)
    for step in (1, 2, 3):
        here.record({"kind": "step", "step": step})
    for epoch, step in ((1, 1), (2, 2)):
        here.record({"kind": "epoch", "epoch": epoch, "step": step})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"kind": "step", "st')
    here.forget_after(2, 1)  # all steps of the second epoch are done, but it has not ended
    assert [line["step"] for line in here.records("step")] == [1, 2]
    assert [line["epoch"] for line in here.records("epoch")] == [1]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 3


def test_where_a_run_began_is_kept_and_where_it_went_on_is_added(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sit(commit: str, steps: int | None) -> dict:
        with monkeypatch.context() as patch:
            patch.setattr(run_folder, "commit", lambda: commit)
            if steps is None:
                capsnet.train(quick, out=tmp_path / "run", resume="auto", figures=False)
            else:
                stop_after(patch, steps)
                with pytest.raises(Interrupted):
                    capsnet.train(quick, out=tmp_path / "run", resume="auto", figures=False)
        return json.loads((tmp_path / "run" / "env.json").read_text())

    first = sit("a", 1)
    assert "resumed" not in first
    second = sit("b", 2)
    assert {key: value for key, value in second.items() if key != "resumed"} == first
    assert [(one["step"], one["commit"], one["processes"]) for one in second["resumed"]] == [(1, "b", 1)]
    here = run_folder.Run(tmp_path / "run")
    here.record_environment(3, {"commit": "killed before its first checkpoint"})
    last = sit("c", None)
    assert [(one["step"], one["commit"]) for one in last["resumed"]] == [(1, "b"), (3, "c")]
    here.record_environment(0, {"commit": "d"})  # nothing had been kept: it begins anew
    assert json.loads((tmp_path / "run" / "env.json").read_text()) == {"commit": "d"}


def test_the_data_that_was_used_is_what_is_recorded(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idx_folder: Path
) -> None:
    monkeypatch.setenv("CAPSNET_DATA", str(idx_folder))
    result = capsnet.train(dataclasses.replace(quick, data="mnist", epochs=1), out=tmp_path / "run")
    assert read_config(result.folder / "config.json").data == f"mnist:{idx_folder}"
    monkeypatch.delenv("CAPSNET_DATA")
    assert capsnet.evaluate(result.folder).metrics == result.test.metrics  # the card knows the data


def test_weights_that_break_at_the_end_of_an_epoch_are_told_as_divergence(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = loop.learning_rate
    monkeypatch.setattr(loop, "learning_rate", lambda c, step, total: math.nan if step == 3 else real(c, step, total))
    with pytest.raises(Diverged, match=r"no longer finite after step 4; there is no checkpoint yet"):
        capsnet.train(dataclasses.replace(quick, checkpoint_every=1000), out=tmp_path / "run")


def test_a_broken_test_file_is_found_before_training(quick: TrainConfig, tmp_path: Path, idx_folder: Path) -> None:
    broken = shutil.copytree(idx_folder, tmp_path / "broken")
    images = broken / "t10k-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-1])
    with pytest.raises(ValueError, match="t10k-images-idx3-ubyte"):
        capsnet.train(dataclasses.replace(quick, data=f"mnist:{broken}"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
