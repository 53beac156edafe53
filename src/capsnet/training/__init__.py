"""Training: configuration, loop, checkpoints, run folders."""

from capsnet.training.checkpoint import Diverged
from capsnet.training.config import TrainConfig, read_config
from capsnet.training.folds import Folds, cross_validate
from capsnet.training.loop import Interrupted, Result, train

__all__ = ["Diverged", "Folds", "Interrupted", "Result", "TrainConfig", "cross_validate", "read_config", "train"]
