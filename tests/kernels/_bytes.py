"""The memory of tensors, counted instead of measured: the same in every run and on every machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode


class Bytes(TorchDispatchMode):
    """Bytes of the storages that operations of this thread returned: of the largest, and of all that lived at once."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._alive = {key: entry for key, entry in self._alive.items() if not entry[0].expired()}
        for t in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(t, Tensor):
                storage = t.untyped_storage()
                self._alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
                self.largest = max(self.largest, storage.nbytes())
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return result


@contextmanager
def counted() -> Iterator[Bytes]:
    with Bytes() as mode:
        yield mode
