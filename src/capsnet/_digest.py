"""A digest of tensors and plain values, to notice damage: a flipped bit, a changed type, a missing part.

It protects from accidents, not from forgery: who can change a file can change its digest, too.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def digest(value: Any) -> str:
    """``sha256:`` and the hash of a value: tensors (type, shape, bytes), mappings, sequences and what JSON can hold.

    The same before saving and after loading, on any device; the order of a mapping's keys has no effect.
    """
    hasher = hashlib.sha256()
    _add(hasher, value)
    return f"sha256:{hasher.hexdigest()}"


def _add(hasher: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        hasher.update(f"tensor {value.dtype} {tuple(value.shape)}:".encode())
        hasher.update(flat.view(torch.uint8).numpy() if flat.numel() else b"")
    elif isinstance(value, Mapping):
        hasher.update(f"mapping {len(value)}:".encode())
        for key in sorted(value, key=lambda key: (str(type(key)), key)):
            _add(hasher, key)
            _add(hasher, value[key])
    elif isinstance(value, list | tuple):
        hasher.update(f"sequence {len(value)}:".encode())
        for part in value:
            _add(hasher, part)
    else:
        hasher.update(json.dumps(value).encode() + b";")
