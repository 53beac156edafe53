"""Several processes that train one model together. With one process every function here returns at once.

``torchrun`` starts the same program N times and sets the rank of each in the environment. ``process_group`` joins them;
inside it the loop writes files if ``is_main()`` and adds numbers with ``sum_ranks``.
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
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import torch
import torch.distributed as dist
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.distributed import PrefixStore, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from capsnet import data
from capsnet._names import describe_error
from capsnet.data import Dataset
from capsnet.inference import Evaluation, answers, measure, pick_device
from capsnet.models import Model

T = TypeVar("T")
Whole: TypeAlias = Annotated[int, Field(ge=0)]
NEEDED = ("RANK", "MASTER_ADDR", "MASTER_PORT")  # what torchrun sets besides WORLD_SIZE
TIMEOUT = 600.0  # seconds until a process that waits for the others gives up; CAPSNET_TIMEOUT sets another
LONGEST = 1e6  # seconds: larger timeouts overflow


class Job(NamedTuple):
    """One call of torchrun, restarts included: its names (none: not under torchrun)."""

    names: list[str]
    restarted: bool  # whether this may be a later attempt


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def local_rank() -> int:
    """This process's number on its own machine."""
    return int(os.environ.get("LOCAL_RANK", 0)) if dist.is_initialized() else 0


def is_main() -> bool:
    """Whether this process writes files and prints: rank 0, also without a process group."""
    return rank() == 0 if dist.is_initialized() else not rank_prefix() or os.environ.get("RANK", "0") == "0"


def rank_prefix() -> str:
    """The prefix of error messages of one process of many, also if the group was never formed."""
    size = os.environ.get("WORLD_SIZE", "1")
    return f"rank {os.environ.get('RANK', '?')} of {size}: " if size not in ("", "0", "1") else ""


def current_job() -> Job:
    """The job of these processes, which stays the same when torchrun restarts them; a collective call.

    A job without a name is known by its agents: one that joined later has counted no restarts.
    """
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    if name is None:
        return Job([], False)
    if name not in ("", "none"):
        return Job([name], True)
    agent = f"{socket.gethostname()}:{os.getppid()}"
    agents = gather([(agent, _read("TORCHELASTIC_RESTART_COUNT", Whole, 0))])
    return Job(sorted({agent for agent, _ in agents}), any(count > 0 for _, count in agents))


@contextmanager
def process_group(device: str = "auto") -> Iterator[torch.device]:
    """Join the group that the environment describes; yields the device to compute on.

    The group lasts until the program ends, and a second ``process_group`` uses it again. If another process dies, this
    one raises ``ConnectionError``.
    """
    size = _read("WORLD_SIZE", Whole, 1)
    rank_device = own_device(device, size)
    if size > 1 and not dist.is_initialized():
        _form_group(rank_device, size)
        atexit.register(dist.destroy_process_group)
    log, level = logging.getLogger("capsnet"), logging.getLogger("capsnet").level
    if not is_main():
        log.setLevel(logging.WARNING)
    try:
        yield rank_device
    except BaseException as error:
        atexit.unregister(dist.destroy_process_group)  # it could wait for processes that wait for this one
        if isinstance(error, RuntimeError) and ("gloo" in str(error).lower() or isinstance(error, dist.DistError)):
            why = " ".join(str(error).split())
            raise ConnectionError(f"lost connection to the other processes: see their errors first ({why})") from error
        raise
    finally:
        log.setLevel(level)


def own_device(name: str, size: int) -> torch.device:
    """One GPU per process; without GPUs all processes compute on the CPU."""
    if size == 1:
        return pick_device(name)
    device = pick_device("cpu" if name == "auto" and not torch.cuda.is_available() else name)
    if device.type == "mps":
        raise ValueError("several processes compute on cuda or cpu, not on mps")
    if device.type == "cpu":
        return device
    number, available = _read("LOCAL_RANK", Whole, 0), torch.cuda.device_count()
    if number >= available:
        raise ValueError(f"{socket.gethostname()} has {available} GPUs: start at most {available} processes on it")
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def _form_group(device: torch.device, size: int) -> None:
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if missing:
        raise ValueError(
            f"WORLD_SIZE is {size} but {' and '.join(missing)} not set: start with torchrun, or unset WORLD_SIZE"
        )
    number = _read("RANK", Annotated[Whole, Field(lt=size)], 0)
    port = _read("MASTER_PORT", Annotated[Whole, Field(le=65535)], 0)
    seconds = _read("CAPSNET_TIMEOUT", Annotated[float, Field(gt=0, le=LONGEST)], TIMEOUT)
    backend, timeout = "nccl" if device.type == "cuda" else "gloo", timedelta(seconds=seconds)
    try:
        store = _fresh_store(number, size, port, timeout)
        dist.init_process_group(backend, store=store, rank=number, world_size=size, timeout=timeout)
    except (RuntimeError, ValueError) as error:
        place = f"{os.environ['MASTER_ADDR']}:{port}"
        raise ValueError(
            f"the {size} processes did not all connect to {place} within {seconds:g} s: is each of them running, is "
            f"the port free, is WORLD_SIZE right? ({' '.join(str(error).split())[:200]})"
        ) from None


