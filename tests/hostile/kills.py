"""SIGKILL at random moments of a run: a training step, a checkpoint, a validation, a figure.

The process that is killed is forked from one that has imported everything, so that no kill is spent on starting up.
It keeps what it is doing in a shared byte; the parent reads it after the kill. The same run is resumed until it is
finished, then compared with one that was left alone.
"""

import importlib
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
from typing import Any

import torch
from PIL import Image
from tqdm import tqdm

import capsnet
from capsnet.training import TrainConfig, loop
from capsnet.training.run import Run

STAGES = ("between", "step", "checkpoint", "validation", "figures", "weights")
ENDING = (4, 5)  # stages after the last epoch
PER_TRAINING, PER_ENDING = 40, 6  # kills of a run before its last epoch is over, and after
DELAYS = (0.0, 0.001, 0.01, 0.05)  # seconds at most after a stage has begun: a step takes a few milliseconds
STUCK = 1200  # seconds for one run of a few steps, all its kills included
report = importlib.import_module("capsnet.training.report")  # the package has a function of that name


def configuration(idx_folder: Path, seed: int) -> TrainConfig:
    options = {"conv_channels": 2, "primary_types": 1, "kernel_size": 5, "decoder_widths": [4, 4]}
    return TrainConfig(
        recipe="killed", model="capsnet", model_options=options, data=f"mnist:{idx_folder}", epochs=3, batch_size=8,
        limit=160, eval_limit=40, checkpoint_every=1, tensorboard=False, seed=seed,
    )  # fmt: skip


def wrapped(stage: int, function: Callable[..., Any], doing: mmap.mmap) -> Callable[..., Any]:
    """The function, which notes in the shared byte that it is running."""

    def noting(*arguments: Any, **options: Any) -> Any:
        before, doing[0] = doing[0], stage
        try:
            return function(*arguments, **options)
        finally:
            doing[0] = before

    return noting


def train_in_child(config: TrainConfig, folder: Path, doing: mmap.mmap) -> int:
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
            setattr(module, name, wrapped(stage, getattr(module, name), doing))
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
    number = 0
    while sum(stages.values()) < count and not wrong:
        number += 1
        config, killed = configuration(idx_folder, seed=1000 * seed + number), folder / f"killed-{number}"
        whole = capsnet.train(config, out=folder / f"whole-{number}", device="cpu").folder  # also imports everything
        done = kill_one(config, killed, count - sum(stages.values()), drawing(whole), chance)
        stages.update(done)
        wrong += [
            f"run {seed} {number} after {sum(done.values())} kills: {what}" for what in differences(whole, killed)
        ]
        tell(f"run {number}: {dict(done)}, in all {dict(stages)}")
        for finished in (whole, killed):
            if not wrong:
                shutil.rmtree(finished)
    return stages, wrong


def drawing(whole: Path) -> float:
    """Seconds that the figures of a run took: from its weights to its README."""
    return (whole / "README.md").stat().st_mtime - (whole / "model.safetensors").stat().st_mtime


def differences(whole: Path, killed: Path) -> list[str]:
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
    names = [sorted(str(path.relative_to(run)) for path in run.rglob("*")) for run in (whole, killed)]
    if names[0] != names[1]:
        wrong.append(f"other files: {sorted(set(names[0]) ^ set(names[1]))}")
    for figure in (killed / "figures").glob("*.png"):
        Image.open(figure).load()
    return wrong


def _recorded(folder: Path) -> list[str]:
    timed = {"seconds", "images_per_second"}
    lines = Run(folder).records()
    return [json.dumps({key: value for key, value in line.items() if key not in timed}) for line in lines]


def kill_one(
    config: TrainConfig, folder: Path, most: int, longest_drawing: float, chance: random.Random
) -> Counter[str]:
    """Kill one run again and again, each time soon after a stage has begun, then let it finish."""
    stages: Counter[str] = Counter()
    deadline = time.monotonic() + STUCK
    while not (folder / "results.json").is_file() and time.monotonic() < deadline:
        doing = mmap.mmap(-1, 1)
        process = train_in_child(config, folder, doing)
        kills, ended = sum(stages.values()), sum(stages[STAGES[stage]] for stage in ENDING)
        status = None
        if kills < most and kills - ended <= PER_TRAINING + PER_ENDING and ended < PER_ENDING:
            stage = chance.choice(ENDING if ended or kills >= PER_TRAINING else (0, 1, 2, 3, 3))
            status = wait_for(stage, chance.choice((0, 0, 0, 1)), process, doing, deadline)
            if status is None:
                drawn = doing[0] == STAGES.index("figures")
                time.sleep((longest_drawing if drawn else chance.choice(DELAYS)) * chance.random())
                os.kill(process, signal.SIGKILL)
        if status is None:
            _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            stages[STAGES[doing[0]]] += 1
        elif status:
            break  # it failed by itself
    return stages


def wait_for(stage: int, skip: int, process: int, doing: mmap.mmap, deadline: float) -> int | None:
    """Wait until the child has begun a stage (before the last epoch is over, for the time after ``skip`` others), or is
    beyond the last epoch; its status if it ended before."""
    before = doing[0]
    while stage and time.monotonic() < deadline:
        now = doing[0]
        skip -= now != stage == before
        if now in ENDING if stage not in ENDING else now == stage:
            return None
        if now == stage and skip <= 0:
            return None
        before = now
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.0005)
    return None
