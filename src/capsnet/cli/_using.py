"""The verbs that use a trained model: evaluate, predict, explain and explore."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

import capsnet
from capsnet.cli._parse import Device
from capsnet.cli._talk import hint, one_line, say

if TYPE_CHECKING:
    from capsnet.inference.prediction import Picture, Prediction, Skipped

DEFAULT_MODEL = "efficient-mnist"  # of the bundled ones it reads digits of another origin best, see docs/weights.md
EXPLAINED_MODEL = "capsnet-mnist"  # its children see parts of a picture
STANDARD_INPUT = "-"
WIDEST = 60  # characters of a column of names


@dataclass(kw_only=True)
class Evaluate:
    """Test a model on a whole data set: accuracy with its 95 % interval, precision, recall and AUC per class."""

    model: tyro.conf.Positional[str]
    """A bundled name (see `capsnet list weights`), a file of weights, an exported .onnx file, a run folder or
    hf:user/name."""
    data: str | None = None
    """Data set, as NAME or NAME:PATH (see `capsnet list datasets`); default: the one that the model was trained on."""
    split: str = "test"
    """Which part of it."""
    batch_size: int = 250
    """Images at a time."""
    device: Device = "auto"
    int8: bool = False
    """Compute deep convolutions with 8-bit numbers: faster on a CPU, most for one image; answers change slightly."""
    parts: int = 0
    """Also measure, on this many pictures, whether parts go to the object on which they lie: by the couplings of
    children, or by the phases of pixels in a network that has some."""
    json: bool = False
    """Print all numbers as JSON."""

    def run(self, arguments: Sequence[str]) -> None:
        model = load(self.model, self.device, self.int8)
        spec = self.data or model.card.get("data", "mnist")
        parts = measure_parts(model, spec, self.split, self.parts) if self.parts else {}
        result = capsnet.evaluate(model, spec, split=self.split, batch_size=self.batch_size, progress=True)
        if self.json:
            return say(json.dumps({"data": spec, "split": self.split} | result.metrics | parts))
        say(f"{self.model} on the {self.split} split of {spec}\n")
        say(f"{'class':>12}  precision   recall      AUC  examples")
        for row in result.metrics["per_class"]:
            cells = [f"{row[key]:.4f}" if row[key] is not None else "-" for key in ("precision", "recall", "auc")]
            say(f"{row['class']:>12}     {cells[0]:>6}   {cells[1]:>6}   {cells[2]:>6}  {row['support']:>8,}")
        say(f"\naccuracy  {result.accuracy}")
        if result.half_credit is not None:
            say(f"half credit  {result.half_credit}")
        for line in parts_lines(parts):
            say(line)
        return None


def measure_parts(model: "capsnet.Model", spec: str, split: str, count: int) -> dict[str, Any]:
    """Whether parts go to the object on which they lie: ``couplings`` of children, ``binding`` of pixels by phase."""
    from capsnet.inference import binding_scores, check_fit, coupling_shares
    from capsnet.models import BindingModel

    if count < 1:
        raise ValueError(f"--parts is a number of pictures, at least 1, got {count}")
    dataset = capsnet.data.load(spec, split)
    check_fit(model, dataset)
    if isinstance(model, BindingModel):
        found = {"binding": binding_scores(model, dataset, count)}
    else:
        found = {"couplings": coupling_shares(model, dataset, count)}
    if None in found.values():
        raise ValueError(
            "--parts needs a network whose children or pixels lie in the picture, and data that has each object "
            f"alone: not {model.config['name']} with {dataset.name}"
        )
    return found


def parts_lines(parts: dict[str, Any]) -> list[str]:
    """The numbers of ``measure_parts`` in words."""
    lines = []
    if shares := parts.get("couplings"):
        own, reach, first = shares["own"][-1], shares["own interval"][-1], shares["first"][-1]
        lines = [
            f"parts  {own:.2%} of the coupling of children on an object goes to its capsule "
            f"(95 %: {own - reach:.2%} to {own + reach:.2%}, chance {shares['chance']:.1%})",
            f"parts  {first:.2%} of these children put it first ({shares['pictures']:,} pictures)",
        ]
    if binding := parts.get("binding"):
        names = {"fg_ari": "FG-ARI of pixels by phase", "found": "the same where the background must be found"}
        for key, words in names.items():
            low, high = binding[key]["interval"]
            lines.append(f"parts  {words}: {binding[key]['value']:.3f} (95 %: {low:.3f} to {high:.3f})")
    return lines


def load(name: str, device: str, int8: bool) -> "capsnet.Model":
    """A model on its device; with ``int8`` its copy with 8-bit convolutions, which are for the CPU."""
    from capsnet.inference import pick_device, to_int8

    if int8 and device not in ("auto", "cpu"):
        raise ValueError(f"--int8 is for the CPU, got --device {device}")
    model = capsnet.load(name)
    return to_int8(model) if int8 else model.to(pick_device(device))


@dataclass(kw_only=True)
class Predict:
    """Say what is on pictures: any size, dark on light or light on dark, a photo of a pen digit included.

    A model that was trained on texts takes texts instead of image files. A picture that cannot be read is reported, the
    others still get their answers, and the exit code is 2.
    """

    images: tyro.conf.Positional[tuple[str, ...]]
    """Image files, folders of them (with all folders below), or `-`: one image from standard input. Or texts in quotes,
    with `-` one text per line."""
    model: str = DEFAULT_MODEL
    """A bundled name (see `capsnet list weights`), a file of weights, an exported .onnx file, a run folder or
    hf:user/name."""
    top: int | None = None
    """Name this many classes, longest capsule first."""
    json: bool = False
    """Print one JSON object per picture."""
    threshold: float = 0.5
    """How long a capsule must be for its class to be present; if none is, the answer is "none of them"."""
    several: bool = False
    """Name all classes that reach the threshold, not only the longest capsule's."""
    batch_size: int = 64
    """Pictures at a time."""
    device: Device = "auto"
    int8: bool = False
    """Compute deep convolutions with 8-bit numbers: faster on a CPU, most for one image; answers change slightly."""
    save_reconstructions: str | None = None
    """Folder for what the longest capsule of each picture draws, as PNG."""
    save_prepared: str | None = None
    """Folder for what the network sees of each picture, as PNG; the output then says how each was read: which ink, what
    was cropped, whether the digit touches the border."""

    def run(self, arguments: Sequence[str]) -> None:
        from tqdm import tqdm

        from capsnet.inference import prediction

        if not self.images:
            raise ValueError("name at least one image file: capsnet predict IMAGE...")
        if self.top is not None and self.top < 1:
            raise ValueError(f"--top must be at least 1, got {self.top}")
        if not any(word.partition("=")[0] == "--model" for word in arguments):
            hint(f"using the bundled model {DEFAULT_MODEL}; --model chooses another")
        model = load(self.model, self.device, self.int8)
        pictures = read(self.images, model)
        width = min(
            WIDEST, max((len(str(picture)) for picture in pictures if isinstance(picture, str | Path)), default=1)
        )
        if self.save_prepared is not None and model.takes_texts:
            raise ValueError("--save-prepared is for pictures, and this model takes texts")
        album = prediction.Album(self.save_reconstructions) if self.save_reconstructions is not None else None
        seen = prediction.Album(self.save_prepared, "prepared") if self.save_prepared is not None else None
        problems = 0
        for answer in prediction.predictions(
            pictures, model, batch_size=self.batch_size, threshold=self.threshold, progress=True, skip=True
        ):
            if isinstance(answer, prediction.Skipped):  # the other pictures still get their answers
                problems += 1
                tqdm.write(f"capsnet: {'' if answer.source else '-: '}{one_line(answer.error)}", file=sys.stderr)
                continue
            saved = seen.add(answer) if seen is not None else None
            line = self.as_json(answer, saved) if self.json else self.as_row(answer, width)
            if saved is not None and not self.json:
                line += f"\n  read {answer.how}\n  {saved}"
            tqdm.write(line, file=sys.stdout)  # around the bar, if there is one
            sys.stdout.flush()
            if album is not None:
                album.add(answer)
        if problems:
            sys.exit(2)

    def as_json(self, answer: "Prediction", saved: Path | None = None) -> str:
        """``class`` is the longest capsule's; ``classes`` are the present ones: none, one, or with --several more."""
        present = answer.labels if self.several else answer.labels[:1]
        record = {"image": answer.source or STANDARD_INPUT, "class": answer.label, "length": answer.length}
        record |= {"classes": present, "lengths": answer.lengths}
        if answer.how:
            record["read"] = answer.how
        if saved is not None:
            record["prepared"] = str(saved)
        if self.top is not None:
            record["top"] = [{"class": label, "length": length} for label, length in longest(answer, self.top)]
        return json.dumps(record)

    def as_row(self, answer: "Prediction", width: int) -> str:
        name = f"{(answer.source or STANDARD_INPUT) + ':':<{width + 1}}"
        if self.top is not None:
            return f"{name} " + "   ".join(f"{label} ({length:.2f})" for label, length in longest(answer, self.top))
        if not answer.labels:
            return f"{name} none of them   (longest: {answer.label}, length {answer.length:.2f})"
        if self.several and len(answer.labels) > 1:
            lengths = ", ".join(f"{answer.lengths[label]:.2f}" for label in answer.labels)
            return f"{name} {', '.join(answer.labels)}   (lengths {lengths})"
        following = "".join(f"   next: {label} ({length:.2f})" for label, length in longest(answer, 2)[1:])
        return f"{name} {answer.label}   (length {answer.length:.2f}){following}"