def _fresh_store(number: int, size: int, port: int, timeout: timedelta) -> Store:
    """A prefix of the common store that no earlier attempt has written to.

    torchrun keeps its store over restarts, with the addresses of dead processes in it, and its count of restarts may
    differ between machines (pytorch issue 135712). So the main process sends a new prefix to each of the others, in
    answer to a request with a new name.
    """
    owned_by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(
        os.environ["MASTER_ADDR"], port, size, is_master=number == 0 and not owned_by_agent, timeout=timeout
    )
    prefix = request = uuid.uuid4().hex
    if number > 0:
        store.set(f"requests/{number}", request)
        prefix = store.get(f"answers/{request}").decode()
        store.add(f"{prefix}/received", 1)
    deadline, answered = time.monotonic() + timeout.total_seconds(), set()
    while number == 0 and store.add(f"{prefix}/received", 0) < size - 1:
        keys = [key for other in range(1, size) if store.check([key := f"requests/{other}"])]
        for request in {store.get(key).decode() for key in keys} - answered:
            store.set(f"answers/{request}", prefix)
            answered.add(request)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{store.add(f'{prefix}/received', 0) + 1} connected")
        time.sleep(0.02)
    return PrefixStore(prefix, store)


def _read(name: str, kind: Any, default: Any) -> Any:
    """A number from the environment, of a kind that pydantic checks."""
    text = os.environ.get(name)
    try:
        return TypeAdapter(kind).validate_strings(text) if text else default
    except ValidationError as error:
        raise ValueError(f"the environment's {describe_error(error, name)}") from None


def broadcast_from_main(compute: Callable[[], T]) -> T:
    """The main process's result, on every process. If it fails, the others exit without an error message."""
    if world_size() == 1:
        return compute()
    message: list[tuple[bool, T | None]] = [(False, None)]
    try:
        if is_main():
            message = [(True, compute())]
    finally:
        dist.broadcast_object_list(message, src=0)
    succeeded, value = message[0]
    if not succeeded:
        sys.exit(2)
    return value  # type: ignore[return-value]


def sum_ranks(numbers: Tensor) -> Tensor:
    """The sum over all processes."""
    if world_size() > 1:
        dist.all_reduce(numbers)
    return numbers


def any_rank(flag: bool, device: torch.device) -> bool:
    """Whether the flag is set on any process; a collective call."""
    return flag if world_size() == 1 else bool(sum_ranks(torch.tensor(float(flag), device=device)))


def gather(items: Sequence[T]) -> list[T]:
    """The items of all processes, in the order of their ranks."""
    if world_size() == 1:
        return list(items)
    parts: list[Sequence[T]] = [[]] * world_size()
    dist.all_gather_object(parts, items)
    return [item for part in parts for item in part]


@contextmanager
def local_main_first() -> Iterator[None]:
    """The first process of each machine runs the block before the others, so that files are downloaded once."""
    if local_rank() > 0:
        dist.barrier()
    yield
    if world_size() > 1 and local_rank() == 0:
        dist.barrier()


def own_slice(count: int) -> slice:
    """This process's part of ``count`` items: contiguous, as even as possible, for the last ranks smaller or empty."""
    each, more = divmod(count, world_size())
    return slice(rank() * each + min(rank(), more), (rank() + 1) * each + min(rank() + 1, more))


def data_parallel(module: nn.Module) -> nn.Module:
    """The module with gradients averaged over all processes. For buffers see ``sync_buffers``."""
    if world_size() == 1:
        return module
    sync_buffers(module)
    warnings.filterwarnings("ignore", "Grad strides do not match")  # a 1 x k kernel in channels_last: nothing to copy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # not every supported torch has the option's new name
        return nn.parallel.DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)


def sync_buffers(model: nn.Module) -> None:
    """Broadcast the main process's BatchNorm statistics; integer buffers (counters) are equal on all processes."""
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()] if world_size() > 1 else []
    if buffers:
        flat = torch.cat([buffer.flatten() for buffer in buffers])
        dist.broadcast(flat, src=0)
        for buffer, new in zip(buffers, flat.split([buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(new.view_as(buffer))


def evaluate(model: Model, dataset: Dataset, *, batch_size: int = 250, progress: bool = False) -> Evaluation:
    """``inference.evaluate`` with the batches divided among the processes, and the same numbers.

    On CPUs, with as many threads in each process, they are the same to the last bit: whole batches are divided, not
    examples, since a matrix product rounds differently for another number of rows.
    """
    part = own_slice(data.num_batches(dataset, batch_size))
    batches = islice(data.batches(dataset, batch_size, start=part.start), part.stop - part.start)
    results = answers(model, batches, total=part.stop - part.start, progress=progress and is_main())
    return measure(model, gather(results), dataset.originals())
