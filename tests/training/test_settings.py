"""Every setting has an effect on the run."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import capsnet
from capsnet.training import TrainConfig, loop
from capsnet.training import run as run_folder
from capsnet.training.objective import MicroBatch


def test_keep_chooses_the_best_or_the_last_epoch(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validation scores are 0.2, 0.9, 0.3: ``best`` saves the second epoch's weights, ``last`` the third's."""
    saved_weights = {}
    for keep in ("best", "last"):
        scores, weights = iter([0.2, 0.9, 0.3]), []

        def scripted(model, dataset, scores=scores, weights=weights, **more):
            weights.append({name: t.clone() for name, t in model.state_dict().items()})
            metrics = {"accuracy": {"value": next(scores), "low": 0, "high": 1, "n": 1}}
            return capsnet.Evaluation(metrics, np.zeros(0), np.zeros(0))

        with monkeypatch.context() as patch:
            patch.setattr(loop, "evaluate", scripted)
            result = capsnet.train(dataclasses.replace(quick, epochs=3, keep=keep), out=tmp_path / keep, figures=False)
        saved = capsnet.load(result.folder).state_dict()
        saved_weights[keep] = [all(torch.equal(saved[name], w[name]) for name in saved) for w in weights]
    assert saved_weights == {"best": [False, True, False], "last": [False, False, True]}


@pytest.mark.parametrize(
    "change",
    [
        {"clip": 1e-3},
        {"weight_decay": 0.1},
        {"optimizer": "adamw", "weight_decay": 0.1},
        {"ema": None},
        {"augment": capsnet.data.Augment()},
        {"schedule": "constant"},
        {"warm_up": 0.5},
        {"lr": 1e-3},
        {"batch_size": 40},
        {"iterations": 1},
        {"limit": 150},
        {
            "model_options": {
                "conv_channels": 4,
                "primary_types": 2,
                "decoder_widths": [8, 9],
                "reconstruction_weight": 0.01,
            }
        },
    ],
    ids=str,
)
def test_setting_changes_the_weights(quick: TrainConfig, tmp_path: Path, change: dict) -> None:
    """One epoch with and without the setting: the weights must differ (Adam against AdamW as well)."""
    base = dataclasses.replace(quick, epochs=1, keep="last")
    other = dataclasses.replace(base, **({"weight_decay": 0.1} if "optimizer" in change else {}))
    assert final_weights(dataclasses.replace(base, **change)) != final_weights(other)


def final_weights(config: TrainConfig) -> list[float]:
    """Sums of the tested weights after the last epoch, without the report."""
    training, _, _ = loop.load_splits(config)
    state = loop.new_state(config, loop.build(config, training))
    state.examples = len(training)
    order = capsnet.data.batches(training, config.batch_size, seed=0, epoch=0, shuffle=True, augment=config.augment)
    for batch in order:
        loop.train_step(state, [MicroBatch(batch, 1.0)], len(batch.images), None, run_folder.Run(Path()))
    return [p.double().sum().item() for p in state.tested.parameters()]


def test_every_epoch_shuffles_augments_and_shows_the_labels(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple] = []
    real = loop.train_step

    def spy(state, parts, *more):
        seen.append((parts[0].batch.images.clone(), parts[0].batch.targets.clone()))
        return real(state, parts, *more)

    labelled: list[bool] = []
    forward = capsnet.models.CapsNet.forward
    monkeypatch.setattr(loop, "train_step", spy)
    monkeypatch.setattr(
        capsnet.models.CapsNet,
        "forward",
        lambda self, images, labels=None, trace=False: (
            labelled.append(labels is not None) if self.training else None,
            forward(self, images, labels, trace),
        )[1],
    )
    capsnet.train(quick, out=tmp_path / "run", figures=False)
    assert len(seen) == 8
    assert all(labelled)
    assert len(labelled) == 8
    first, second = torch.cat([t for _, t in seen[:4]]), torch.cat([t for _, t in seen[4:]])
    assert not torch.equal(first, second)  # another order in the second epoch
    assert torch.equal(first.sort().values, second.sort().values)  # of the same examples
    plain = capsnet.data.load(quick.data, "train").batch(range(200)).images
    shown = torch.cat([images for images, _ in seen[:4]])
    assert not any(torch.equal(shown[0], image) for image in plain) or not any(
        torch.equal(shown[1], image) for image in plain
    )


def test_threads_are_set_and_bounded(quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    capsnet.train(dataclasses.replace(quick, epochs=1), out=tmp_path / "run", threads=1, figures=False)
    assert counts == [1]
    with pytest.raises(ValueError, match="threads must lie between 1 and"):
        capsnet.train(quick, out=tmp_path / "other", threads=10**8, figures=False)
