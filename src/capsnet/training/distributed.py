"""Many processes, one run: who am I, what do the others say? Alone, every question here answers itself at no cost.

`torchrun` starts the same program N times and tells each copy its number in the environment. `joined` makes them one
group; between its two ends the loop asks `main()` before it writes and `total(...)` before it believes a number.
"""

import atexit
import logging
import os
import socket
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from capsnet import data
from capsnet.data import Dataset
from capsnet.inference import Evaluation, answers, measure, pick_device
from capsnet.models import Model

T = TypeVar("T")
NEEDED = ("RANK", "MASTER_ADDR", "MASTER_PORT")  # what torchrun sets besides WORLD_SIZE
TIMEOUT = 600.0  # seconds until a process that waits for the others gives up; CAPSNET_TIMEOUT sets another
LONGEST = 1e6  # eleven days: what is longer overflows somewhere below


class Job(NamedTuple):
    """One start of torchrun, however often it starts the processes: names to know it by (none: not under torchrun)."""

    names: list[str]
    again: bool  # whether this may be a later attempt


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def main() -> bool:
    """Whether this is the process that writes and speaks."""
    return rank() == 0


def local() -> int:
    """This process's number on its own machine."""
    return int(os.environ.get("LOCAL_RANK", 0)) if dist.is_initialized() else 0


def job() -> Job:
    """What stays the same when torchrun starts these processes again; all of them must ask.

    An agent's count of restarts says little: one that has come later counts from 0, also as the main process's.
    """
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    if name is None:
        return Job([], False)
    if name not in ("", "none"):
        return Job([name], True)
    agent = f"{socket.gethostname()}:{os.getppid()}"  # unnamed: some agent of now is one of then, and has counted
    agents = gathered([(agent, _read("TORCHELASTIC_RESTART_COUNT", 0))])
    return Job(sorted({agent for agent, _ in agents}), any(count > 0 for _, count in agents))


@contextmanager
def joined(device: str = "auto") -> Iterator[torch.device]:
    """Be one of the group that the environment tells of; yields the device to compute on.

    The group stays until the program ends, and a second `joined` finds it.
    A process whose neighbour died says so in one sentence: the neighbour's own error is the one to read.
    """
    size = _read("WORLD_SIZE", 1)
    where = own_device(device, size)
    if size > 1 and not dist.is_initialized():
        _form_group(where, size)
        atexit.register(dist.destroy_process_group)
    log, level = logging.getLogger("capsnet"), logging.getLogger("capsnet").level
    if not main():
        log.setLevel(logging.WARNING)
    try:
        yield where
    except BaseException as error:
        atexit.unregister(dist.destroy_process_group)  # it may wait for those who wait for this process
        if isinstance(error, RuntimeError) and ("gloo" in str(error).lower() or isinstance(error, dist.DistError)):
            why = " ".join(str(error).split())
            raise ConnectionError(f"lost touch with the other processes, read their errors first ({why})") from error
        raise
    finally:
        log.setLevel(level)


def own_device(name: str, size: int) -> torch.device:
    """Each process its own GPU; without GPUs all compute on the CPU."""
    if size == 1:
        return pick_device(name)
    where = pick_device("cpu" if name == "auto" and not torch.cuda.is_available() else name)
    if where.type == "mps":
        raise ValueError("several processes compute on cuda or cpu, not on mps")
    if where.type == "cpu":
        return where
    number, there = _read("LOCAL_RANK", 0), torch.cuda.device_count()
    if number >= there:
        raise ValueError(f"{socket.gethostname()} has {there} GPUs: start at most {there} processes on it")
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def _form_group(where: torch.device, size: int) -> None:
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if missing:
        raise ValueError(
            f"WORLD_SIZE is {size} but {' and '.join(missing)} not set: start with torchrun, or unset WORLD_SIZE"
        )
    number = _read("RANK", 0)
    if not 0 <= number < size:
        raise ValueError(f"RANK must lie in 0..{size - 1} for a WORLD_SIZE of {size}, got {number}")
    if (port := _read("MASTER_PORT", 0)) > 65535:
        raise ValueError(f"the environment's MASTER_PORT must lie in 0..65535, got {port}")
    seconds = _read_timeout()
    backend, patience = "nccl" if where.type == "cuda" else "gloo", timedelta(seconds=seconds)
    try:
        store = _fresh_store(number, size, patience)
        dist.init_process_group(backend, store=store, rank=number, world_size=size, timeout=patience)
    except (RuntimeError, ValueError) as error:
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise ValueError(
            f"the {size} processes did not all meet at {place} within {seconds:g} s: is each of them running, is the "
            f"port free, is WORLD_SIZE right? ({' '.join(str(error).split())[:200]})"
        ) from None