def read(words: Sequence[str], model: "capsnet.Model") -> "list[Picture | Skipped]":
    """What the words of the command line stand for: files, all pictures of a folder, texts, standard input."""
    from capsnet.data import MOST_BYTES
    from capsnet.inference.prediction import unfold

    pictures: list[Picture | Skipped] = []
    for word in words:
        if word != STANDARD_INPUT:
            pictures += [word] if model.takes_texts else unfold([word], skip=True)
        elif model.takes_texts:
            pictures += [line for line in map(str.strip, sys.stdin) if line]
        else:
            pictures.append(sys.stdin.buffer.read(MOST_BYTES + 1))  # more is refused, not stored
    return pictures


def longest(answer: "Prediction", count: int) -> list[tuple[str, float]]:
    return sorted(answer.lengths.items(), key=lambda pair: -pair[1])[:count]


@dataclass(kw_only=True)
class Explain:
    """Show which places of a picture speak for a class: what each child contributes to its capsule, over the picture.

    Orange speaks for the class, blue against it. It needs a network with routed capsules on a grid.
    """

    image: tyro.conf.Positional[str]
    """An image file, or `-`: one image from standard input."""
    out: Annotated[str | None, tyro.conf.arg(metavar="PNG")] = None
    """The picture to write; default: IMAGE-explained.png in the working directory, with a number if there is one."""
    model: str = EXPLAINED_MODEL
    """A bundled name (see `capsnet list weights`), a file of weights, a run folder or hf:user/name."""
    label: Annotated[str | None, tyro.conf.arg(name="class", metavar="NAME")] = None
    """The class to explain; default: the longest capsule's."""
    beside: bool = False
    """Draw three maps side by side: the contributions, integrated gradients and Grad-CAM, to compare them."""
    json: bool = False
    """Print the class, the lengths, the maps and the contributions, (H', W', types), as JSON."""

    def run(self, arguments: Sequence[str]) -> None:
        from capsnet.inference.prediction import png_name

        if self.out is not None and Path(self.out).suffix.lower() != ".png":
            raise ValueError(f"--out names a .png file, got {self.out}")
        picture = sys.stdin.buffer.read() if self.image == STANDARD_INPUT else self.image
        seen = capsnet.explain(self.model, picture, self.label, beside=self.beside)
        path = seen.save(self.out or png_name(self.image, "explained", os.path.exists))
        if self.json:
            values = {"class": seen.label, "length": seen.length, "lengths": seen.lengths, "map": seen.map.tolist()}
            beside = {name: one.tolist() for name, one in seen.beside.items()}
            return say(
                json.dumps(
                    values | {"contributions": seen.contributions.tolist(), "beside": beside, "picture": str(path)}
                )
            )
        say(f"{self.image}: {seen}\n{path}  orange speaks for the class, blue against it")
        if self.beside:
            say(f"left to right: contributions, {', '.join(seen.beside)}; each map has its own scale")
        return None


