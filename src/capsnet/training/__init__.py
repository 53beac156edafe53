"""Training: configuration, loop, checkpoints, run folders."""

from capsnet.training.checkpoint import Diverged
from capsnet.training.config import TrainConfig, read_config
from capsnet.training.loop import Interrupted, Result, train

__all__ = ["Diverged", "Interrupted", "Result", "TrainConfig", "read_config", "train"]
