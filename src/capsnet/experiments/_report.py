"""What came out of an experiment: numbers beside the published ones, tables, figures, and what differs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capsnet.metrics import Measure, wilson_interval


def error_measure(name: str, shares: Sequence[dict[str, Any]], published: str = "-", note: str = "") -> Measure:
    """Test errors in percent from the `accuracy` (or `exact_match`) of several seeds.

    The interval is Wilson's at the mean accuracy for *one* test set: what its size leaves open. Seeds are tested on the
    same examples, so more of them do not narrow it.
    """
    values = [100 * (1 - s["value"]) for s in shares]
    n = shares[0]["n"]
    low, high = wilson_interval(round(n * statistics.fmean(s["value"] for s in shares)), n)
    return Measure(name, values, "%", published, (100 * (1 - high), 100 * (1 - low)), note)


@dataclass
class Table:
    """Rows of plain words and numbers, for where one value per line is not enough."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass
class Figure:
    path: Path
    caption: str


@dataclass
class Report:
    """Everything a reader should see, and `raw`: every number behind it."""

    measures: list[Measure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    """Plain sentences: what the numbers say, also where they say that we are behind."""
    differs: list[str] = field(default_factory=list)
    """What is not as in the paper: budget, size, data."""
    raw: dict[str, Any] = field(default_factory=dict)

    def draw(self, path: Path, caption: str) -> None:
        self.figures.append(Figure(path, caption))

    def to_dict(self) -> dict[str, Any]:
        return {
            "measures": [
                measure._asdict() | {"mean": measure.mean, "spread": measure.spread} for measure in self.measures
            ],
            "tables": [vars(table) for table in self.tables],
            "figures": [{"file": f"figures/{f.path.name}", "caption": f.caption} for f in self.figures],
            "findings": self.findings,
            "differs": self.differs,
            "raw": _finite(self.raw),
        }


def read_measure(values: dict[str, Any]) -> Measure:
    """A measure back from its JSON."""
    fields = {key: values[key] for key in Measure._fields}
    fields["interval"] = tuple(fields["interval"]) if fields["interval"] else None
    return Measure(**fields)


def _finite(value: Any) -> Any:
    """NaN and infinity are not JSON: they become null."""
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
