"""The IDX format of MNIST and its successors: a four-byte magic number, the dimensions, then the values, big-endian.

Files are trusted as little as a user's folder deserves: every length is checked before anything is interpreted, and
each error names the file, what was expected and what was found.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | Path, *, sha256: str | None = None) -> NDArray:
    """Read an IDX file, plain or compressed with gzip or xz (told apart by content, not by name).

    `sha256` is the expected hash of the uncompressed bytes. The array is read-only: it is a view of what was read.
    """
    path = Path(path)
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing"
        raise FileNotFoundError(f"{path}: expected an IDX file, found {found}")
    return decode_idx(unpack(path.read_bytes(), str(path)), str(path), sha256=sha256)


def unpack(data: bytes, source: str) -> bytes:
    """Decompress gzip or xz; anything else is taken to be plain."""
    if data.startswith(b"\x1f\x8b"):
        kind, decompress = "gzip", gzip.decompress
    elif data.startswith(b"\xfd7zXZ\x00"):
        kind, decompress = "xz", lzma.decompress
    else:
        return data
    try:
        return decompress(data)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(
            f"{source}: expected a complete {kind} file, found {len(data):,} bytes that do not decompress ({error})"
        ) from error


def decode_idx(data: bytes, source: str, *, sha256: str | None = None) -> NDArray:
    """Interpret uncompressed IDX bytes; `source` is the name that errors mention."""
    if len(data) < 4:
        raise ValueError(f"{source}: expected an IDX header of at least 4 bytes, found {len(data)} bytes")
    zeros, code, dims = data[:2], data[2], data[3]
    if zeros != b"\x00\x00" or code not in DTYPES or not 1 <= dims <= 8:
        raise ValueError(
            f"{source}: expected an IDX magic number (00 00, a type code such as 08, the number of dimensions), "
            f"found {data[:4].hex(' ')}"
        )
    start = 4 + 4 * dims
    if len(data) < start:
        raise ValueError(f"{source}: expected a header of {start} bytes for {dims} dimensions, found {len(data)} bytes")
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", dims, 4))
    dtype = np.dtype(DTYPES[code])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise ValueError(
            f"{source}: expected {expected:,} bytes for shape {'x'.join(map(str, shape))}, found {len(data):,}"
        )
    if sha256 is not None and (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise ValueError(f"{source}: expected SHA-256 {sha256} (uncompressed), found {found}")
    array = np.frombuffer(data, dtype, offset=start).reshape(shape)
    return array if dtype.itemsize == 1 else array.astype(dtype.newbyteorder("="))
