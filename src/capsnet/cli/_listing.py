"""The verb that lists what is registered: models, weights, routings, data sets, recipes, experiments, spaces."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

import tyro

from capsnet._names import check_name
from capsnet.cli._talk import print_table, say

LISTS = {  # what can be listed -> where it is registered, the function that lists it, and a line about it
    "models": ("capsnet.models", "list_models", "networks that can be trained"),
    "weights": ("capsnet.weights", "list_weights", "trained models that come with the package"),
    "routings": ("capsnet.routing", "list_forms", "routing algorithms and their named forms"),
    "datasets": ("capsnet.data", "list_datasets", "data sets, also your own images"),
    "recipes": ("capsnet.recipes", "list_recipes", "complete configurations for `capsnet train`"),
    "experiments": ("capsnet.experiments", "list_experiments", "tables and figures for `capsnet reproduce`"),
    "spaces": ("capsnet.search", "list_spaces", "what `capsnet search` can change"),
}


@dataclass(kw_only=True)
class List:
    """List what is available, one line each: models, weights, routings, datasets, recipes, experiments or spaces.

    Without a name it lists what can be listed.
    """

    what: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[WHAT]")] = None
    """What to list."""

    def run(self, arguments: Sequence[str]) -> None:
        if self.what is None:
            print_table(LISTS, lambda name: LISTS[name][2])
            return say("\n`capsnet list WHAT` lists them, e.g. `capsnet list models`.")
        check_name("list", self.what, LISTS)
        print_table(*listed(self.what))
        if self.what == "models":
            say("\ntrained, ready to use:")
            print_table(*listed("weights"))
        return None


def listed(what: str) -> tuple[Iterable[str], Callable[[str], str]]:
    """The names in a registry, and the function that describes one."""
    module, names, _ = LISTS[what]
    registry = import_module(module)
    return getattr(registry, names)(), getattr(registry, "describe", weights_summary)


def weights_summary(name: str) -> str:
    from capsnet import weights

    return weights.read_metadata(weights.resolve(name))["card"]["summary"]
