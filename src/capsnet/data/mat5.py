"""MATLAB's level-5 .mat files (what `save` writes with -v6 and -v7), as far as data sets use them.

A file is a header of 128 bytes and a sequence of elements: a type, a length, the bytes. A variable is one element of
type "matrix", possibly zlib-compressed, whose body holds further elements: flags, dimensions, name, values. Arrays come
back with MATLAB's shape and in MATLAB's column-major order, which costs nothing: they are views of the bytes read.

Every length is checked against what is there before anything is interpreted, so a damaged file gives a ValueError that
names it and never anything else. (A file that is cut off exactly between two variables is a valid file with fewer.)
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

HEADER = 128
MATRIX, COMPRESSED = 14, 15
CELL, STRUCT, CHAR = 1, 2, 4
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}  # of elements
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}  # of arrays
REFUSED = {3: "object", 5: "sparse array", 16: "function handle", 17: "opaque object"}
TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
MAX_DEPTH = 32  # of structs in structs: deeper than anybody's data, far from Python's recursion limit


class Element(NamedTuple):
    kind: int
    body: memoryview


def read_mat(path: str | Path) -> dict[str, Any]:
    """Read all variables: arrays, text as str, a 1x1 struct as dict, other structs and cells as arrays of objects."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a .mat file, found {'a folder' if path.is_dir() else 'nothing'}")
    return decode_mat(path.read_bytes(), str(path))


def decode_mat(data: bytes, source: str) -> dict[str, Any]:
    """Interpret the bytes of a .mat file; `source` is the name that errors mention."""
    reader = _Reader(memoryview(data)[HEADER:], _byte_order(data, source), source)
    variables: dict[str, Any] = {}
    while reader.remaining():
        element = reader.element(top=True)
        if element.kind == COMPRESSED:
            element = reader.inside(_inflate(element.body, reader)).element()
        if element.kind == MATRIX:
            name, value = _matrix(reader.inside(element.body), 0)
            variables[name] = value
    if not variables:
        raise ValueError(f"{source}: expected at least one variable after the header, found none: the file is cut off")
    return variables


def _byte_order(data: bytes, source: str) -> str:
    if data[:19] == b"MATLAB 7.3 MAT-file" or data[:8] == b"\x89HDF\r\n\x1a\n":
        raise ValueError(
            f"{source}: expected a level-5 .mat file, found a version 7.3 (HDF5) one: save it again with -v7 in MATLAB"
        )
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None or int.from_bytes(data[124:126], "little" if order == "<" else "big") != 0x0100:
        raise ValueError(
            f"{source}: expected a level-5 .mat file (a header of 128 bytes that ends in version 0x0100 and IM or MI), "
            f"found {len(data):,} bytes with {data[124:128].hex(' ') or 'nothing'} there"
        )
    return order


class _Reader:
    """A position in a stretch of elements."""

    def __init__(self, data: memoryview, order: str, source: str) -> None:
        self.data, self.order, self.source, self.position = data, order, source, 0

    def remaining(self) -> int:
        return len(self.data) - self.position

    def inside(self, data: memoryview) -> _Reader:
        return _Reader(data, self.order, self.source)

    def fail(self, expected: str, found: object) -> ValueError:
        return ValueError(f"{self.source}: expected {expected}, found {found}: the file is damaged or cut off")

    def word(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + 4], "little" if self.order == "<" else "big")

    def element(self, *, top: bool = False) -> Element:
        """Take the next element: 8 bytes of type and length, or both and up to 4 bytes of data in 8 bytes in all."""
        start = self.position
        if self.remaining() < 8:
            raise self.fail("8 bytes of type and length", f"{self.remaining()} bytes")
        kind, length = self.word(start), self.word(start + 4)
        if small := kind >> 16:
            if small > 4:
                raise self.fail("a small element of at most 4 bytes", f"{small} bytes")
            self.position += 8
            return Element(kind & 0xFFFF, self.data[start + 4 : start + 4 + small])
        if length > self.remaining() - 8:
            raise self.fail(f"an element of {length:,} bytes", f"{self.remaining() - 8:,} bytes")
        end = start + 8 + length
        padding = 0 if top and kind == COMPRESSED else -length % 8
        self.position = min(end + padding, len(self.data))
        return Element(kind, self.data[start + 8 : end])

    def numbers(self, element: Element) -> NDArray[Any]:
        """The values of a numeric element, as a view."""
        if element.kind not in STORED:
            raise self.fail("an element of numbers", f"one of type {element.kind}")
        dtype = np.dtype(self.order + STORED[element.kind])
        if len(element.body) % dtype.itemsize:
            raise self.fail(f"a multiple of {dtype.itemsize} bytes", f"{len(element.body)} bytes")
        return np.frombuffer(element.body, dtype)


