"""The average of the weights: short at first, then exponential; counters are copied."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from capsnet.training.checkpoint import moving_average, update_average


def test_moving_average_forgets_the_initial_weights() -> None:
    mean, value = torch.zeros(3), torch.ones(3)
    update = moving_average(0.999)
    for step in range(1, 101):
        update([mean], [value], step)
    # a constant 0.999 would still be at 0.095 here
    assert mean.tolist() == pytest.approx([1.0] * 3, abs=1e-6)


def test_moving_average_is_exponential_in_the_end() -> None:
    mean = torch.zeros(1, dtype=torch.float64)
    moving_average(0.9)([mean], [torch.ones(1, dtype=torch.float64)], 10_000)
    assert mean.item() == pytest.approx(0.1)


def test_moving_average_copies_counters() -> None:
    mean = torch.tensor(3)
    moving_average(0.99)([mean], [torch.tensor(7)], torch.tensor(50))
    assert mean.item() == 7


def test_update_equals_that_of_the_averaged_model() -> None:
    """With BatchNorm's counters; to the last bit, so that older runs resume exactly."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    averages = [AveragedModel(model, multi_avg_fn=moving_average(0.9), use_buffers=True) for _ in range(2)]
    for count in range(12):
        model(torch.randn(5, 3))
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        averages[0].update_parameters(model)
        update_average(averages[1], model, 0.9, count)
        one, other = (average.state_dict() for average in averages)
        assert all(torch.equal(one[name], other[name]) for name in one)
