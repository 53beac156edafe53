"""The verbs about model files: info, export, ensemble and push."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

import capsnet
from capsnet.cli._talk import print_table, program, say

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(kw_only=True)
class Info:
    """Describe a model: what it is, its size, its classes, what it takes and where it comes from.

    Of a network that is not trained (see `capsnet list models`): its options, which `capsnet train --set` changes.
    """

    model: tyro.conf.Positional[str]
    """A bundled name (see `capsnet list weights`), a file of weights, an exported .onnx file, a run folder,
    hf:user/name, or the name of a network."""
    json: bool = False
    """Print everything as JSON, the whole card included."""

    def run(self, arguments: Sequence[str]) -> None:
        from capsnet import models, weights

        try:
            path = weights.resolve(self.model)
        except FileNotFoundError:
            if self.model not in models.list_models():
                raise
            about, options = models.describe(self.model), models.model_options(self.model)
            known = {"name": self.model, "summary": about, "options": options}
            rows = {name: json.dumps(value, default=str) for name, value in options.items()}
            about += "\n\noptions of this network, which is not trained:"
        else:
            model = capsnet.load(self.model)
            about, known, rows = model.card.get("summary", "") + "\n", record(model, path), summary(model, path)
        if self.json:
            return say(json.dumps(known, indent=2, default=str))
        say(f"{self.model}  {about}".replace("  \n", "\n"))
        return print_table(rows, rows.__getitem__)


def record(model: "capsnet.Model", path: "Path") -> dict[str, Any]:
    """What is known of a model, ready for JSON."""
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "parameters": model.num_parameters(),
        "takes": "texts" if model.takes_texts else "pictures",
        "image_size": None if model.takes_texts else list(model.image_size),
        "channels": None if model.takes_texts else model.in_channels,
        "classes": list(model.class_names),
        "pose_dim": model.pose_dim,
        "routing": model.class_routing.name if model.class_routing else None,
        "draws": model.draws,
        "preprocessing": {} if model.takes_texts else model.preprocessing,
        "config": model.config,
        "card": model.card,
    }


def summary(model: "capsnet.Model", path: "Path") -> dict[str, str]:
    """The rows that people read; what a card does not have is left out."""
    from capsnet import models
    from capsnet.metrics import Proportion

    card, origin, routing = model.card, model.card.get("origin", {}), model.class_routing
    height, width = model.image_size
    kind = {1: "grey", 3: "colour"}.get(model.in_channels, f"{model.in_channels}-channel")
    network, trained_on = model.config.get("name"), card.get("trained_on", card.get("data"))
    if isinstance(trained_on, dict):
        trained_on = f"{trained_on.get('data')}, split {trained_on.get('split')}"
    tested = card.get("test_accuracy")
    rows = {
        "network": f"{network}: {models.describe(network)}" if network else None,
        "parameters": f"{model.num_parameters():,}" if model.num_parameters() else None,
        "file": f"{path}, {path.stat().st_size / 1e6:.1f} MB",
        "takes": "texts" if model.takes_texts else f"any picture, brought to {kind} {height} x {width} pixels",
        "classes": f"{model.num_classes}: {', '.join(model.class_names)}",
        "capsules": f"{model.pose_dim} numbers per class" if model.pose_dim else None,
        "routing": ": ".join(filter(None, [routing.name, routing.sentence])) if routing else None,
        "draws": "reconstructions of its input" if model.draws else None,
        "trained on": trained_on,
        "test accuracy": str(Proportion(**tested)) if tested else None,
        "recipe": card.get("recipe"),
        "command": origin.get("command", card.get("command")),
        "seed": card.get("seed"),
        "commit": origin.get("commit"),
        "date": origin.get("started"),
    }
    return {name: str(value) for name, value in rows.items() if value is not None}


@dataclass(kw_only=True)
class Export:
    """Write a trained model as one file that runs without capsnet, for any number of images at a time.

    The file is run and compared with PyTorch before it is kept. FILE.json beside it says what it takes.
    """

    model: tyro.conf.Positional[str]
    """A bundled name (see `capsnet list weights`), a file of weights, a run folder or hf:user/name."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE")]
    """The file to write, such as digits.onnx, or digits.pt2 for the format torch."""
    format: str = "onnx"
    """`onnx`: for onnxruntime and other runtimes; `torch`: for torch.export.load."""
    int8: bool = False
    """Compute convolutions and linear layers of an ONNX file with 8-bit numbers: a smaller and faster file. It is
    refused if more than 1 % of the answers to validation examples change."""
    data: str | None = None
    """With --int8: the data set that ranges of activations are measured on, as NAME or NAME:PATH (see `capsnet list
    datasets`); default: the one that the model was trained on."""

    def run(self, arguments: Sequence[str]) -> None:
        from capsnet.export import TOLERANCE, export

        format: Any = self.format  # it is checked there
        done = export(self.model, self.out, format, int8=self.int8, data=self.data)
        card = json.loads(done.card.read_text(encoding="utf-8"))
        shape = " x ".join(map(str, card["input"]["shape"]))
        outputs = ", ".join(port["name"] for port in card["outputs"])
        say(f"{done.path}  {done.path.stat().st_size / 1e6:.1f} MB: {card['input']['name']} ({shape}) -> {outputs}")
        if self.int8:
            changed = f"{done.changed:,} of {done.compared:,} validation examples get another answer than from torch"
            say(f"{changed}; lengths differ by up to {done.difference:.2g}")
        else:
            say(f"largest difference from torch  {done.difference:.1e}  (up to {TOLERANCE:g} is accepted)")
        say(f"{done.card}  says how to prepare its input and what its outputs mean")
        if self.format == "onnx":
            what = "TEXT" if card["takes"] == "texts" else "IMAGE"
            say(f"\ntry next:\n  {program('capsnet')} predict {what} --model {shlex.quote(str(done.path))}")


