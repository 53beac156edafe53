"""SIGKILL at random moments of a run: a training step, a checkpoint, a validation, a figure.

The process that is killed is forked from one that has imported everything, so that no kill is spent on starting up.
When the chosen stage begins it asks the kernel for a SIGKILL a moment later, so that the moment does not depend on
what else the machine does. It keeps what it is doing in a shared byte, which the parent reads after the kill. The same
run is resumed until it is finished, then compared with one that was left alone.
"""

import ctypes
import importlib
import itertools
import json
import logging
import mmap
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from tqdm import tqdm

import capsnet
from capsnet.training import TrainConfig, loop
from capsnet.training.run import Run

STAGES = ("between", "step", "checkpoint", "validation", "figures", "weights")
ENDING = (4, 5)  # stages after the last epoch
PER_TRAINING, PER_ENDING = 60, 4  # kills of a run before its last epoch is over, and after
DELAYS = (0.15, 0.003, 0.003, 0.003, 2.0, 0.01)  # seconds at most after each of the stages has begun
CLOCKS = (time.CLOCK_MONOTONIC, time.CLOCK_PROCESS_CPUTIME_ID)  # the second goes on while the process computes
STUCK = 1200  # seconds for one run of a few steps, all its kills included
report = importlib.import_module("capsnet.training.report")  # the package has a function of that name


def configuration(idx_folder: Path, seed: int) -> TrainConfig:
    options = {"conv_channels": 2, "primary_types": 1, "kernel_size": 5, "decoder_widths": [4, 4]}
    return TrainConfig(
        recipe="killed", model="capsnet", model_options=options, data=f"mnist:{idx_folder}", epochs=20, batch_size=8,
        limit=32, eval_limit=40, checkpoint_every=1, tensorboard=False, seed=seed,
    )  # fmt: skip


class Plan(NamedTuple):
    """Die so many seconds, on a clock, after the stage has begun for the ``nth`` time, or when training is over."""

    stage: int
    nth: int
    clock: int
    seconds: float


def planned(stages: tuple[int, ...], chance: random.Random) -> Plan:
    stage = chance.choice(stages)
    nth = 1 if stage in ENDING else chance.choice((1, 1, 1, 2))
    return Plan(stage, nth, chance.choice(CLOCKS), max(1e-6, DELAYS[stage] * chance.random()))


def die_in(clock: int, seconds: float) -> None:
    """Have the kernel send SIGKILL to this process. Python's own timers send signals that can be handled."""
    libc = ctypes.CDLL(None, use_errno=True)
    event = (ctypes.c_int * 16)()  # struct sigevent: a value of 8 bytes, the signal, how to notify (0: by a signal)
    event[2] = signal.SIGKILL
    timer, when = ctypes.c_void_p(), (ctypes.c_long * 4)(0, 0, int(seconds), int(seconds % 1 * 1e9) or 1)
    failed = libc.timer_create(clock, ctypes.byref(event), ctypes.byref(timer))
    if failed or libc.timer_settime(timer, 0, ctypes.byref(when), None):
        raise OSError(ctypes.get_errno(), "no timer")


def wrapped(stage: int, function: Callable[..., Any], doing: mmap.mmap, plan: Plan | None) -> Callable[..., Any]:
    """The function, which notes in the shared byte that it is running, and begins to die if that is the plan."""
    calls = itertools.count(1)

    def noting(*arguments: Any, **options: Any) -> Any:
        before, doing[0] = doing[0], stage
        over = stage in ENDING and plan is not None and plan.stage not in ENDING
        if plan is not None and (over or (plan.stage, plan.nth) == (stage, next(calls))):
            die_in(plan.clock, plan.seconds)
        try:
            return function(*arguments, **options)
        finally:
            doing[0] = before

    return noting


