"""torch.compile: failures are one sentence, and convolutional routing is one graph."""

import dataclasses
from pathlib import Path

import pytest
import torch

import capsnet
from capsnet.training import TrainConfig, objective
from capsnet.training.run import Run
from tests.models.suite import build, inputs


def test_failing_compilation_is_explained(quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(Exception):
        """Like an error of torch.compile."""

    Refused.__module__ = "torch._inductor.exc"

    def refuse(*arguments: object) -> None:
        raise Refused("no compiler here\nand a long story")

    monkeypatch.setattr(objective.Objective, "compile", lambda self: None)
    monkeypatch.setattr(objective.Objective, "forward", refuse)
    with pytest.raises(ValueError, match=r"^torch\.compile failed \(no compiler here\): train without --compile$"):
        capsnet.train(quick, out=tmp_path / "run", device="cpu", compile=True)


@pytest.mark.slow
def test_convolutional_routing_compiles_in_one_graph(quick: TrainConfig, tmp_path: Path) -> None:
    """A graph break costs a third of the speed."""
    config = dataclasses.replace(quick, model="matrix-capsnet-small", model_options={"widths": [4, 2, 2, 2]}, epochs=1)
    torch._dynamo.utils.counters.clear()
    for name in ("plain", "compiled"):
        capsnet.train(config, out=tmp_path / name, device="cpu", compile=name == "compiled", figures=False)
    ours, theirs = (Run(tmp_path / name).records("epoch") for name in ("compiled", "plain"))
    assert [e["train_loss"] for e in ours] == pytest.approx([e["train_loss"] for e in theirs], rel=1e-4)
    assert not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.slow
@pytest.mark.parametrize("name", capsnet.list_models())
def test_step_of_every_model_compiles(name: str) -> None:
    """Forward and backward, as without compilation. That answers compile is in tests/models/suite.py."""
    values = []
    for compiled in (False, True):
        model = build(name).train()
        images, labels = inputs(model, 4), torch.arange(4) % model.num_classes
        torch._dynamo.reset()
        torch.manual_seed(0)  # of dropout
        network = torch.compile(model, backend="aot_eager") if compiled else model
        total = model.loss(network(images, labels), labels, images, step=0).total
        total.backward()
        norms = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None])
        values.append((total.detach(), norms))
    torch.testing.assert_close(values[1], values[0], rtol=1e-3, atol=1e-5)
