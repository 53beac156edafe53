"""What a run tells others while it trains: the interface of experiment trackers, and optional packages.

A tracker for Weights & Biases or MLflow is ten lines: see docs/trackers.md.
"""

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

log = logging.getLogger("capsnet")
_LEFT_OUT = {"tensorboard": "event files for TensorBoard", "matplotlib": "figures"}


class Tracker(Protocol):
    """What ``train(config, trackers=[...])`` calls, in the main process only.

    What a tracker raises ends the run, which can be resumed.
    """

    def begin(self, config: dict[str, Any], folder: Path) -> None:
        """Before the first step. A resumed run begins again with the same folder, whose name can be its id."""

    def log(self, kind: str, values: dict[str, float], step: int) -> None:
        """The numbers of a line of ``metrics.jsonl``: ``kind`` is "step" (every 50 steps) or "epoch"."""

    def end(self, results: dict[str, Any] | None) -> None:
        """The test metrics of a finished run; None if it was stopped or has failed."""


def check_trackers(trackers: Sequence[Tracker]) -> None:
    """Refuse what is no tracker before a run begins."""
    for tracker in trackers:
        if missing := [name for name in ("begin", "log", "end") if not callable(getattr(tracker, name, None))]:
            raise ValueError(
                f"a tracker has the methods begin, log and end (docs/trackers.md); {type(tracker).__name__} has no "
                f"{', '.join(missing)}"
            )


def available(figures: bool, tensorboard: bool) -> tuple[bool, bool]:
    """Which of the two a run can make; logs in one sentence what it leaves out."""
    wanted = {"matplotlib": figures, "tensorboard": tensorboard}
    missing = [name for name, needed in wanted.items() if needed and find_spec(name) is None]
    if missing:
        made = " and ".join(_LEFT_OUT[name] for name in missing)
        log.info("%s not installed: the run leaves out %s; pip install 'capsnet[train]'", _are(missing), made)
    return figures and "matplotlib" not in missing, tensorboard and "tensorboard" not in missing


def _are(names: list[str]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"
