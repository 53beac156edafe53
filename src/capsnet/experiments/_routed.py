"""One network whose routing is exchanged: capsules at each position of a grid on a residual stem.

`compare` and `phase-routing` train it on the same pictures and share its runs. On one object there is nothing to route,
so routings are compared where several objects overlap.

Overlapping digits need millions of pairs before the children mean anything, and with a weak stem routings cannot be
told apart. There the stem starts from that of a bundled plain network (``_nets.trained_stem``), which favours no
routing. The class capsules start from random weights, and all is trained.
"""

from typing import Any

from capsnet import routing
from capsnet.data import Augment
from capsnet.experiments._nets import trained_stem
from capsnet.experiments.lab import Lab
from capsnet.training import TrainConfig

DATA = {"MNIST": "mnist", "MultiMNIST": "multimnist", "crowded Shapes": "shapes:kind=crowded"}
PAIRS = "MultiMNIST"
TINY = {"channels": [8, 8, 32], "blocks": [0, 0]}


def preset(name: str) -> dict[str, Any]:
    """The hyper-parameters a routing is compared with: those of a named form, else those that suit a dense layer."""
    algorithm = type(routing.get(name))
    return dict(algorithm.forms.get(name, algorithm.dense_options))


def exchanged(name: str) -> dict[str, Any]:
    """The settings that put a routing or form into a capsule network: its ``preset`` and a squash that suits it."""
    algorithm, options = routing.get(name), preset(name)
    changes = {"routing": algorithm.name, "squash": "unit" if algorithm.wants_presence else "paper"}
    return changes | ({"routing_options": options} if options else {})


def config(lab: Lab, title: str, name: str, seed: int, options: dict[str, Any] | None = None) -> TrainConfig:
    """The network for a data set of ``DATA`` with a routing or form in it; ``options`` instead of its ``preset``."""
    algorithm = routing.get(name)
    epochs = {
        "MNIST": lab.pick(1, 1, 10, 3),
        "MultiMNIST": lab.pick(1, 1, 24, 4),
        "crowded Shapes": lab.pick(1, 2, 20, 10),
    }
    limits = {"MNIST": 30_000, "MultiMNIST": 40_000, "crowded Shapes": 10_000}
    options = preset(name) if options is None else options
    # not the network's own squash, exp: its gradient vanishes for long capsules, and at first those of many children
    # are long. With taught kuramoto routing one of the three of crowded Shapes stayed at 1.
    squash = "unit" if algorithm.wants_presence else "paper"
    net: dict[str, Any] = {"primary": "grid", "primary_dim": 16, "squash": squash} | lab.pick(TINY, {}, {})
    net |= {"routing_options": options} if options else {}
    stem = None if lab.budget == "smoke" else trained_stem(DATA[title])  # a tiny stem has other shapes
    return TrainConfig(
        recipe=f"routed-{name}",
        model="residual-capsnet",
        model_options=net,
        routing=algorithm.name,
        decoder=False,
        data=DATA[title],
        limit=lab.pick(100, limits[title], None),
        eval_limit=lab.pick(100, 5_000, None),
        augment=Augment(shift=2) if title == "MNIST" else Augment(),
        epochs=epochs[title],
        batch_size=lab.pick(50, 128 if title == PAIRS else 64, 128),
        optimizer="adamw",
        lr=1e-3 if stem else 3e-3,
        init=stem,
        schedule="one-cycle",
        ema=lab.pick(None, 0.999, 0.999),
        keep="last",
        precision=lab.pick("fp32", "auto", "auto"),
        seed=seed,
        tensorboard=False,
    )
