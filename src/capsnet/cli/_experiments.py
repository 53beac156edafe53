"""The verbs that run experiments: reproduce and compare."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

import tyro

import capsnet
from capsnet._names import check_name
from capsnet.cli._parse import Device
from capsnet.cli._talk import complain, print_columns, print_table, relative, say


@dataclass(kw_only=True)
class Experiment:
    """The flags that all experiments have."""

    budget: str = "quick"
    """`smoke`: does it run? `quick`: minutes, small networks. `shipped`: the bundled trained networks, for experiments
    that have some. `day`: hours, strong networks. `paper`: the full setting. The last two say how long it takes and
    ask."""
    seeds: int | None = None
    """How often each network is trained; default: 1, and 3 for `paper`."""
    out: str = "results"
    """Folder for all results; this one goes to OUT/BUDGET/NAME."""
    device: Device = "auto"
    fresh: bool = False
    """Start from nothing, also if there are results of an earlier run."""
    jobs: int = 1
    """How many networks are trained at a time, each with its share of the cores. On two cores, 2 is faster than 1 for
    small networks."""
    yes: bool = False
    """Do not ask before a long run."""

    def experiment(self, name: str, **options: Any) -> dict[str, Any]:
        """Run one, say what came out and where it is, and return it."""
        from capsnet import experiments
        from capsnet.training import Interrupted

        capsnet.keep_freed_memory()
        try:
            folder = experiments.reproduce(
                name,
                budget=self.budget,  # type: ignore[arg-type] # it is checked there
                seeds=self.seeds,
                out=self.out,
                device=self.device,
                fresh=self.fresh,
                jobs=self.jobs,
                ask=(lambda question: say(question) is None) if self.yes else confirm,
                **options,
            )
        except Interrupted:
            complain(f"stopped; the same command{' without --fresh' * self.fresh} continues", 130)
        except experiments.Declined as declined:
            complain(str(declined), 1)
        outcome = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        say(f"\n{outcome['title']}")
        for finding in outcome["findings"]:
            say(f"  - {finding}")
        say(f"everything is in  {relative(folder)}  (open {name}.html)")
        return outcome


@dataclass(kw_only=True)
class Reproduce(Experiment):
    """Reproduce a table or figure of the literature: train what it needs, measure, draw, write a page about it.

    Stopped at any moment, the same command continues. `capsnet reproduce --list` lists the experiments.
    """

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT")] = None
    """Which experiment, or `all`."""
    data: tuple[str, ...] = ()
    """What `small-data` learns: folders of your own images (a sub-folder per class, or a CSV file of paths and labels),
    and `faces`, those of scikit-image; default: `faces`. For `binding`, which of its sets: `two outlines`, `three
    outlines`, `digit and outline`, `MultiMNIST`; default: all."""
    list: bool = False
    """List the experiments, and end."""

    def run(self, arguments: Sequence[str]) -> None:
        from capsnet import experiments

        if self.list or len(arguments) == 1:
            return print_table(experiments.list_experiments(), experiments.describe)
        if self.name is None:
            raise ValueError("`capsnet reproduce` needs EXPERIMENT: see `capsnet reproduce --list`")
        if self.name == "all":
            check_name("budget", self.budget, get_args(experiments.Budget))
            names = experiments.list_experiments(self.budget)  # type: ignore[arg-type]
        else:
            names = [check_name("experiment", self.name, experiments.list_experiments())]
        for name in names:
            self.experiment(name, **({"data": list(self.data)} if self.data else {}))
        return None


@dataclass(kw_only=True)
class Compare(Experiment):
    """Compare routings on the same network and data: one table of error, time, memory, parameters and entropy.

    Also measures what a network does with other numbers of iterations at test time than it was trained with.
    """

    routings: tuple[str, ...] = ()
    """Which ones (see `capsnet list routings`); default: all of them."""
    recipe: str | None = None
    """A recipe of a network that takes a routing, or the config.json of a run: trained for its own number of epochs,
    whatever the budget (except `smoke`); default: residual-capsnet on MultiMNIST and on crowded Shapes."""

    def run(self, arguments: Sequence[str]) -> None:
        options = {"routings": self.routings, "recipe": self.recipe}
        outcome = self.experiment("compare", **{key: value for key, value in options.items() if value})
        for table in outcome["tables"]:
            print_columns([table["columns"], *table["rows"]])


def confirm(question: str) -> bool:
    """Say how long it will take and ask; where nobody can answer, the answer is no."""
    say(question)
    if not sys.stdin.isatty():
        say("start it with --yes")
        return False
    try:
        return input("start? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # Ctrl-D
        return False