def train_in_child(config: TrainConfig, folder: Path, doing: mmap.mmap, plan: Plan | None) -> int:
    """Fork; the child trains and leaves. Returns its process id."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        logging.disable(logging.CRITICAL)
        tqdm.set_lock(threading.RLock())  # its own is shared with the parent: a killed child would keep it for ever
        targets: Any = (
            (loop, "train_step"), (loop, "save_checkpoint"), (loop, "evaluate"), (report, "draw"), (report, "save"),
        )  # fmt: skip
        for stage, (module, name) in enumerate(targets, start=1):
            setattr(module, name, wrapped(stage, getattr(module, name), doing, plan))
        if plan is not None and plan.stage == 0:
            die_in(plan.clock, plan.seconds)
        capsnet.train(config, out=folder, resume="auto", device="cpu", figures=True)
        code = 0
    finally:
        os._exit(code)
    return 0


def kill(
    folder: Path, idx_folder: Path, count: int, seed: int, tell: Callable[[str], Any] = lambda line: None
) -> tuple[Counter[str], list[str]]:
    """``count`` kills over as many runs as they take: at which stages, and what was wrong. ``tell`` hears it."""
    torch.set_num_threads(1)  # a process with OpenMP threads cannot be forked
    chance, stages, wrong = random.Random(seed), Counter[str](), list[str]()
    number, figures = 0, set[str]()
    while sum(stages.values()) < count and not wrong:
        number += 1
        config, killed = configuration(idx_folder, seed=1000 * seed + number), folder / f"killed-{number}"
        whole = capsnet.train(config, out=folder / f"whole-{number}", device="cpu", figures=number == 1).folder
        figures = figures or {path.name for path in (whole / "figures").iterdir()}  # drawn once: that takes the longest
        done = kill_one(config, killed, count - sum(stages.values()), chance)
        stages.update(done)
        wrong += [
            f"run {seed} {number} after {sum(done.values())} kills: {what}"
            for what in differences(whole, killed, figures)
        ]
        tell(f"run {number}: {dict(done)}, in all {dict(stages)}")
        for finished in (whole, killed):
            if not wrong:
                shutil.rmtree(finished)
    return stages, wrong


def differences(whole: Path, killed: Path, figures: set[str]) -> list[str]:
    """What differs between a run that was left alone and one that was killed; times may."""
    if not (killed / "results.json").is_file():
        return ["the run is lost"]
    wrong = [
        f"another {name}"
        for name in ("model.safetensors", "results.json", "config.json")
        if (killed / name).read_bytes() != (whole / name).read_bytes()
    ]
    if _recorded(whole) != _recorded(killed):
        wrong.append("other lines in metrics.jsonl")
    names = [{path.name for path in run.iterdir()} | {"figures"} for run in (whole, killed)]
    names = [names[0] | figures, names[1] | {path.name for path in (killed / "figures").iterdir()}]
    if names[0] != names[1]:
        wrong.append(f"other files: {sorted(names[0] ^ names[1])}")
    for figure in (killed / "figures").glob("*.png"):
        Image.open(figure).load()
    return wrong


def _recorded(folder: Path) -> list[str]:
    timed = {"seconds", "images_per_second"}
    lines = Run(folder).records()
    return [json.dumps({key: value for key, value in line.items() if key not in timed}) for line in lines]


def kill_one(config: TrainConfig, folder: Path, most: int, chance: random.Random) -> Counter[str]:
    """Kill one run again and again, then let it finish."""
    stages: Counter[str] = Counter()
    deadline = time.monotonic() + STUCK
    while not (folder / "results.json").is_file() and time.monotonic() < deadline:
        kills, ended = sum(stages.values()), sum(stages[STAGES[stage]] for stage in ENDING)
        plan = planned((4, 4, 5) if ended or kills >= PER_TRAINING else (0, 1, 1, 2, 2, 3, 3), chance)
        if kills >= most or ended >= PER_ENDING or kills >= PER_TRAINING + 2 * PER_ENDING:
            plan = None
        doing = mmap.mmap(-1, 1)
        _, status = os.waitpid(train_in_child(config, folder, doing, plan), 0)
        if os.WIFSIGNALED(status):
            stages[STAGES[doing[0]]] += 1
        elif status:
            break  # it failed by itself
    return stages
