"""What `compare` measures of each network: couplings, other numbers of iterations, the memory of a training step."""

import dataclasses
import logging
import math
import os
import subprocess
import sys
from statistics import fmean
from typing import Any

from capsnet import data, models, routing
from capsnet.experiments.lab import Lab, Trained, device_of
from capsnet.inference import coupling_shares, evaluate, evaluating
from capsnet.training import Run, TrainConfig

TEST_ITERATIONS = (1, 2, 3, 5)
log = logging.getLogger("capsnet")


def as_trained(config: TrainConfig, trained: Trained) -> TrainConfig:
    """The configuration in the precision that ``auto`` chose for its run."""
    return dataclasses.replace(config, precision=Run(trained.folder).first_precision() or config.precision)


def measure(lab: Lab, trained: Trained, config: TrainConfig) -> dict[str, Any]:
    """What is measured of each network on validation pictures, after training."""
    model = trained.model
    validation = data.load(config.data, "validation")
    validation = validation.subset(range(min(len(validation), lab.pick(200, 2000, 10_000))))
    with evaluating(model):
        trace = model(validation.batch(range(min(100, len(validation)))).images.to(device_of(model)), trace=True).trace
    entropy = None
    if trace is not None and model.class_routing is not None:
        normalised = model.class_routing.normalised
        entropy = float(routing.undecided(trace.couplings[-1:], trace.logits[-1:], normalised).mean())
    shares = coupling_shares(model, data.load(config.data, "validation"), lab.pick(40, 500, 2_000))
    return {"entropy": entropy, "test iterations": other_iterations(trained, validation), "shares": shares or {}}


def averaged(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """The means over seeds of what ``measure`` found: of the shares, those that are shown."""
    first = seeds[0]
    iterations = {r: fmean(one["test iterations"][r] for one in seeds) for r in first["test iterations"]}
    shares = {key: fmean(one["shares"][key][-1] for one in seeds) for key in ("own", "first") if first["shares"]}
    return {
        "entropy": None if first["entropy"] is None else fmean(one["entropy"] for one in seeds),
        "test iterations": iterations,
        "shares": shares | ({"chance": first["shares"]["chance"]} if shares else {}),
    }


def other_iterations(trained: Trained, validation: data.Dataset) -> dict[str, float]:
    """Validation error in percent with other numbers of iterations; empty where a routing has none."""
    layers: list[Any] = list(trained.model.routed_layers().values())
    if not all(layer.routing.iterates for layer in layers):
        return {}
    tested = {str(r): evaluate(models.reroute(trained.model, iterations=r), validation) for r in TEST_ITERATIONS}
    return {r: 100 * (1 - one.accuracy.value) for r, one in tested.items()}


def memory(config: TrainConfig, *modules: str) -> dict[str, float]:
    """Megabytes that a training step takes above the idle process, measured in a process of its own.

    That process first imports the modules that registered the routing and the model: they may be of another package.
    NaN where it fails, as with a data set or a routing that a script has registered.
    """
    needed = {type(routing.get(config.routing)).__module__ if config.routing else "capsnet", *modules}
    done = subprocess.run(
        [sys.executable, "-m", "capsnet.experiments._peak", *sorted(needed)],
        input=config.to_json(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    if done.returncode:
        log.warning("the memory of a training step was not measured: %s", done.stderr.strip().splitlines()[-1:])
        return {"peak megabytes": math.nan}
    return {"peak megabytes": float(done.stdout)}
