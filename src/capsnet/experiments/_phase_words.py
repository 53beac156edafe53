"""Tables and sentences of ``phase-routing``, from its numbers."""

from statistics import fmean
from typing import Any

from capsnet.experiments._claims import Claim, measure_named, past
from capsnet.experiments._mistakes import compared, read, sign, signed
from capsnet.experiments._report import Measure, Report, Table, curve, error_measure
from capsnet.experiments._routed import DATA, PAIRS
from capsnet.metrics import compare, difference

TAUGHT = ", taught"
ROUTINGS = ("uniform", "dynamic", "dynamic, taught", "em", "kuramoto", "kuramoto, taught")
COMPARED = ("dynamic, taught", "em", "kuramoto", "kuramoto, taught")  # with ``dynamic``, in a sentence each
REFERENCE = "dynamic routing"  # the first of the trials on validation pairs
REACHED = {1: "reached", 0: "within the interval, so whether it is reached is undecided", -1: "not reached"}
AIM = {"MultiMNIST": 60.0, "crowded Shapes": 80.0}  # percent of the children on an object


def error_name(title: str, name: str) -> str:
    return f"{title}, {name}: test error"


def share_name(title: str, name: str) -> str:
    return f"{title}, {name}: share to the own object"


def row(name: str, error: Measure, one: dict[str, Any]) -> list[str]:
    """Error, its difference from that of dynamic routing, and of the last iteration entropy, share, first choice."""
    shares = one["shares"]
    entropy = fmean(share["entropy"][-1] for share in shares)
    own, first = (curve(name, shares, what)[-1] for what in ("own", "first"))
    against = "-" if name in ("dynamic", REFERENCE) else signed(read(one["gap"]))
    return [name, error.shown(), against, f"{entropy:.2f}", own.shown(), f"{first.mean:.1f} %"]


def describe(report: Report) -> None:
    """Measures, tables and findings from the raw numbers."""
    raw = report.raw
    columns = ["routing", "error", "minus that of `dynamic`, points", "entropy of the couplings"]
    columns += ["children's share to their object", "children that put it first"]
    for title in DATA:
        of = raw[title]
        errors = {name: error_measure(error_name(title, name), of[name]["test"]) for name in ROUTINGS}
        report.measures += errors.values()
        rows = [row(name, errors[name], of[name]) for name in ROUTINGS]
        chance = 100 * of["dynamic"]["shares"][0]["chance"]
        for name in ROUTINGS:
            share = curve(share_name(title, name), of[name]["shares"], "own")[-1]
            report.measures.append(share._replace(note=f"chance {chance:.1f} %"))
        report.tables.append(Table(f"{title}, test split, last iteration (chance {chance:.1f} %)", columns, rows))
        report.findings += [verdict(title, of, chance, name) for name in COMPARED]
    for title in DATA:
        tried = raw[f"trials, {title}"]
        errors = tried_errors(tried)
        rows = [row(name, errors[name], one) for name, one in tried.items()]
        caption = f"What makes couplings decide? {title}, validation split, one seed"
        report.tables.append(Table(caption, ["setting of `kuramoto`", *columns[1:]], rows))
        report.findings.append(price(title, tried))
    for name, one in raw[f"trials, {PAIRS}"].items():
        if beta := one["learnt"].get("beta"):
            kept = 100 * one["shares"][0]["own"][-1]
            report.findings.append(
                f"'{name}': left to the gradient, beta ends at {beta[0]:.2f}, and {kept:.1f} % of the children goes "
                "to their object. Below 0 a child avoids the parents with which it agrees."
            )


def tried_errors(tried: dict[str, Any]) -> dict[str, Measure]:
    return {name: error_measure(name, [one["validation"]]) for name, one in tried.items()}


def verdict(title: str, of: dict[str, Any], chance: float, name: str) -> str:
    """A routing against dynamic routing on one data set, whichever way it falls."""
    own = {one: curve(one, of[one]["shares"], "own") for one in ("dynamic", name)}
    last = {one: path[-1] for one, path in own.items()}
    share = difference(
        f"the share of children that goes to their object with `{name}`",
        last[name],
        "that with `dynamic`",
        last["dynamic"],
    )
    error = compared("its test error", read(of[name]["gap"]), "that of `dynamic`")
    path = ", ".join(f"{m.mean:.1f}" for m in own[name])
    words = f"{title}: {share} (chance {chance:.1f} %; over the iterations {path} %); {error}."
    if title in AIM:
        side = compare(last[name], Measure("", [AIM[title]]))
        words += f" The aim of {AIM[title]:.0f} % is {REACHED[side]}."
    return words


def no_loss(tried: dict[str, Any]) -> list[str]:
    """The settings whose error is not shown to be higher than that of dynamic routing."""
    return [name for name, one in tried.items() if name != REFERENCE and sign(read(one["gap"])) <= 0]


def share_of(one: dict[str, Any]) -> float:
    """The share of a trial's children that goes to their object, in percent."""
    return curve("", one["shares"], "own")[-1].mean


def most_at_no_loss(tried: dict[str, Any]) -> str:
    """The setting with the largest share, of those without a higher error; if there is none, of all."""
    return max(no_loss(tried) or tried.keys() - {REFERENCE}, key=lambda name: share_of(tried[name]))


def price(title: str, tried: dict[str, Any]) -> str:
    """Which setting has the largest share at no loss of accuracy, and which has the largest share at all."""
    own = {name: share_of(one) for name, one in tried.items() if name != REFERENCE}
    most, best = max(own, key=own.__getitem__), most_at_no_loss(tried)
    error = compared("its error", read(tried[most]["gap"]), "that of dynamic routing")
    start = f"{title}, validation: of the settings tried, '{most}' has the largest share, {own[most]:.1f} %; {error}. "
    if not no_loss(tried):
        return start + "Each of them has a higher error than dynamic routing."
    error = compared("its error", read(tried[best]["gap"]), "that of dynamic routing")
    best_words = f"'{best}' has the largest, {own[best]:.1f} %; {error}."
    return f"{start}Of those whose error is not shown to be higher, {best_words}"


def claims(report: Report) -> list[Claim]:
    """The aims for the share of the children that goes to its object, at an error that is not higher than that of
    ``dynamic``. What is taught has been trained for this share: its claim is that it can be had."""
    untaught = {"dynamic": "dynamic routing", "em": "EM routing", "kuramoto": "Kuramoto routing"}
    taught = {
        f"{name}{TAUGHT}": f"{words}, taught" for name, words in untaught.items() if f"{name}{TAUGHT}" in ROUTINGS
    }
    found = []
    for title, aim in AIM.items():
        for name, words in (untaught | taught).items():
            share = measure_named(report, share_name(title, name))
            error, gap = measure_named(report, error_name(title, name)), read(report.raw[title][name]["gap"])
            finding = f"{share.shown()} of the couplings of children on an object go to its capsule ({share.note})."
            if name != "dynamic":
                finding += f" {compared(f'The error, {error.mean:.2f} %,', gap, 'that of `dynamic`')}."
            price = "" if name == "dynamic" else ", at an error that is not shown to be higher"
            text = f"{aim:.0f} % of the children on an object go to its capsule{price}: {title}, {words}"
            source = "this package" if name != "dynamic" else "Sabour et al. 2017, who name no number"
            claim = past(text, source, [(share, aim, True)], finding)
            found.append(claim._replace(verdict="does not hold") if sign(gap) > 0 else claim)
    return found
