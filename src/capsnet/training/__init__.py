"""Training: configurations, the loop, checkpoints, run folders, cross-validation.

``capsnet.training.run`` has the names of the files of a run folder.
"""

from typing import TYPE_CHECKING

from capsnet._lazy import lazy
from capsnet.training.config import TrainConfig, check_config, read_config

if TYPE_CHECKING:
    from capsnet.training.checkpoint import Diverged
    from capsnet.training.folds import CrossValidation, cross_validate
    from capsnet.training.learning import Learned, learn
    from capsnet.training.loop import Interrupted, Result, train
    from capsnet.training.objective import Objective, loss_inputs
    from capsnet.training.precision import choose_precision
    from capsnet.training.prepare import build, first, load_splits, recorded
    from capsnet.training.run import Run, environment, processor
    from capsnet.training.tracking import Tracker
    from capsnet.training.trial import Tried, load_to_choose, try_out
else:  # at run time they are imported when the first one is used
    __getattr__, __dir__ = lazy(
        __name__, "checkpoint folds learning loop objective precision prepare run tracking trial"
    )

__all__ = [
    "CrossValidation",
    "Diverged",
    "Interrupted",
    "Learned",
    "Objective",
    "Result",
    "Run",
    "Tracker",
    "TrainConfig",
    "Tried",
    "build",
    "check_config",
    "choose_precision",
    "cross_validate",
    "environment",
    "first",
    "learn",
    "load_splits",
    "load_to_choose",
    "loss_inputs",
    "processor",
    "read_config",
    "recorded",
    "train",
    "try_out",
]
