"""The optimiser and the learning rate at each step."""

import math

import torch
from torch import Tensor, nn

from capsnet.training.config import TrainConfig

FLOOR = 1e-3  # the lowest learning rate of one-cycle, as a fraction of the peak


def make_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Adam with the default betas, fused."""
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimizer]
    return kind(model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True)


def gradient_norm(model: nn.Module, clip: float | None) -> Tensor:
    """The norm of all gradients; with ``clip``, they are scaled down to that norm if theirs is larger."""
    if clip is None:
        return nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    return nn.utils.clip_grad_norm_(model.parameters(), clip)


def learning_rate(config: TrainConfig, step: int, total: int) -> float:
    """The learning rate of step ``step`` (from 0) of ``total``.

    - paper: lr * 0.96^(step / 2000), continuously, as in the authors' code;
    - one-cycle: half a cosine up over the fraction ``warm_up``, then half a cosine down (Smith and Topin 2017).
    """
    if config.schedule == "constant":
        return config.lr
    if config.schedule == "paper":
        return config.lr * 0.96 ** (step / 2000)
    up = config.warm_up * total
    turn = (step + 1) / up if step + 1 < up else 1 - (step + 1 - up) / max(total - up, 1)
    rise = 0.5 - 0.5 * math.cos(math.pi * turn)
    return config.lr * (FLOOR + (1 - FLOOR) * rise)