@dataclass(kw_only=True)
class Ensemble:
    """Make one model of several: each class is as present as its capsules are on average.

    The file holds all of them and is used like the weights of one model.
    """

    models: tyro.conf.Positional[tuple[str, ...]]
    """At least two models of the same classes and pictures: bundled names, files of weights, run folders
    or hf:user/name."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE")]
    """The file of weights to write, such as both.safetensors."""

    def run(self, arguments: Sequence[str]) -> None:
        model = capsnet.ensemble(self.models)
        path = capsnet.save(model, self.out)
        say(f"{path}  {model.card['summary']}, {model.num_parameters():,} parameters")
        file, exported = (shlex.quote(str(name)) for name in (path, path.with_suffix(".onnx")))
        say(f"\ntry next:\n  {program('capsnet')} evaluate {file}")
        say(f"  {program('capsnet')} export {file} --out {exported}")


@dataclass(kw_only=True)
class Push:
    """Upload a trained model and a model card to the Hugging Face hub, for everyone who has capsnet.

    `hf:user/name` is then a MODEL of every verb. The repository is made if there is none. Log in first: `hf auth
    login`, or set HF_TOKEN.
    """

    model: tyro.conf.Positional[str]
    """A bundled name (see `capsnet list weights`), a file of weights, a run folder or hf:user/name."""
    repository: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="USER/NAME")]
    """Where to: user/name, or user/name@branch."""
    license: str | None = None
    """Licence of the weights, as the hub spells it, e.g. mit; default: `unknown`, for bundled models `mit`."""
    private: bool = False
    """Make a new repository private; else it is as your settings on the hub say."""
    card: bool = True
    """Write README.md, the model card, also over an existing one."""
    message: str | None = None
    """Of the commit."""
    out: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Write the files into this folder, to look at them, and upload nothing."""

    def run(self, arguments: Sequence[str]) -> None:
        options = {key: getattr(self, key) for key in ("license", "card", "message", "out")}
        done = capsnet.push(self.model, self.repository, private=self.private or None, **options)
        if self.out is not None:
            return say(f"wrote {self.out}; without --out the files go to {done.name}")
        say(f"{done.url}  commit {done.commit[:12]}")
        return say(f"\ntry next:\n  {program('capsnet')} info {shlex.quote(done.name)}")