@dataclass(kw_only=True)
class Explore:
    """Open a page on which you draw a digit, see which capsules answer, change their numbers and watch the routing.

    It listens on this machine only. Ctrl-C stops it.
    """

    models: tyro.conf.Positional[tuple[str, ...]] = ()
    """Bundled names (see `capsnet list weights`), files of weights, run folders or hf:user/name; default: all bundled
    models."""
    data: str | None = None
    """Whose test pictures the gallery shows for models whose own data set is not bundled, e.g. folder:photos."""
    port: int | None = None
    """Where to listen; default: the first free port from 8028 on."""
    host: str = "127.0.0.1"
    """Address to listen on. From other machines visitors need the token that is printed."""
    browser: bool = True
    """Open the page in the browser."""
    token: str | None = None
    """What visitors have to present; default: a random one where one is needed."""
    name: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="HOST")] = ()
    """A further name that the server answers to, that of a proxy in front of it, e.g. caps.example.org; may be
    repeated. Visitors need the token then, too."""
    static: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Write the page into a folder that any web server serves, instead of serving it: the networks then run in the
    visitor's browser. Default models: the smallest bundled one of each kind. Needs npm, once."""
    runtime: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """For --static: a folder with the unpacked npm package onnxruntime-web, to be used instead of fetching it."""

    def run(self, arguments: Sequence[str]) -> None:
        from capsnet.explorer import explore

        if self.static is not None:
            self.write(self.static)
            return
        if self.runtime is not None:
            raise ValueError("--runtime is for --static: it is what the page without a server computes with")
        options = {key: getattr(self, key) for key in ("data", "host", "port", "browser", "token")}
        explore(self.models, names=self.name, say=say, **options)

    def write(self, folder: Path) -> None:
        """Write the page without a server."""
        from capsnet.explorer import write_static

        done = write_static(folder, self.models, data=self.data, runtime=self.runtime, say=say)
        say(f"wrote {done.folder}: {', '.join(done.models)}; {done.compressed / 1e6:.1f} MB compressed")
        hint(f"try it: python -m http.server --directory {done.folder}")
