"""Tables of the documentation that list registered things, made from the registries.

    python -m tools.tables

Each table stands between two comments, ``<!-- table: NAME -->`` and ``<!-- end -->``, and is rewritten there.
"""

import argparse
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from capsnet import experiments, models, recipes, routing, weights
from capsnet._files import write_atomically

ROOT = Path(__file__).parent.parent
PAGES = ("docs/experiments.md", "docs/routings.md", "docs/weights.md")


def routings() -> str:
    rows = []
    for name in routing.list_routings():
        route = routing.get(name)
        over = "parents, before the learned prior is added" if route.normalised == "none" else route.normalised
        forms = (f"`{form}`: " + ", ".join(f"{k}={v}" for k, v in set_.items()) for form, set_ in route.forms.items())
        options = ", ".join(routing.option_names(name))
        rows.append((f"`{name}`", routing.describe(name), options, over, "; ".join(forms)))
    return table(("name", "what it is", "options", "couplings sum to 1 over", "named forms"), rows)


def networks() -> str:
    used: dict[str, list[str]] = {}
    for recipe in recipes.list_recipes():
        used.setdefault(recipes.get(recipe).model, []).append(f"`{recipe}`")
    rows = [(f"`{name}`", models.describe(name), ", ".join(used.get(name, []))) for name in models.list_models()]
    return table(("model", "what it is", "recipes"), rows)


def reproductions() -> str:
    known = {name: experiments.get(name) for name in experiments.list_experiments()}
    rows = [(f"`{name}`", one.title, ", ".join(f"`{budget}`" for budget in one.budgets)) for name, one in known.items()]
    return table(("name", "what it shows", "budgets"), rows)


def bundled() -> str:
    cards = {name: weights.read_metadata(weights.resolve(name))["card"] for name in weights.list_weights()}
    return table(("name", "what it is"), [(f"`{name}`", card["summary"]) for name, card in cards.items()])


TABLES: dict[str, Callable[[], str]] = {
    "experiments": reproductions,
    "models": networks,
    "routings": routings,
    "weights": bundled,
}


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def fill(text: str) -> str:
    """A page with all its tables rewritten."""
    pattern = r"<!-- table: (\w+) -->\n.*?<!-- end -->"
    return re.sub(pattern, lambda m: f"<!-- table: {m[1]} -->\n{TABLES[m[1]]()}\n<!-- end -->", text, flags=re.DOTALL)


if __name__ == "__main__":
    argparse.ArgumentParser("python -m tools.tables", description=__doc__).parse_args()
    for page in PAGES:
        write_atomically(ROOT / page, fill((ROOT / page).read_text()))
