"""Whether a stored report is of today's experiment: it would train the same runs, or use the same bundled weights."""

from capsnet import weights
from capsnet.experiments import Lab, Report, get
from capsnet.experiments.lab import bundled_for, identity


def is_stale(report: Report) -> bool:
    """Whether the experiment has changed since, or what was trained for the report was not recorded.

    Runs that depend on files of the user (None) are not compared: their names hold a path of another machine.
    """
    source = report.source
    if source["budget"] == "shipped":
        return source["bundled"] != bundled_today(source["name"])
    if "runs" not in source:
        return bool(source.get("trained_on"))  # an experiment that trains nothing has nothing to record
    if source["runs"] is None:
        return False
    try:
        today = get(source["name"]).planned_runs(source["budget"], len(source["seeds"]), source["options"])
    except ValueError:  # an option that it no longer has
        return True
    return today is not None and today != source["runs"]


def bundled_today(name: str) -> dict[str, str]:
    """The bundled networks that an experiment uses, with the fingerprint of their weights."""
    planned = get(name).plan(Lab(name, "shipped", 1, "unused"))
    return {one: identity(weights.resolve(one)) for one in map(bundled_for, planned)}
