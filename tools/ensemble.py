"""Test an ensemble of bundled models and write its card, a row of the table of weights in docs/RESULTS.md.

    python -m tools.ensemble docs/results/runs/ensemble-mnist.json NAME NAME ...

The card names the members with the fingerprints of their weights: after one of them was replaced, run it again.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from capsnet import evaluate, weights
from capsnet.experiments import lab
from capsnet.training import environment
from tools.ship import ORIGIN, write_card


def card_of(names: list[str], out: str) -> dict[str, Any]:
    """Test the mean of bundled models on the data set of all of them; ``out`` is what its command calls the file."""
    model = weights.ensemble(names)
    if "data" not in model.card:
        raise ValueError(f"the models are of different data sets: {', '.join(names)}")
    spec, env = model.card["data"], environment(torch.device("cpu"))
    accuracy = evaluate(model, spec, progress=True).accuracy._asdict()
    command = f"capsnet ensemble {' '.join(names)} --out {out}\ncapsnet evaluate {out}"
    return {
        "data": spec,
        "test_accuracy": accuracy,
        "tests": {spec: accuracy},
        "members": {name: lab.identity(weights.resolve(name)) for name in names},
        "origin": {key: env[key] for key in ORIGIN} | {"command": command},
    }


def main(arguments: list[str] | None = None) -> None:
    about, _, details = (__doc__ or "").partition("\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tools.ensemble", None, about, details, formatter_class=form)
    parser.add_argument("file", type=Path, help="the card to write")
    parser.add_argument("names", nargs="+", choices=weights.list_weights(), metavar="NAME", help="bundled models")
    args = parser.parse_args(arguments)
    try:
        write_card(card_of(args.names, f"{args.file.stem}.safetensors"), args.file)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
