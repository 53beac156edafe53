"""The trained weights in the box as a section of docs/RESULTS.md: every number from the card in its file."""

import json
import re
from pathlib import Path
from typing import Any

from capsnet import weights
from capsnet.metrics import Proportion

PROTOCOL = """Choices were made on the 10,000 validation digits, or taken over from an earlier network for which they
had been made so, or made for speed; the number of epochs is what the time allowed. [docs/weights.md](weights.md) tells
which is which, with the commands. A final run trains on all 60,000 digits, keeps its last epoch, and is tested once.
Every final run is in the table, none was dropped. What ships is rounded to float16, and the numbers are those of what
ships: `capsnet evaluate NAME` gives them again. Brackets are 95 % intervals; of affNIST's 320,000 pictures, 32 are of
the same digit each, so that its interval is narrower than it should be. Its published figures come from training with
shifts of up to 6 pixels; here they are up to 10."""

# what the literature has for the same task, in per cent of error, and whose it is
PUBLISHED: dict[str, tuple[float, str]] = {
    "capsnet-mnist": (0.25, "0.25 ± 0.005 (Sabour et al. 2017)"),
    "efficient-mnist": (0.26, "0.26 (Mazzia et al. 2021, epoch chosen on the test set)"),
    "capsnet-multimnist": (5.2, "5.2 (Sabour et al. 2017)"),
    "capsnet-affine": (21.0, "21 (Sabour et al. 2017); best about 1.9 (Ribeiro et al. 2020)"),
    "capsnet-affine-cnn": (34.0, "34 (their CNN)"),
    "matrix-mnist": (0.44, "0.44 (Hinton et al. 2018, 32 types in each layer)"),
    "fashion": (5.54, "5.54 (Rajasegaran et al. 2019, DeepCaps)"),
}


def boxed(runs: Path) -> list[str]:
    """The lines of the section, from the weights in the box and the cards in a folder; none if there are no such."""
    cards: dict[str, dict[str, Any]] = {
        name: weights.read_metadata(weights.resolve(name))["card"] for name in weights.list_weights()
    }
    cards |= {path.stem: json.loads(path.read_text()) for path in sorted(runs.glob("*.json"))}
    final = {name: card for name, card in sorted(cards.items()) if "origin" in card}
    if not final:
        return []
    lines = ["## weights", "", "**Trained weights in the box**", "", PROTOCOL, ""]
    if alone := [f"`{name}`" for name in final if name not in weights.list_weights()]:
        lines += [f"Not in the box, with the numbers of their runs' ends: {', '.join(alone)}."]
        lines += [
            "`NAME-1` and so on: the first, second, third final run of that name, where another one is in the box.",
            "",
        ]
    lines += ["| name | test set | error, % (95 %) | published, % | minutes |", "|---|---|---|---|---|"]
    for name, card in final.items():
        for spec, share in card["tests"].items():
            first = spec == card["data"]
            published = PUBLISHED.get(task(name), (0, "-"))[1] if first else "-"
            shown = f"`{name}`" if first else ""
            time = f"{card['seconds'] / 60:.0f}" if first else ""
            lines.append(f"| {shown} | `{spec}` | {percent(share)} | {published} | {time} |")
    lines += ["", *(f"- {sentence}" for name, card in final.items() if (sentence := behind(name, card))), ""]
    for name, card in final.items():
        origin = card["origin"]
        versions = f"capsnet {origin['capsnet']}, torch {origin['torch']}, Python {origin['python']}"
        lines += [f"`{name}`: seed {card['seed']}, commit {origin['commit']}, {versions},"]
        later = "".join(f", resumed at step {one['step']:,}" for one in origin.get("resumed", []))
        lines += [f"{origin['processor']}, {origin['threads']} thread(s), {origin['started']}{later}:", ""]
        lines += [f"    {origin['command']}", ""]
    return lines


def percent(share: dict[str, Any]) -> str:
    error = Proportion(**share).error
    return f"{error.value:.2%} ({error.low:.2%} to {error.high:.2%})".replace("%", "").replace("  ", " ").strip()


def task(name: str) -> str:
    """What a run is a run of: `NAME-1`, `NAME-2` and so on are further ones of `NAME`."""
    return re.sub(r"-\d$", "", name)


def behind(name: str, card: dict[str, Any]) -> str | None:
    """A plain sentence where the published figure is better."""
    if task(name) not in PUBLISHED:
        return None
    error, published = 100 * Proportion(**card["test_accuracy"]).error.value, PUBLISHED[task(name)][0]
    if error <= published:
        return None
    return f"`{name}` is behind the published figure: {error:.2f} % against {published:g} %."
