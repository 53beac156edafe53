"""Whether a stored report is of today's experiment: it would train the same runs, or use the same bundled weights."""

from typing import Literal

from capsnet import weights
from capsnet.experiments import Lab, Report, get
from capsnet.experiments.lab import bundled_for, identity


def version_of(report: Report) -> Literal["today", "earlier", "unknown"]:
    """``unknown``: the report is older than the record of its runs.

    Runs that depend on files of the user (None) are not compared: their names hold a path of another machine.
    """
    source = report.source
    if source["budget"] == "shipped":
        return "today" if source["bundled"] == bundled_today(source["name"]) else "earlier"
    if "runs" not in source:
        return "unknown" if source.get("trained_on") else "today"  # nothing was trained, so there is nothing to record
    if source["runs"] is None:
        return "today"
    try:
        today = get(source["name"]).planned_runs(source["budget"], len(source["seeds"]), source["options"])
    except ValueError:  # an option that it no longer has
        return "earlier"
    return "today" if today in (None, source["runs"]) else "earlier"


def bundled_today(name: str) -> dict[str, str]:
    """The bundled networks that an experiment uses, with the fingerprint of their weights."""
    planned = get(name).plan(Lab(name, "shipped", 1, "unused"))
    return {one: identity(weights.resolve(one)) for one in map(bundled_for, planned)}
