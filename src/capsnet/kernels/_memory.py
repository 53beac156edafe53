"""Memory that a layer keeps between calls.

Fresh memory is not free: the system hands out large blocks page by page, zeroed, which takes as long as computing what
goes into them (69 MB of spectrum: 57 ms to compute, 37 ms more into a new block, one core). A layer that is called a
thousand times with one batch size therefore keeps its blocks. The content is scratch: no block
is ever the only copy of anything, a caller that finds a block overwritten recomputes it, and all of it may be dropped at
any time.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import Tensor

_APART = 257  # weights from one sample to the next; a prime number, so that no regular structure hides between them


class Memory:
    """Named blocks, each remembering what was last put into it. Not a tensor, not in the state_dict, copied as empty.

    ``block("input", shape, dtype)`` lends a tensor over the block of that name, grown if need be, and forgets its
    content. ``remember("input", key)`` names the content, ``holds("input", key)`` asks for it.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, Tensor] = {}
        self._contents: dict[str, Hashable] = {}
        self._lock = threading.Lock()

    def block(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        self._contents.pop(name, None)
        return self._view(name, shape, dtype)

    def content(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The block as it is. Ask ``holds`` first."""
        return self._view(name, shape, dtype)

    def _view(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        flat, size = self._blocks.get(name), prod(shape)
        if flat is None or flat.dtype != dtype or flat.numel() < size:
            self._blocks.pop(name, None)  # let go of the old block before asking for the new one
            # Made outside inference mode on purpose: a tensor born inside it could not be written to outside.
            with torch.inference_mode(False):
                flat = self._blocks[name] = torch.empty(size, dtype=dtype)
        return flat[:size].view(shape)

    def put(self, name: str, value: Tensor, key: Hashable) -> None:
        """Keep a tensor that the caller made."""
        self._blocks[name], self._contents[name] = value, key

    def get(self, name: str) -> Tensor:
        return self._blocks[name]

    def remember(self, name: str, key: Hashable) -> None:
        self._contents[name] = key

    def holds(self, name: str, key: Hashable) -> bool:
        return key is not None and name in self._contents and self._contents[name] == key

    def forget(self, name: str) -> None:
        self._contents.pop(name, None)

    @property
    def nbytes(self) -> int:
        return sum(block.numel() * block.element_size() for block in self._blocks.values())

    @contextmanager
    def exclusive(self) -> Iterator[Memory]:
        """This memory, or a passing one if another thread is at work in it: two requests to one server never mix."""
        if not self._lock.acquire(blocking=False):
            yield Memory()
            return
        try:
            yield self
        finally:
            self._lock.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> Memory:
        return Memory()

    def __reduce__(self) -> tuple[type[Memory], tuple[()]]:
        return Memory, ()


def fingerprint(weight: Tensor, *, sampled: bool = False) -> Hashable:
    """A key that changes whenever the weight does: for spectra that are kept from call to call.

    The version counter sees every in-place operation (optimisers, load_state_dict, copy_), the address a replaced
    tensor. Neither sees ``weight.data[3] = 0``, which is why the values take part: each row (filter, child) as its
    product with one fixed random vector, which no edit leaves as it was unless it is lost in rounding. That reads the
    whole weight; ``sampled``, for calls which are hardly longer than that, looks at every 257th value, and may miss an
    edit of single weights through ``.data``. None (= do not keep) in inference mode's own tensors, which count no
    versions.
    """
    if weight.is_inference():
        return None
    values = weight.detach().flatten(1)
    seen = values.view(-1)[::_APART] if sampled else torch.mv(values, _ruler(values.shape[1], weight.dtype))
    return weight.data_ptr(), weight._version, tuple(weight.shape), weight.dtype, seen.numpy().tobytes()


@lru_cache(maxsize=64)
def _ruler(length: int, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.rand(length, generator=torch.Generator().manual_seed(0), dtype=dtype) + 0.5
