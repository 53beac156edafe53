"""Train the networks of an experiment in several processes, each with its share of the cores.

One training does not keep many cores busy: its operations are short. Several at once do. The runs are those that the
experiment would train one after another, with the same settings, in the same folders.
"""

import logging
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

import torch
from tqdm import tqdm

import capsnet
from capsnet._plugins import load_plugins
from capsnet.experiments.lab import Lab
from capsnet.training import Interrupted, Run, TrainConfig
from capsnet.training.loop import stop_politely

MOST = 64
log = logging.getLogger("capsnet")


def train_all(lab: Lab, plan: Sequence[TrainConfig], jobs: int) -> None:
    """Train what is not finished, ``jobs`` runs at a time. An error in one of them stops all; so does Ctrl-C, after
    which they are resumed."""
    todo = {lab.where(config): config for config in plan if lab.fresh or not Run(lab.where(config)).finished}
    if not todo:
        return
    threads = max(1, torch.get_num_threads() // jobs)
    # new interpreters: a forked process would inherit the locks of PyTorch's threads
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start, (threads,))
    with stop_politely() as stopped, tqdm(total=len(todo), unit=" runs", disable=None, dynamic_ncols=True) as bar:
        waiting = {pool.submit(_train, lab, config): config for config in todo.values()}
        try:
            while waiting:
                for future in wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED).done:
                    config = waiting.pop(future)
                    _outcome(future, lab, stopped)
                    bar.update()
                    log.info("trained %s on %s, seed %d", config.recipe, config.data, config.seed)
                if stopped():
                    raise Interrupted(lab.folder)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            workers = set(multiprocessing.active_children()) - others
            for process in workers if waiting else ():
                process.terminate()  # SIGTERM: it finishes its step and saves it
            for process in workers:
                process.join()
    lab.keep(todo)


def _outcome(future: Future[None], lab: Lab, stopped: Callable[[], bool]) -> None:
    try:
        future.result()
    except BrokenProcessPool as error:
        if stopped():
            raise Interrupted(lab.folder) from error
        raise RuntimeError(
            "a process that trained a network was ended from outside, perhaps for lack of memory: try fewer jobs; "
            "finished runs are kept"
        ) from error


def _start(threads: int) -> None:
    """Prepare a worker process."""
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 # progress bars of several runs would mix
    torch.set_num_threads(threads)
    capsnet.keep_freed_memory()
    load_plugins()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the one that started it was killed; its run resumes from the last checkpoint."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _train(lab: Lab, config: TrainConfig) -> None:
    lab.train(config)
