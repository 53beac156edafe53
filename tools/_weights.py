"""The bundled weights as a section of docs/RESULTS.md: every number comes from the card in its file."""

import json
import re
from pathlib import Path
from typing import Any

from capsnet import weights
from capsnet.drawing.document import Bullets, Code, Document, Table
from capsnet.experiments.affine import PAPER_SHIFT, largest_shift
from capsnet.metrics import Measure, Proportion

PROTOCOL = """Choices were made on the 10,000 validation digits, or taken over from an earlier network for which they
had been made so, or made for speed; the number of epochs is what the time allowed. [docs/weights.md](weights.md) says
which is which, with the commands. A final run trains on all 60,000 digits, keeps its last epoch, and is tested once.
Every final run is in the table, none was dropped. Bundled weights are rounded to float16, and the numbers are those of
the rounded weights: `capsnet evaluate NAME` gives them again. Brackets are 95 % intervals; of affNIST's 320,000
pictures, 32 are of the same digit each, which the intervals of bundled networks allow for and those of `-1` do not."""

ENSEMBLE = " has no training of its own: the mean of {}, taken without a choice and tested once"

# what the literature has for the same task, in percent of error, and whose it is
PUBLISHED: dict[str, tuple[float, str]] = {
    "capsnet-mnist": (0.25, "0.25 ± 0.005 (Sabour et al. 2017)"),
    "efficient-mnist": (0.26, "0.26 (Mazzia et al. 2021, epoch chosen on the test set)"),
    "capsnet-multimnist": (5.2, "5.2 (Sabour et al. 2017)"),
    "capsnet-multimnist-6": (5.2, "5.2 (Sabour et al. 2017)"),
    "capsnet-affine": (21.0, "21 (Sabour et al. 2017); best about 1.9 (Ribeiro et al. 2020)"),
    "capsnet-affine-cnn": (34.0, "34 (their CNN)"),
    "matrix-mnist": (0.44, "0.44 (Hinton et al. 2018, 32 types in each layer)"),
    "fashion": (5.27, "5.27 (Rajasegaran et al. 2019, DeepCaps, its README; 5.54 elsewhere)"),
    "ensemble-mnist": (0.13, "0.13 (Byerly et al. 2020), 0.16 (Mazzia et al. 2021)"),
}
# the same, with half credit
HALF_CREDIT = {"capsnet-multimnist-6": "5.1 (Mazzia et al. 2021)"}


def weights_section(runs: Path) -> str:
    """The section, from the bundled weights and the cards in a folder; empty if there are none."""
    cards: dict[str, dict[str, Any]] = {
        name: weights.read_metadata(weights.resolve(name))["card"] for name in weights.list_weights()
    }
    cards |= {path.stem: json.loads(path.read_text()) for path in sorted(runs.glob("*.json"))}
    final = {name: card for name, card in sorted(cards.items()) if "origin" in card}
    if not final:
        return ""
    section = Document("weights", ["**Bundled weights**", "\n".join([PROTOCOL, *shifted(final)])])
    if alone := [f"`{name}`" for name in final if name not in weights.list_weights() and "members" not in final[name]]:
        section.add(
            f"Not bundled, with the numbers at the end of their runs: {', '.join(alone)}. `NAME-1` and so on are "
            "the other final runs of that name, in their order; the bundled one has no number."
        )
    rows = [row for name, card in final.items() for row in rows_of(name, card)]
    section.add(Table("", ["name", "test set", "error", "published, %", "minutes"], rows))
    section.add(Bullets([sentence for name, card in final.items() if (sentence := against_published(name, card))]))
    for name, card in final.items():
        origin = card["origin"]
        members = ", ".join(f"`{member}`" for member in card.get("members", {}))
        begin = ENSEMBLE.format(members) if members else f": seed {card['seed']}"
        resumed = "".join(f", resumed at step {one['step']:,}" for one in origin.get("resumed", []))
        section.add(
            f"`{name}`{begin}, commit {origin['commit']}, capsnet {origin['capsnet']}, torch "
            f"{origin['torch']}, Python {origin['python']}, {origin['processor']}, {origin['threads']} thread(s), "
            f"{origin['started']}{resumed}:",
            Code(origin["command"]),
        )
    return section.to_markdown(level=2)


def rows_of(name: str, card: dict[str, Any]) -> list[list[str]]:
    """A row for each test set of a card, and one for half credit where a picture has several objects."""
    rows = []
    for spec, accuracy in card["tests"].items():
        main = spec == card["data"]
        published = PUBLISHED.get(task(name), (0, "-"))[1] if main else "-"
        minutes = f"{card['seconds'] / 60:.0f}" if main and "seconds" in card else "-" if main else ""
        rows.append([f"`{name}`" if main else "", f"`{spec}`", error_of(accuracy).shown(), published, minutes])
        if credit := card.get("half_credit", {}).get(spec):
            rows.append(["", f"`{spec}`, half credit", error_of(credit).shown(), HALF_CREDIT.get(name, "-"), ""])
    return rows


def shifted(cards: dict[str, dict[str, Any]]) -> list[str]:
    """How far the digits were shifted on which networks for affNIST were trained, beside the published setting."""
    far = {name: largest_shift(card) for name, card in cards.items() if card["data"].startswith("affnist")}
    if not far:
        return []
    words = f"Published figures of affNIST come from training with shifts of up to {PAPER_SHIFT} pixels"
    if set(far.values()) == {PAPER_SHIFT}:
        return [f"{words}, as here."]
    return [f"{words}; here they are up to {', '.join(f'{shift} (`{name}`)' for name, shift in far.items())}."]


def error_of(accuracy: dict[str, Any]) -> Measure:
    """An error in percent from an accuracy of a card."""
    error = Proportion(**accuracy).error
    return Measure("error", [100 * error.value], interval=(100 * error.low, 100 * error.high), n=error.n)


def task(name: str) -> str:
    """What a run is a run of: ``NAME-1``, ``NAME-2`` and so on are others of ``NAME``, unless listed themselves."""
    return name if name in PUBLISHED else re.sub(r"-\d$", "", name)


def against_published(name: str, card: dict[str, Any]) -> str | None:
    """A sentence where the published figure is lower."""
    published, error = PUBLISHED.get(task(name), (100.0, ""))[0], error_of(card["test_accuracy"])
    if error.mean <= published:
        return None
    within = " (within its 95 % interval)" if error.interval and error.interval[0] <= published else ""
    return (
        f"The error of `{name}` is higher than the published one: {error.mean:.2f} % against {published:g} %{within}."
    )
