"""Which registered models and routings can be exported: the tables of docs/export.md.

    python -m tools.export_table            # exports everything and writes the tables into docs/export.md

Every row comes from a registry. ``tests/export`` compares the page with the same rows.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from capsnet import create_model, list_models, routing
from capsnet._files import write_atomically
from capsnet.export import SUFFIX, export, trace
from capsnet.models import Model, model_options

GUIDE = Path(__file__).parents[1] / "docs" / "export.md"
MODELS = ("| model | ONNX | torch | outputs | free sizes |", "|---|---|---|---|---|")
ROUTINGS = ("| routing, in `{}` | ONNX | torch |", "|---|---|---|")


def build(name: str, **options: Any) -> Model:
    """A registered model with its default sizes; one of texts gets words.

    It routes twice, and oscillators make two steps: two iterations have every operator that more have, and the time
    grows with the operators.
    """
    if "steps" in model_options(name):
        options = {"steps": 2} | options
    route = routing.get(options.get("routing", model_options(name).get("routing", "uniform")))
    if "iterations" in model_options(name) and "iterations" in route.options():
        options = {"iterations": 2} | options
    model = create_model(name, **options).eval()
    if model.takes_texts:
        words = [f"w{k}" for k in range(2, model.config["vocabulary"])]
        model.preprocessing = {"vocabulary": ["<padding>", "<unknown>", *words]}
    return model


def attempt(model: Model, folder: Path) -> tuple[str, ...]:
    """Whether each format works ("yes", or "no" and why), the names of the outputs, and the sizes left free."""
    found, ports = [], []
    try:
        traced = trace(model)
    except ValueError as error:
        return (*[_no(error)] * len(SUFFIX), "", "")
    for format, suffix in SUFFIX.items():
        try:
            ports = export(traced, folder / f"model{suffix}", format).outputs
            found.append("yes")
        except ValueError as error:
            found.append(_no(error))
    return (*found, ", ".join(ports), "texts, words" if model.takes_texts else "images")


def _no(error: ValueError) -> str:
    return f"no: {str(error).split('. ')[0]}"


def model_row(name: str, folder: Path) -> str:
    return f"| `{name}` | {' | '.join(attempt(build(name), folder))} |"


def host() -> str:
    """The first registered model whose routing can be chosen: the one to export each routing in."""
    return next(name for name in list_models() if "routing" in model_options(name))


def routing_row(name: str, folder: Path) -> str:
    return f"| `{name}` | {' | '.join(attempt(build(host(), routing=name), folder)[:2])} |"


def tables(folder: Path) -> str:
    models = [*MODELS, *(model_row(name, folder) for name in list_models())]
    rows = [*(line.format(host()) for line in ROUTINGS), *(routing_row(name, folder) for name in routing.list_forms())]
    return "\n".join([*models, "", *rows]) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser("python -m tools.export_table", description=__doc__).parse_args()
    text = GUIDE.read_text()
    start, rest = text.index(MODELS[0]), text[text.index(ROUTINGS[0].partition("{")[0]) :]
    with tempfile.TemporaryDirectory() as place:
        made = tables(Path(place))
    write_atomically(GUIDE, text[:start] + made + rest[rest.index("\n\n") + 1 :])
