"""What came out of an experiment: numbers beside the published ones, tables, figures, sentences."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capsnet.drawing.document import Bullets, Code, Document, Figure, Heading, Table
from capsnet.metrics import Measure, wilson_interval


def error_measure(name: str, accuracies: Sequence[dict[str, Any]], published: str = "-", note: str = "") -> Measure:
    """Test errors in percent from the ``accuracy`` (or ``exact_match``) of several seeds.

    The interval is Wilson's at the mean accuracy for *one* test set: what its size leaves open. Seeds are tested on the
    same examples, so more seeds do not narrow it.
    """
    values = [100 * (1 - one["value"]) for one in accuracies]
    n = accuracies[0]["n"]
    low, high = wilson_interval(round(n * statistics.fmean(one["value"] for one in accuracies)), n)
    return Measure(name, values, "%", published, (100 * (1 - high), 100 * (1 - low)), note, n)


def curve(name: str, runs: Sequence[dict[str, Any]], what: str, factor: float = 100.0) -> list[Measure]:
    """A number of each iteration over the seeds, with its interval, in percent: see ``inference.coupling_shares``."""
    result = []
    for r in range(len(runs[0][what])):
        values = [factor * one[what][r] for one in runs]
        mean, reach = statistics.fmean(values), factor * statistics.fmean(one[f"{what} interval"][r] for one in runs)
        interval = (mean - reach, mean + reach)
        result.append(Measure(name, values, "%", interval=interval, n=runs[0]["pictures"]))
    return result


@dataclass
class Report:
    """Everything a reader should see, and ``raw``: every number behind it."""

    measures: list[Measure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    """Plain sentences: what the numbers say, also where they do not support the claim."""
    differs: list[str] = field(default_factory=list)
    """What is not as in the paper: budget, size, data."""
    raw: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    """Where it comes from: name, title, about, budget, seeds, options, command, planned runs, settings, seconds,
    environment. Set by ``reproduce``."""

    def draw(self, path: Path, caption: str) -> None:
        """Add a figure that has been drawn."""
        self.figures.append(Figure(path, caption))

    def to_dict(self) -> dict[str, Any]:
        """What the JSON file holds."""
        return self.source | {
            "measures": [m._asdict() | {"mean": m.mean, "spread": m.spread} for m in self.measures],
            "tables": [table._asdict() for table in self.tables],
            "figures": [{"file": f"figures/{f.path.name}", "caption": f.caption} for f in self.figures],
            "findings": self.findings,
            "differs": self.differs,
            "raw": _finite(self.raw),
        }

    @classmethod
    def read(cls, path: Path, figures: Path) -> Report:
        """A report back from its JSON file, its figures in the given folder."""
        values = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            [read_measure(one) for one in values.pop("measures")],
            [Table(**one) for one in values.pop("tables")],
            [Figure(figures / Path(one["file"]).name, one["caption"]) for one in values.pop("figures")],
            values.pop("findings"),
            values.pop("differs"),
            values.pop("raw"),
            values,
        )

    def to_markdown(self, level: int = 1, note: str = "") -> str:
        """The report as Markdown, under a heading of this level that is the experiment's name, and a note on it."""
        blocks = [f"**{self.source['title']}**", note, *self._results()]
        if self.differs:
            blocks += ["What differs from the publication:", Bullets(self.differs)]
        blocks += [Code(self.source["command"]), f"{duration(self.source['seconds'])} of work; {self._machine()}"]
        return Document(self.source["name"], blocks).to_markdown(level)

    def to_html(self) -> str:
        """The report as one page that needs no other file."""
        budget, seeds = self.source["budget"], plural(len(self.source["seeds"]), "seed")
        page = Document(self.source["title"])
        page.add(f"Budget {budget}, {seeds}, {duration(self.source['seconds'])} of work.", *self._results("Ours"))
        page.add(Heading("What this is"), *self.source["about"].split("\n\n"))
        if self.differs:
            page.add(Heading("What differs from the publication"), Bullets(self.differs))
        page.add(Heading("How to repeat it"), Code(self.source["command"]), self._machine())
        return page.add(Code(json.dumps(_finite(self.raw)), "Every number behind this page (JSON)")).to_html()

    def _results(self, title: str = "") -> list[Any]:
        heading = f"{title} and the published figure" if title else ""
        rows = [[m.name + (f" ({m.note})" if m.note else ""), m.shown(), m.published] for m in self.measures]
        measures = Table(heading, ["", "ours", "published"], rows)
        return [Bullets(self.findings), measures, *self.tables, *self.figures]

    def _machine(self) -> str:
        env = self.source["environment"]
        return (
            f"{env['processor']}, {plural(env['threads'], 'thread')}, {env['device']}; capsnet {env['capsnet']}, "
            f"torch {env['torch']}, Python {env['python']}; {env['started']}"
        )


def duration(seconds: float) -> str:
    """``40 seconds``, ``12 minutes``, ``7 hours``, ``3 days``."""
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 1.5 * size:
            return plural(seconds / size, word)
    return plural(max(1, seconds), "second")


def plural(number: float, noun: str) -> str:
    return f"{number:.0f} {noun}{'' if round(number) == 1 else 's'}"


def read_measure(values: dict[str, Any]) -> Measure:
    """A measure back from its JSON."""
    fields: dict[str, Any] = {key: values[key] for key in Measure._fields if key in values}
    fields["interval"] = tuple(values["interval"]) if values["interval"] else None
    return Measure(**fields)


def _finite(value: Any) -> Any:
    """NaN and infinity are not JSON: they become null."""
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
