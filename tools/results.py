"""Write docs/RESULTS.md from the folders of finished experiments.

    python -m tools.results [OUT [DOCS]]      (`make results`)

For each experiment the last of its budgets that is finished in OUT is copied to DOCS/results (JSON file and figures),
and the page is written anew from the files there. A stored report of an earlier version of its experiment is not shown:
its section names the command that measures it again.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

from capsnet.drawing.document import Document, Table
from capsnet.experiments import Budget, Report, list_experiments
from capsnet.experiments import get as get_experiment
from tools._stale import version_of
from tools._weights import weights_section

EARLIER = "Its numbers are of an earlier version and are not shown. `capsnet reproduce {}` measures them again."
UNKNOWN = (
    "Measured with capsnet {}, which did not record its runs: whether the experiment has changed since is not known."
)
PREFACE = """# Results

Every table and figure of the literature that `capsnet reproduce` has, as measured with this package: ours beside the
published figure. This page is written by `make results` from the files in `docs/results/`, each of which holds the
command, the seeds, the versions, the machine, the wall time and every raw number.

Networks are chosen (which epoch to keep, when to stop) on validation digits, or keep their last epoch, and are tested
once. `±` is the standard deviation over seeds; brackets are 95 % intervals that say what the size of the test set
leaves open. Most runs below have the *quick* budget: small networks, minutes of training on two CPU cores. They show
whether an effect exists, not how large it can be; *shipped* are those of the bundled networks, and *day* strong
networks on a residual stem, each trained for minutes to an hour. Each section says what differs.
"""


CLAIMS = """A verdict is computed from 95 % intervals: a claim *holds* or *does not hold* where they are apart, and is
*undecided* where they overlap. With several seeds, Welch's interval over the seeds must agree. This is careful:
networks that answer the same pictures may differ although their intervals overlap. [table1](#table1),
[phase-routing](#phase-routing), [twins](#twins), [small-data](#small-data) and [scramble-faces](#scramble-faces)
compare answer by answer. It is the verdict on the networks and trainings of that section. A quick run cannot refute a
claim about networks that are trained to the end."""


def gather(out: Path, docs: Path) -> list[str]:
    """Copy what is finished, write the page, and return the names of the experiments that were copied."""
    copied = []
    for name in list_experiments():
        folders = [out / budget / name for budget in ranked(name)]
        finished = [folder for folder in folders if (folder / f"{name}.json").is_file()]
        if finished:
            copy(finished[0], name, docs / "results")
            copied.append(name)
    (docs / "RESULTS.md").write_text(render(docs))
    return copied


def ranked(name: str) -> list[Budget]:
    """The budgets of an experiment, best first, without smoke, whose numbers have no meaning."""
    return [budget for budget in reversed(get_experiment(name).budgets) if budget != "smoke"]


def copy(folder: Path, name: str, place: Path) -> None:
    """Replace the JSON file and the figures of an experiment."""
    figures = Report.read(folder / f"{name}.json", folder / "figures").figures
    shutil.rmtree(place / name, ignore_errors=True)
    (place / name).mkdir(parents=True)
    for figure in figures:
        shutil.copyfile(figure.path, place / name / figure.path.name)
    document = json.loads((folder / f"{name}.json").read_text())
    document.get("environment", {}).pop("command", None)  # has paths of this machine; "command" repeats the experiment
    (place / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


def render(docs: Path) -> str:
    """The page, from the files in DOCS/results alone."""
    files = {name: docs / "results" / f"{name}.json" for name in list_experiments()}
    reports = {name: Report.read(file, Path("results") / name) for name, file in files.items() if file.is_file()}
    versions = {name: version_of(report) for name, report in reports.items()}
    weights = weights_section(docs / "results" / "runs")
    contents, sections = ["- [Bundled weights](#weights)"] if weights else [], [weights] if weights else []
    for name, report in reports.items():
        title, version = report.source["title"], versions[name]
        if version == "earlier":
            contents.append(f"- [{title}](#{name}) (not shown)")
            sections.append(Document(name, [f"**{title}**", EARLIER.format(name)]).to_markdown(2))
        else:
            contents.append(f"- [{title}](#{name}) ({report.source['budget']})")
            note = UNKNOWN.format(report.source["environment"]["capsnet"]) if version == "unknown" else ""
            sections.append(report.to_markdown(level=2, note=note))
    if missing := [name for name in files if name not in reports]:
        contents.append(f"- not run yet: {', '.join(missing)}")
    shown = {name: report for name, report in reports.items() if versions[name] != "earlier"}
    return "\n".join([PREFACE, claims_table(shown), *contents, "", *sections])


def claims_table(reports: dict[str, Report]) -> str:
    """One row for each claim that the reports decide."""
    rows = [
        [c.text, c.source, c.verdict, c.finding, f"[{name}](#{name}), {report.source['budget']}"]
        for name, report in reports.items()
        for c in get_experiment(name).claims(report)
    ]
    return Document("Claims", [CLAIMS, Table("", ["claim", "source", "verdict", "found", "where"], rows)]).to_markdown(
        2
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.results", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, nargs="?", default=Path("results"), help="where `capsnet reproduce` wrote to")
    parser.add_argument("docs", type=Path, nargs="?", default=Path("docs"), help="the folder of RESULTS.md")
    args = parser.parse_args(arguments)
    if not args.docs.is_dir():
        parser.error(f"{args.docs}: there is no such folder; run this in a checkout")
    copied = gather(args.out, args.docs)
    sys.stdout.write(f"{args.docs / 'RESULTS.md'}: {', '.join(copied) or 'nothing new'}\n")


if __name__ == "__main__":
    main()
