"""Whether a stored report is of today's experiment: it would train the same runs with the same settings, or use the
same bundled weights."""

from typing import Literal

from capsnet import weights
from capsnet.experiments import Lab, Report, get
from capsnet.experiments.lab import bundled_for, identity


def version_of(report: Report) -> Literal["today", "earlier", "unknown"]:
    """``unknown``: the report is older than the record of its runs, or of the settings that its experiment declares.

    Runs that depend on files of the user (None) are not compared: their names hold a path of another machine.
    """
    source = report.source
    if source["budget"] == "shipped":
        return "today" if source["bundled"] == bundled_today(source["name"]) else "earlier"
    experiment, asked = get(source["name"]), (source["budget"], len(source["seeds"]), source.get("options", {}))
    try:
        settings = experiment.settings_of(*asked)
        if source.get("settings", settings) != settings:
            return "earlier"
        if ("runs" not in source and source.get("trained_on")) or ("settings" not in source and settings):
            return "unknown"
        if source.get("runs") is None:  # or nothing was trained, so there was nothing to record
            return "today"
        runs = experiment.planned_runs(*asked)
    except ValueError:  # an option that it no longer has
        return "earlier"
    return "today" if runs in (None, source["runs"]) else "earlier"


def bundled_today(name: str) -> dict[str, str]:
    """The bundled networks that an experiment uses, with the fingerprint of their weights."""
    planned = get(name).plan(Lab(name, "shipped", 1, "unused"))
    return {one: identity(weights.resolve(one)) for one in map(bundled_for, planned)}