def _inflate(body: memoryview, reader: _Reader) -> memoryview:
    """Decompress one element, never more than its own length field announces."""
    try:
        head = zlib.decompressobj().decompress(body[:4096], 8)  # more than any table before the first byte
        size = 8 + reader.inside(memoryview(head)).word(4)
        machine = zlib.decompressobj()
        data = machine.decompress(body, size + 1)
    except zlib.error as error:
        raise reader.fail("a zlib-compressed variable", f"bytes that do not decompress ({error})") from error
    if len(data) != size or not machine.eof:
        raise reader.fail(f"a variable of {size:,} bytes", f"{len(data):,} bytes in the compressed data")
    return memoryview(data)


def _matrix(reader: _Reader, depth: int) -> tuple[str, Any]:
    """Read the body of a matrix element: its name and its value."""
    if not reader.remaining():
        return "", np.zeros((0, 0))  # how MATLAB writes a field that was never set
    if depth > MAX_DEPTH:
        raise reader.fail(f"at most {MAX_DEPTH} levels of nesting", "more")
    flags = reader.numbers(reader.element())
    if len(flags) != 2:
        raise reader.fail("two words of array flags", len(flags))
    kind, bits = int(flags[0]) & 0xFF, (int(flags[0]) >> 8) & 0xFF
    if kind in REFUSED:
        raise ValueError(f"{reader.source}: holds a {REFUSED[kind]}, which this reader does not know")
    shape = tuple(int(n) for n in reader.numbers(reader.element()))
    if not 2 <= len(shape) <= 32 or min(shape) < 0:
        raise reader.fail("2 to 32 dimensions", shape)
    name = bytes(reader.element().body).decode("latin-1")
    if kind == CHAR:
        return name, _text(reader, shape)
    if kind == CELL:
        return name, _objects(_items(reader, math.prod(shape), depth), shape)
    if kind == STRUCT:
        return name, _struct(reader, shape, depth)
    if kind not in CLASSES:
        raise reader.fail("a known class of array", f"class {kind}")
    values = _values(reader, shape, CLASSES[kind])
    if bits & 0x08:
        real, values = values, np.empty(shape, np.result_type(values, np.complex64), order="F")
        values.real, values.imag = real, _values(reader, shape, CLASSES[kind])
    return name, values.astype(bool) if bits & 0x02 else values


def _values(reader: _Reader, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Numbers in MATLAB's shape. They may be stored in a smaller type than the array's own, if they fit into it."""
    values = reader.numbers(reader.element())
    if len(values) != math.prod(shape):
        raise reader.fail(f"{math.prod(shape):,} values for shape {'x'.join(map(str, shape))}", f"{len(values):,}")
    return values.astype(dtype, copy=False).reshape(shape, order="F")


def _text(reader: _Reader, shape: tuple[int, ...]) -> str | NDArray[np.str_]:
    """One row of characters is a str; several rows, stored column by column, are an array of str."""
    element = reader.element()
    codec = TEXT.get(element.kind)
    if codec is None:
        raise reader.fail("characters", f"an element of type {element.kind}")
    if codec in ("utf-16", "utf-32"):
        codec += "-le" if reader.order == "<" else "-be"
    try:
        text = bytes(element.body).decode(codec)
    except UnicodeDecodeError as error:
        raise reader.fail(f"text in {codec}", str(error)) from error
    rows = shape[0]
    if rows <= 1 and len(shape) == 2:
        return text
    if len(text) != math.prod(shape):
        raise reader.fail(f"{math.prod(shape):,} characters for shape {'x'.join(map(str, shape))}", f"{len(text):,}")
    return np.array([text[row::rows] for row in range(rows)])


def _struct(reader: _Reader, shape: tuple[int, ...], depth: int) -> Any:
    """Field names of a fixed width, then the fields of each element of the array in turn."""
    width = reader.numbers(reader.element())
    names = bytes(reader.element().body)
    if len(width) != 1 or width[0] < 1 or len(names) % int(width[0]):
        raise reader.fail("field names of equal width", f"{len(names)} bytes for width {width.tolist()}")
    step = int(width[0])
    fields = [names[i : i + step].split(b"\0")[0].decode("latin-1") for i in range(0, len(names), step)]
    count = math.prod(shape)
    if not fields and count > 1:
        raise reader.fail("a struct array with fields", f"{count:,} elements without any")
    values = _items(reader, count * len(fields), depth)
    rows = [dict(zip(fields, values[i * len(fields) : (i + 1) * len(fields)], strict=True)) for i in range(count)]
    return rows[0] if count == 1 else _objects(rows, shape)


def _items(reader: _Reader, count: int, depth: int) -> list[Any]:
    if count > reader.remaining() // 8:
        raise reader.fail(f"{count:,} values", f"{reader.remaining():,} bytes")
    items = []
    for _ in range(count):
        element = reader.element()
        if element.kind != MATRIX:
            raise reader.fail("an array in a struct or cell", f"an element of type {element.kind}")
        items.append(_matrix(reader.inside(element.body), depth + 1)[1])
    return items


def _objects(items: list[Any], shape: tuple[int, ...]) -> NDArray[np.object_]:
    array = np.empty(len(items), dtype=object)
    for index, item in enumerate(items):  # one by one: numpy would try to merge arrays of equal shape
        array[index] = item
    return array.reshape(shape, order="F")
