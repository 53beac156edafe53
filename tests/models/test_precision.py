"""What stays in float32 under autocast, for every model: weights, statistics, norms, softmax, presences, losses."""

from collections import defaultdict
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from capsnet.functional import squash
from capsnet.models import list_models
from capsnet.routing import get, list_routings
from capsnet.training.objective import Objective
from tests.models import suite

SENSITIVE = {"_softmax", "_log_softmax", "logsumexp", "exp", "linalg_vector_norm", "rsqrt", "log"}


class Record(TorchDispatchMode):
    """The dtypes of the first argument of every operation, and of the statistics of BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, set[torch.dtype]] = defaultdict(set)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        if "batch_norm" in name and "backward" not in name:
            self.seen["statistics"] |= {t.dtype for t in (*args[1:5], *result[1:3]) if isinstance(t, Tensor)}
        elif args and isinstance(args[0], Tensor):
            self.seen[name].add(args[0].dtype)
        return result


@pytest.mark.parametrize("has", ["0", "1"])
@pytest.mark.parametrize("name", list_models())
def test_autocast_keeps_single_precision_where_it_matters(name: str, has: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSNET_BF16", has)
    model = suite.build(name).train()
    images, labels = suite.inputs(model, 4), torch.arange(4) % model.num_classes
    with Record() as record:
        with torch.autocast("cpu", torch.bfloat16):
            output = model(images, labels=labels)
        total, _ = Objective(model, "bf16")(images, labels, labels, images, None, 0)
        total.backward()
    for part in ("lengths", "poses", "logits"):
        value = getattr(output, part)
        assert value is None or value.dtype == torch.float32, part
    assert total.dtype == torch.float32
    for operation in SENSITIVE & set(record.seen) | {"statistics"}:
        assert record.seen[operation] <= {torch.float32}, operation
    lowered = record.seen["convolution"] | record.seen["mm"] | record.seen["addmm"] | record.seen["bmm"]
    assert torch.bfloat16 in lowered
    for parameter in model.parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad is None or parameter.grad.dtype == torch.float32


@pytest.mark.parametrize("name", list_routings())
def test_routing_of_lowered_votes_is_that_of_the_same_in_float32(name: str) -> None:
    votes = torch.randn(2, 5, 3, 4).bfloat16()
    expected = get(name)(votes.float())
    with torch.autocast("cpu", torch.bfloat16):
        routed = get(name)(votes)
        assert squash(votes).dtype == torch.float32
    assert squash(votes).dtype == torch.bfloat16  # a network that is in half precision stays in it
    torch.testing.assert_close(routed.pose, expected.pose)
    torch.testing.assert_close(routed.act, expected.act)
