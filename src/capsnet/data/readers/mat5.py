"""MATLAB's level-5 .mat files (what ``save`` writes with -v6 and -v7).

Not ``scipy.io.loadmat``: it is compiled and trusts the types and lengths in a file, so one damaged byte can crash the
process. Here every length is checked before anything is interpreted, and damage gives a ValueError that names the file.

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
TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
CELL, STRUCT, CHAR = 1, 2, 4  # classes of matrices
NUMBERS = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
REFUSED = {3: "object", 5: "sparse array", 16: "function handle", 17: "opaque object"}
MAX_DEPTH = 32  # of structs in structs


def read_mat(path: str | Path) -> dict[str, Any]:
    """Read all variables: arrays, text as str, a 1x1 struct as dict, other structs and cells as arrays of objects."""
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
    variables: dict[str, Any] = {}
    try:
        for kind, body in _elements(memoryview(data)[HEADER:], order, top=True):
            if kind == COMPRESSED:
                kind, body = _inflate(body, order)
            if kind == MATRIX:
                name, value = _matrix(body, order, 0)
                variables[name] = value
    except (ValueError, IndexError, struct.error, zlib.error) as error:
        raise ValueError(f"{source}: expected a complete .mat file, found {error}") from error
    if not variables:
        raise ValueError(f"{source}: expected at least one variable after the header, found none: the file is cut off")
    return variables


def _elements(data: memoryview, order: str, *, top: bool = False) -> Iterator[tuple[int, memoryview]]:
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


def _inflate(body: memoryview, order: str) -> tuple[int, memoryview]:
    """Decompress one element, never more than it announces."""
    machine = zlib.decompressobj()
    kind, length = struct.unpack(f"{order}II", machine.decompress(body, 8))
    data = machine.decompress(machine.unconsumed_tail, length + 1)
    if len(data) != length or not machine.eof:
        raise ValueError(f"{len(data):,} bytes in a compressed variable of {length:,}")
    return kind, memoryview(data)


def _matrix(body: memoryview, order: str, depth: int) -> tuple[str, Any]:
    """The name and the value of a matrix."""
    if not len(body):
        return "", np.zeros((0, 0))  # how MATLAB writes a field that was never set
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels of nesting")
    flags, dims, name, *parts = _elements(body, order)
    bits, shape = int(_numbers(flags, order)[0]), tuple(_numbers(dims, order).tolist())
    if not 2 <= len(shape) <= 32 or min(shape) < 0:
        raise ValueError(f"dimensions {shape}")
    kind = bits & 0xFF
    if kind == CHAR:
        value = _text(parts[0], order, shape)
    elif kind == CELL:
        value = _objects([_inner(part, order, depth) for part in parts], shape)
    elif kind == STRUCT:
        value = _struct(parts, order, shape, depth)
    elif kind in NUMBERS:
        planes = [_numbers(part, order).astype(NUMBERS[kind], copy=False).reshape(shape, order="F") for part in parts]
        value = planes[0]
        if bits & 0x0800:
            value = np.empty(shape, np.result_type(value, np.complex64), order="F")
            value.real, value.imag = planes
        value = value.astype(bool) if bits & 0x0200 else value
    else:
        raise ValueError(f"a {REFUSED.get(kind, f'matrix of class {kind}')}, which is not read here")
    return bytes(name[1]).decode("latin-1"), value


def _numbers(element: tuple[int, memoryview], order: str) -> NDArray[Any]:
    kind, body = element
    if kind not in STORED:
        raise ValueError(f"an element of type {kind} in place of numbers")
    return np.frombuffer(body, order + STORED[kind])


def _inner(element: tuple[int, memoryview], order: str, depth: int) -> Any:
    kind, body = element
    if kind != MATRIX:
        raise ValueError(f"an element of type {kind} in a struct or cell")
    return _matrix(body, order, depth + 1)[1]


def _struct(parts: list[tuple[int, memoryview]], order: str, shape: tuple[int, ...], depth: int) -> Any:
    """Field names of a fixed width, then the fields of each element of the array in turn."""
    width, text = int(_numbers(parts[0], order)[0]), bytes(parts[1][1])
    names = [text[i : i + width].split(b"\0")[0].decode("latin-1") for i in range(0, len(text), width)]
    fields, count = parts[2:], math.prod(shape)
    if len(fields) != count * len(names) or (count > 1 and not names):
        raise ValueError(f"{len(fields)} values of {len(names)} fields in a struct of shape {shape}")
    values = iter([_inner(field, order, depth) for field in fields])
    rows = [{name: next(values) for name in names} for _ in range(count)]
    return rows[0] if count == 1 else _objects(rows, shape)


def _text(element: tuple[int, memoryview], order: str, shape: tuple[int, ...]) -> str | NDArray[np.str_]:
    """One row of characters is a str; several rows, stored column by column, are an array of str."""
    kind, body = element
    if kind not in TEXT:
        raise ValueError(f"an element of type {kind} in place of text")
    codec = TEXT[kind] + ("" if kind < 4 or kind == 16 else "-le" if order == "<" else "-be")
    text, rows = bytes(body).decode(codec), shape[0]
    if rows <= 1 and len(shape) == 2:
        return text
    if len(text) != math.prod(shape):
        raise ValueError(f"{len(text):,} characters for shape {shape}")
    return np.array([text[row::rows] for row in range(rows)])


def _objects(items: list[Any], shape: tuple[int, ...]) -> NDArray[np.object_]:
    array = np.empty(len(items), dtype=object)
    for index, item in enumerate(items):  # one by one: numpy would merge arrays of equal shape
        array[index] = item
    return array.reshape(shape, order="F")
