"""Memory that a layer keeps between calls.

New memory costs time: the system provides large blocks page by page, zeroed (69 MB of spectrum: 57 ms to compute, 37 ms
more into a new block, one core). So a layer keeps its blocks. The content is scratch: a caller that finds a block
overwritten recomputes it, and all blocks may be dropped at any time.
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

_APART = 257  # weights from one sample to the next; a prime number, so that samples meet all regular structures


class Memory:
    """Named blocks, each with a key of its content. Not a tensor, not in the state_dict, copied as empty.

    ``block("input", shape, dtype)`` returns a tensor over the block of that name, enlarged if needed, and drops its
    key. ``remember("input", key)`` sets the key, ``holds("input", key)`` compares it.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, Tensor] = {}
        self._contents: dict[str, Hashable] = {}
        self._lock = threading.Lock()

    def block(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> Tensor:
        self._contents.pop(name, None)
        return self._view(name, shape, dtype, torch.device(device))

    def content(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The block with its content; call ``holds`` first."""
        return self._view(name, shape, dtype, torch.device("cpu"))

    def _view(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        flat, size = self._blocks.get(name), prod(shape)
        if flat is None or flat.dtype != dtype or flat.device != device or flat.numel() < size:
            self._blocks.pop(name, None)  # free the old block before allocating the new one
            # Outside inference mode, because a tensor made inside it could not be written to outside.
            with torch.inference_mode(False):
                flat = self._blocks[name] = torch.empty(size, dtype=dtype, device=device)
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
        """This memory, or a temporary one if another thread uses it."""
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

    The version counter detects in-place operations (optimisers, load_state_dict, copy_), the address a replaced tensor.
    Neither detects ``weight.data[3] = 0``, so the key contains the product of each row (filter, child) with a fixed
    random vector. That reads all values; ``sampled``, for short calls, reads every 257th value instead, and may miss an
    edit of single weights through ``.data``. None (do not keep) for tensors made in inference mode, which have no
    version counter.
    """
    if weight.is_inference():
        return None
    values = weight.detach().flatten(1)
    sample = values.view(-1)[::_APART] if sampled else torch.mv(values, _random_vector(values.shape[1], weight.dtype))
    return (
        weight.data_ptr(),
        weight._version,
        tuple(weight.shape),
        weight.dtype,
        sample.contiguous().view(torch.uint8).numpy().tobytes(),
    )


@lru_cache(maxsize=64)
def _random_vector(length: int, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.rand(length, generator=torch.Generator().manual_seed(0), dtype=dtype) + 0.5
