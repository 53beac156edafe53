"""Arrays in MATLAB's level-5 .mat files (what ``save`` writes with -v6 and -v7), as far as data sets use them.

``scipy.io.loadmat`` is not used: it trusts the types and lengths in a file, so one damaged byte can crash the process.
Here every length is checked before anything is interpreted, and damage gives a ValueError that names the file.

A file is a header of 128 bytes and a sequence of elements: a type, a length, the bytes. A variable is an element of
type "matrix", possibly zlib-compressed, that holds further elements: flags, dimensions, name, values. Arrays have
MATLAB's shape and column-major order. (A file that is cut off exactly between two variables is a valid one with fewer.)
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADER = 128
MATRIX, COMPRESSED = 14, 15  # types of elements that hold others
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
STRUCT = 2  # a class of matrices; the others that are read are numbers
NUMBERS = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
MAX_DEPTH = 32  # of structs in structs
Element = tuple[int, memoryview]  # type and bytes


def read_mat(path: str | Path) -> dict[str, Any]:
    """Read the variables that are arrays of real numbers, or 1x1 structs of such arrays (as dicts); skip others."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a .mat file, found {'a folder' if path.is_dir() else 'nothing'}")
    return decode_mat(path.read_bytes(), str(path))


def decode_mat(data: bytes, source: str) -> dict[str, Any]:
    """Interpret the bytes of a .mat file; ``source`` is the name that errors mention."""
    if data[:19] == b"MATLAB 7.3 MAT-file" or data[:8] == b"\x89HDF\r\n\x1a\n":
        raise ValueError(
            f"{source}: expected a level-5 .mat file, found a version 7.3 (HDF5) one: save it again with -v7 in MATLAB"
        )
    order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(data[124:128])
    if order is None:
        raise ValueError(
            f"{source}: expected a level-5 .mat file (a header of 128 bytes that ends in version 0x0100 and IM or MI), "
            f"found {len(data):,} bytes with {data[124:128].hex(' ') or 'nothing'} there"
        )
    try:
        top = list(_elements(memoryview(data)[HEADER:], order, top=True))
        variables = dict(_matrix(_inflate(item, order), order, 0) for item in top)
    except (ValueError, IndexError, struct.error, zlib.error) as error:
        raise ValueError(f"{source}: expected a complete .mat file, found {error}") from error
    if not top:
        raise ValueError(f"{source}: expected at least one variable after the header, found none: the file is cut off")
    return {name: value for name, value in variables.items() if value is not None}


def _elements(data: memoryview, order: str, *, top: bool = False) -> Iterator[Element]:
    """The type and the bytes of each element; up to 4 bytes may share the 8 bytes of type and length."""
    start = 0
    while start < len(data):
        kind, length = struct.unpack_from(f"{order}II", data, start)
        first, room = start + 8, len(data) - start - 8
        if small := kind >> 16:
            kind, length, first, room = kind & 0xFFFF, small, start + 4, 4
        if length > room:
            raise ValueError(f"an element of {length:,} bytes with room for {room:,}")
        yield kind, data[first : first + length]
        start += 8 if small else 8 + length + (0 if top and kind == COMPRESSED else -length % 8)


def _inflate(element: Element, order: str) -> Element:
    """Decompress an element if it is compressed, never more than it announces."""
    kind, body = element
    if kind != COMPRESSED:
        return element
    machine = zlib.decompressobj()
    kind, length = struct.unpack(f"{order}II", machine.decompress(body, 8))
    data = machine.decompress(machine.unconsumed_tail, length + 1)
    if len(data) != length or not machine.eof:
        raise ValueError(f"{len(data):,} bytes in a compressed variable of {length:,}")
    return kind, memoryview(data)


def _matrix(element: Element, order: str, depth: int) -> tuple[str, Any]:
    """The name and the value of a matrix; None is a value that is not read."""
    kind, body = element
    if kind != MATRIX or depth > MAX_DEPTH:
        raise ValueError(f"an element of type {kind} in place of a variable, {depth} levels deep")
    if not len(body):
        return "", None  # how MATLAB writes a field that was never set
    flags, dims, name, *parts = _elements(body, order)
    bits, shape = int(_numbers(flags, order)[0]), tuple(_numbers(dims, order).tolist())
    if not 2 <= len(shape) <= 32 or min(shape) < 0:
        raise ValueError(f"dimensions {shape}")
    value = None
    if bits & 0xFF == STRUCT and math.prod(shape) == 1:
        width, text = int(_numbers(parts[0], order)[0]), bytes(parts[1][1])  # field names of a fixed width
        fields = [text[i : i + width].split(b"\0")[0].decode("latin-1") for i in range(0, len(text), width)]
        value = {f: _matrix(part, order, depth + 1)[1] for f, part in zip(fields, parts[2:], strict=True)}
    elif bits & 0xFF in NUMBERS and not bits & 0x0800:  # complex numbers
        value = _numbers(parts[0], order).astype(NUMBERS[bits & 0xFF], copy=False).reshape(shape, order="F")
    return bytes(name[1]).decode("latin-1"), value


def _numbers(element: Element, order: str) -> NDArray[Any]:
    """The values of an element. They may be stored in a smaller type than the array's own, if they fit into it."""
    kind, body = element
    if kind not in STORED:
        raise ValueError(f"an element of type {kind} in place of numbers")
    return np.frombuffer(body, order + STORED[kind])
