"""The verbs that use a trained model: predict, export, ensemble."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import tyro
from tqdm import tqdm

import capsnet
from capsnet.cli._flags import EnsembleArgs, ExportArgs, PredictArgs
from capsnet.cli._talk import one_line, program, say
from capsnet.export import TOLERANCE, export
from capsnet.inference.prediction import Album, Picture, Prediction, Skipped, predictions, unfold
from capsnet.models import Model

STANDARD_INPUT = "-"
WIDEST = 60  # characters of a column of names


def predict_verb(arguments: Sequence[str]) -> None:
    args = tyro.cli(PredictArgs, args=arguments, prog="capsnet predict")
    if not args.images:
        raise ValueError("name at least one image file: capsnet predict IMAGE... --model MODEL")
    model = capsnet.load(args.model)
    pictures = given(args.images, model)
    width = min(WIDEST, max((len(shown(p)) for p in pictures if not isinstance(p, Skipped)), default=0))
    album = Album(args.save_reconstructions) if args.save_reconstructions is not None else None
    problems = 0
    for answer in predictions(
        pictures, model, batch_size=args.batch_size, threshold=args.threshold, progress=True, skip=True
    ):
        if isinstance(answer, Skipped):  # the other pictures still get their answers
            problems += 1
            tqdm.write(f"capsnet: {'' if answer.source else '-: '}{one_line(answer.error)}", file=sys.stderr)
            continue
        line = as_json(answer, args.several) if args.json else as_row(answer, args.several, width)
        tqdm.write(line, file=sys.stdout)  # around the bar, if there is one
        sys.stdout.flush()
        if album is not None:
            album.add(answer)
    if problems:
        sys.exit(2)


def given(words: Sequence[str], model: Model) -> list[Picture | Skipped]:
    """What the words of the command line stand for: files, all pictures of a folder, texts, standard input."""
    found: list[Picture | Skipped] = []
    for word in words:
        if word != STANDARD_INPUT:
            found += [word] if model.takes_texts else unfold([word], skip=True)
        elif model.takes_texts:
            found += [line for line in map(str.strip, sys.stdin) if line]
        else:
            found.append(sys.stdin.buffer.read())
    return found


def shown(picture: object) -> str:
    return str(picture) if isinstance(picture, str | Path) else STANDARD_INPUT


def as_json(answer: Prediction, several: bool) -> str:
    """``class`` is the longest capsule's; ``classes`` those that are there: none, one, or with ``several`` more."""
    there = answer.labels if several else answer.labels[:1]
    told = {"image": answer.source or STANDARD_INPUT, "class": answer.label, "length": answer.length}
    return json.dumps(told | {"classes": there, "lengths": answer.lengths})


def as_row(answer: Prediction, several: bool, width: int) -> str:
    name = f"{(answer.source or STANDARD_INPUT) + ':':<{width + 1}}"
    order = sorted(answer.lengths.items(), key=lambda pair: -pair[1])
    if not answer.labels:
        return f"{name} none of them   (longest: {answer.label}, length {answer.length:.2f})"
    if several and len(answer.labels) > 1:
        sizes = ", ".join(f"{answer.lengths[label]:.2f}" for label in answer.labels)
        return f"{name} {', '.join(answer.labels)}   (lengths {sizes})"
    rest = "".join(f"   next: {label} ({value:.2f})" for label, value in order[1:2])
    return f"{name} {answer.label}   (length {answer.length:.2f}){rest}"


def export_verb(arguments: Sequence[str]) -> None:
    args = tyro.cli(ExportArgs, args=arguments, prog="capsnet export")
    done = export(args.model, args.output, args.format)
    told = json.loads(done.card.read_text())
    shape = " x ".join(map(str, told["input"]["shape"]))
    answers = ", ".join(port["name"] for port in told["outputs"])
    say(f"{done.path}  {done.path.stat().st_size / 1e6:.1f} MB: {told['input']['name']} ({shape}) -> {answers}")
    say(f"largest difference from torch  {done.difference:.1e}  (up to {TOLERANCE:g} is accepted)")
    say(f"{done.card}  says how to prepare its input and what its answers mean")
    if args.format == "onnx":
        what = "TEXT" if told["takes"] == "texts" else "IMAGE"
        say(f"\ntry next:\n  {program('capsnet')} predict {what} --model {shlex.quote(str(done.path))}")


def ensemble_verb(arguments: Sequence[str]) -> None:
    args = tyro.cli(EnsembleArgs, args=arguments, prog="capsnet ensemble")
    model = capsnet.ensemble(args.models)
    path = capsnet.save(model, args.output)
    say(f"{path}  {model.card['summary']}, {model.num_parameters():,} parameters")
    file, exported = (shlex.quote(str(name)) for name in (path, path.with_suffix(".onnx")))
    say(f"\ntry next:\n  {program('capsnet')} evaluate {file}")
    say(f"  {program('capsnet')} export {file} --output {exported}")
