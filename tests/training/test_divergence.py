"""Numbers that are not finite stop a run and are never written."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch

import capsnet
from capsnet.training import Diverged, TrainConfig, loop


def test_nan_loss_stops_the_run_and_keeps_the_last_good_checkpoint(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = loop.learning_rate
    with monkeypatch.context() as patch:
        patch.setattr(loop, "learning_rate", lambda c, step, total: math.nan if step == 4 else real(c, step, total))
        with pytest.raises(Diverged, match=r"diverged at step 6 \(epoch 2, batch 2\).*margin nan.*checkpoint\.pt"):
            capsnet.train(dataclasses.replace(quick, checkpoint_every=4), out=tmp_path / "run", figures=False)
    config = dataclasses.replace(quick, checkpoint_every=4)
    state = loop.new_state(config, loop.build(config, loop.load_splits(config)[0]))
    loop.load_checkpoint(state, tmp_path / "run" / "checkpoint.pt")
    assert state.step == 4
    assert all(p.isfinite().all() for p in state.model.parameters())
    assert capsnet.train(config, resume=tmp_path / "run", figures=False).folder == tmp_path / "run"


def test_nan_weights_are_not_saved(quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = loop.learning_rate
    monkeypatch.setattr(loop, "learning_rate", lambda c, step, total: math.nan if step == 2 else real(c, step, total))
    with pytest.raises(Diverged, match=r"no longer finite after step 3"):
        capsnet.train(dataclasses.replace(quick, checkpoint_every=1), out=tmp_path / "run", figures=False)
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["step"] == 2


def test_nan_weights_at_the_end_of_an_epoch_are_divergence(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = loop.learning_rate
    monkeypatch.setattr(loop, "learning_rate", lambda c, step, total: math.nan if step == 3 else real(c, step, total))
    with pytest.raises(Diverged, match=r"no longer finite after step 4; there is no checkpoint yet"):
        capsnet.train(dataclasses.replace(quick, checkpoint_every=1000), out=tmp_path / "run", figures=False)


@pytest.mark.parametrize("every", [2, 100])
def test_losses_read_late_name_the_step_and_save_nothing(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """As on a GPU, where reading a loss waits: step 6 diverges, found at the next record or save."""
    real = loop.learning_rate
    monkeypatch.setattr(loop, "IMMEDIATE", ())
    monkeypatch.setattr(loop, "RECORD_EVERY", every)
    monkeypatch.setattr(loop, "learning_rate", lambda c, step, total: math.nan if step == 4 else real(c, step, total))
    with pytest.raises(Diverged, match=r"diverged at step 6 \(epoch 2, batch 2\).*margin nan.*checkpoint\.pt"):
        capsnet.train(dataclasses.replace(quick, checkpoint_every=4), out=tmp_path / "run", figures=False)
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["step"] == 4


def test_losses_read_late_are_the_same(quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "RECORD_EVERY", 3)
    texts = []
    for name, immediate in (("a", ("cpu",)), ("b", ())):
        monkeypatch.setattr(loop, "IMMEDIATE", immediate)
        folder = capsnet.train(quick, out=tmp_path / name, figures=False).folder
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        texts.append([{k: v for k, v in line.items() if k not in ("seconds", "images_per_second")} for line in lines])
    assert texts[0] == texts[1]
