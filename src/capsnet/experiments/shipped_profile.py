"""Write the profile of a shipped model: what the explorer's sliders, their names and its gallery come from.

    python -m capsnet.experiments.shipped_profile capsnet-small-mnist

Ranges, means and hard examples are `profiles.measure` on the test split; the dimensions are named by the rule of the
experiment `perturb`, on validation digits. A model of several digits at once gets no names: its sweep would have to be
measured over the other digit.
"""

import sys

from capsnet import data, profiles, weights
from capsnet.experiments import perturb
from capsnet.models import Model

EACH = 100  # digits of each class that are swept and measured


def main(names: list[str]) -> None:
    for name in names:
        model = weights.load(name)
        spec = str(model.card.get("data", "mnist"))
        profile = profiles.measure(model, data.load(spec, "test"))
        assert profile is not None
        if profile.names is not None and spec == "mnist":
            profile.names = name_dimensions(model)
        profiles.write(name, profile)


def name_dimensions(model: Model, each: int = EACH) -> list[list[str | None]]:
    """The strongest name that each dimension of each class has earned, [J][D]."""
    digits = data.load("mnist", "validation").subset(range(4000))
    chosen = perturb.choose(model, digits, each)
    found = [
        perturb.effects(perturb.sweep(model, poses, label), people)
        for label, (poses, people) in enumerate(zip(chosen.poses, chosen.people, strict=True))
    ]
    return [[next(iter(perturb.called(one, dim)), None) for dim in range(len(one.r))] for one in found]


if __name__ == "__main__":
    main(sys.argv[1:])
