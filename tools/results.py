"""Gathering: from the folders of finished experiments to one page, docs/RESULTS.md.

    python -m tools.results [OUT [DOCS]]      (`make results`)

For each experiment the largest budget that is finished in OUT is copied to DOCS/results (JSON file and figures),
and the page is written anew from what lies there. So the page can be checked against the files it came from, and an
experiment that was not run again keeps its place.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from capsnet._files import write_atomically
from capsnet.experiments._html import machine, minutes
from capsnet.experiments._report import read_measure
from capsnet.experiments._reproduce import EXPERIMENTS
from tools._boxed import boxed

BUDGETS = ("paper", "shipped", "quick")  # best first; a smoke run's numbers mean nothing
PREFACE = """# Results

Every table and figure of the literature that `capsnet reproduce` has, as measured with this package: ours beside the
published figure. This page is written by `make results` from the files in `docs/results/`, each of which holds the
command, the seeds, the versions, the machine, the wall time and every raw number.

Networks are chosen (which epoch to keep, when to stop) on validation digits, and tested once. `±` is the standard
deviation over seeds; brackets are 95 % intervals that say what the size of the test set leaves open. Most runs below
have the *quick* budget: small networks, minutes of training on two CPU cores. They show whether an effect is there, not
how far it goes; *shipped* are those of the trained networks in the box. Each section says what differs.
"""


def gather(out: Path, docs: Path) -> list[str]:
    """Copy what is finished, write the page, and return the names of the experiments that were found in `out`."""
    found = []
    for name in EXPERIMENTS:
        finished = [out / budget / name for budget in BUDGETS if (out / budget / name / f"{name}.json").is_file()]
        if finished:
            copy(finished[0], name, docs / "results")
            found.append(name)
    write_atomically(docs / "RESULTS.md", render(docs))
    return found


def copy(folder: Path, name: str, place: Path) -> None:
    """The JSON file and its figures, in place of what was there before."""
    document = read(folder / f"{name}.json")
    pictures = place / name
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir(parents=True)
    for figure in document["figures"]:
        source = folder / figure["file"]
        shutil.copyfile(source, pictures / source.name)
    shutil.copyfile(folder / f"{name}.json", place / f"{name}.json")


def render(docs: Path) -> str:
    """The page, from the files in DOCS/results alone."""
    documents = [read(path) for name in EXPERIMENTS if (path := docs / "results" / f"{name}.json").is_file()]
    missing = [name for name in EXPERIMENTS if not (docs / "results" / f"{name}.json").is_file()]
    weights = boxed(docs / "results" / "runs")
    contents = ["- [Trained weights in the box](#weights)"] if weights else []
    contents += [f"- [{d['title']}](#{anchor(d['name'])}) ({d['budget']})" for d in documents]
    if missing:
        contents.append(f"- not run yet: {', '.join(missing)}")
    return "\n".join([PREFACE, *contents, "", *weights, *(section(d) for d in documents)])


def section(document: dict[str, Any]) -> str:
    name = document["name"]
    lines = [f"## {name}", "", f"**{document['title']}**", ""]
    lines += [f"- {sentence}" for sentence in document["findings"]]
    measures = [read_measure(values) for values in document["measures"]]
    if measures:
        rows = [[m.name + (f" ({m.note})" if m.note else ""), m.shown(), m.published] for m in measures]
        lines += ["", *table(["", "ours", "published"], rows)]
    for extra in document["tables"]:
        lines += ["", f"*{extra['title']}*", "", *table(extra["columns"], extra["rows"])]
    for figure in document["figures"]:
        picture = f"results/{name}/{Path(figure['file']).name}"
        lines += ["", f"![{plain(figure['caption'])}]({picture})"]
    if document["differs"]:
        lines += ["", "What differs from the publication:", "", *(f"- {sentence}" for sentence in document["differs"])]
    lines += ["", f"    {document['command']}", ""]
    lines += [f"{minutes(document['seconds'])} of work; {machine(document)}", ""]
    return "\n".join(lines)


def table(columns: list[str], rows: list[list[str]]) -> list[str]:
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in [columns, *rows]]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return [lines[0], "|" + "---|" * len(columns), *lines[1:]]


def plain(caption: str) -> str:
    return caption.replace("[", "(").replace("]", ")").replace("\n", " ")


def anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def main(arguments: list[str]) -> None:
    out, docs = (Path(given) for given in [*arguments, *("results", "docs")[len(arguments) :]])
    if not docs.is_dir():
        sys.exit(f"{docs}: there is no such folder; run this in a checkout")
    found = gather(out, docs)
    sys.stdout.write(f"{docs / 'RESULTS.md'}: {', '.join(found) or 'nothing new'}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