def _fresh_store(number: int, size: int, patience: timedelta) -> Store:
    """A corner of the common store in which no earlier attempt has written.

    torchrun keeps its store over restarts, with the addresses of the dead in it, and its count of restarts may differ
    between machines (pytorch issue 135712). So the main process makes up a new name and tells it to each of the others,
    whose question has a new name too.
    """
    host, port = os.environ["MASTER_ADDR"], _read("MASTER_PORT", 0)
    theirs = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(host, port, size, is_master=number == 0 and not theirs, timeout=patience)
    place = question = uuid.uuid4().hex
    if number > 0:
        store.set(f"asks/{number}", question)
        place = store.get(f"answers/{question}").decode()
        store.add(f"{place}/heard", 1)
    until, answered = time.monotonic() + patience.total_seconds(), set()
    while number == 0 and store.add(f"{place}/heard", 0) < size - 1:
        asked = [key for other in range(1, size) if store.check([key := f"asks/{other}"])]
        for question in {store.get(key).decode() for key in asked} - answered:
            store.set(f"answers/{question}", place)
            answered.add(question)
        if time.monotonic() > until:
            raise RuntimeError(f"{store.add(f'{place}/heard', 0) + 1} came")
        time.sleep(0.02)
    return PrefixStore(place, store)


def _read(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isdecimal():
        raise ValueError(f"the environment's {name} must be a whole number, got {text!r}")
    return int(text)


def _read_timeout() -> float:
    text = os.environ.get("CAPSNET_TIMEOUT") or str(TIMEOUT)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= LONGEST:
        allowed = f"a number of seconds above 0, at most {LONGEST:.0f}"
        raise ValueError(f"the environment's CAPSNET_TIMEOUT must be {allowed}, got {text!r}")
    return seconds


def signature() -> str:
    """What a process of many puts before its complaints, also when the group never formed."""
    size = os.environ.get("WORLD_SIZE", "1")
    return f"rank {os.environ.get('RANK', '?')} of {size}: " if size not in ("", "0", "1") else ""


def speaks() -> bool:
    """Whether this process talks to people: as `main`, but also before the group forms and after it has ended."""
    return not signature() or os.environ.get("RANK", "0") == "0"


def told(compute: Callable[[], T]) -> T:
    """What the main process says: it computes, the others are told. If it fails, they leave it to complain."""
    if world() == 1:
        return compute()
    answer: list[tuple[bool, T | None]] = [(False, None)]
    try:
        if main():
            answer = [(True, compute())]
    finally:
        dist.broadcast_object_list(answer, src=0)
    worked, value = answer[0]
    if not worked:
        sys.exit(2)
    return value  # type: ignore[return-value]


def total(numbers: Tensor) -> Tensor:
    """The sum over all processes."""
    if world() > 1:
        dist.all_reduce(numbers)
    return numbers


def agreed(yes: bool, device: torch.device) -> bool:
    """Whether any process says yes: then all of them do, at the same step."""
    return yes if world() == 1 else bool(total(torch.tensor(float(yes), device=device)))


def gathered(mine: Sequence[T]) -> list[T]:
    """What all processes have, in the order of their ranks."""
    if world() == 1:
        return list(mine)
    parts: list[Sequence[T]] = [[]] * world()
    dist.all_gather_object(parts, mine)
    return [item for part in parts for item in part]


@contextmanager
def in_turn() -> Iterator[None]:
    """The first process of each machine before the others there, which find the files that it has fetched."""
    if local() > 0:
        dist.barrier()
    yield
    if world() > 1 and local() == 0:
        dist.barrier()


def share(count: int) -> slice:
    """This process's part of `count` things: contiguous, as even as possible, at the end smaller or empty."""
    each, more = divmod(count, world())
    return slice(rank() * each + min(rank(), more), (rank() + 1) * each + min(rank() + 1, more))


def parallel(module: nn.Module) -> nn.Module:
    """The module with gradients averaged over all processes. Buffers are not its business: see `equal_buffers`."""
    if world() == 1:
        return module
    equal_buffers(module)
    warnings.filterwarnings("ignore", "Grad strides do not match")  # a 1 x k kernel in channels_last: nothing to copy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the option's new name is not in every torch that we take
        return nn.parallel.DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)


def equal_buffers(model: nn.Module) -> None:
    """Give all processes the main one's BatchNorm statistics; whole numbers (counters) agree as they are."""
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()] if world() > 1 else []
    if buffers:
        flat = torch.cat([buffer.flatten() for buffer in buffers])
        dist.broadcast(flat, src=0)
        for buffer, new in zip(buffers, flat.split([buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(new.view_as(buffer))


def evaluate(model: Model, dataset: Dataset, *, batch_size: int = 250, progress: bool = False) -> Evaluation:
    """`inference.evaluate` with the batches shared out: each example once, and the same numbers to the last bit.

    Whole batches are shared, not examples: matrix products round by their size, and one process would have the same.
    """
    part = share(data.num_batches(dataset, batch_size))
    order = islice(data.batches(dataset, batch_size, start=part.start), part.stop - part.start)
    mine = answers(model, order, total=part.stop - part.start, progress=progress and main())
    return measure(model, gathered(mine))
