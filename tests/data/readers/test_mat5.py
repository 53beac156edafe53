"""The reader of .mat files against SciPy's writer, and against every kind of damage."""

import contextlib
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.io import savemat
from scipy.sparse import csr_matrix

from capsnet.data.readers.mat5 import decode_mat, read_mat

TYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]


def mat_bytes(variables: dict[str, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    savemat(file, variables, **options)
    return file.getvalue()


def big_endian(array: np.ndarray, name: bytes = b"x") -> bytes:
    """A big-endian file; SciPy writes little-endian files only."""

    def element(kind: int, body: bytes) -> bytes:
        return struct.pack(">II", kind, len(body)) + body + bytes(-len(body) % 8)

    body = element(6, struct.pack(">II", 6, 0)) + element(5, struct.pack(f">{array.ndim}i", *array.shape))
    body += struct.pack(">HH", len(name), 1) + name.ljust(4, b"\0")  # a small element: length first in this order
    body += element(4, array.astype(">u2").tobytes(order="F"))  # doubles, stored as 16-bit numbers
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI" + element(14, body)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_of_all_types_are_read(tmp_path: Path, dtype: str, packed: bool) -> None:
    array = (np.arange(24).reshape(2, 3, 4) - (0 if dtype[0] == "u" else 7)).astype(dtype)
    path = tmp_path / "a.mat"
    savemat(path, {"a": array, "b": array[0]}, do_compression=packed)
    variables_read = read_mat(path)
    assert list(variables_read) == ["a", "b"]
    np.testing.assert_array_equal(variables_read["a"], array)
    np.testing.assert_array_equal(variables_read["b"], array[0])
    assert variables_read["a"].dtype == array.dtype


@given(
    array=hnp.arrays(
        st.sampled_from(["u1", "i2", "i4", "i8", "f4", "f8"]),
        hnp.array_shapes(min_dims=2, max_dims=4, min_side=0, max_side=5),
    ),
    packed=st.booleans(),
)
def test_any_array_is_read_back(array: np.ndarray, packed: bool) -> None:
    result = decode_mat(mat_bytes({"some_name": array}, do_compression=packed), "memory")["some_name"]
    np.testing.assert_array_equal(result, array)
    assert result.dtype == array.dtype


@pytest.mark.parametrize("packed", [False, True])
def test_structs_are_dicts_and_other_values_are_skipped(packed: bool) -> None:
    cell = np.empty((1, 2), dtype=object)
    cell[0, 0], cell[0, 1] = np.arange(3.0), "inside"
    fields = {"image": np.eye(3, dtype=np.uint8), "name": "déjà vu", "deep": {"x": np.arange(4.0)}, "cell": cell}
    variables = {"s": fields, "text": "words", "cell": cell, "complex": np.eye(2) * 1j, "sparse": csr_matrix(np.eye(3))}
    result = decode_mat(mat_bytes(variables | {"last": np.eye(2)}, do_compression=packed), "memory")
    assert list(result) == ["s", "last"]
    np.testing.assert_array_equal(result["s"]["image"], np.eye(3))
    np.testing.assert_array_equal(result["s"]["deep"]["x"].ravel(), np.arange(4))
    assert result["s"]["name"] is None
    np.testing.assert_array_equal(result["last"], np.eye(2))


def test_big_endian_and_smaller_storage_are_read() -> None:
    array = np.arange(6.0).reshape(2, 3)
    result = decode_mat(big_endian(array), "memory")
    np.testing.assert_array_equal(result["x"], array)
    assert result["x"].dtype == np.float64


@pytest.mark.parametrize("packed", [False, True])
def test_every_truncation_is_an_error(packed: bool) -> None:
    rng = np.random.default_rng(0)
    fields = {"image": rng.integers(0, 256, (40, 30), dtype=np.uint8), "name": "digits", "c": np.arange(5.0)}
    data = mat_bytes({"data": fields}, do_compression=packed)
    for end in [*range(0, len(data), 50), 127, 128, 129, 135, 136, 137, len(data) - 1]:
        with pytest.raises(ValueError, match="memory: "):
            decode_mat(data[:end], "memory")


@given(st.data())
def test_damage_gives_an_array_or_a_value_error(data: st.DataObject) -> None:
    plain = bytearray(mat_bytes({"s": {"a": np.arange(6.0), "b": ["x", "yz"]}, "n": np.eye(2)}))
    for _ in range(data.draw(st.integers(1, 4))):
        plain[data.draw(st.integers(124, len(plain) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):  # and no other error
        decode_mat(bytes(plain), "memory")


def test_damaged_compression_is_refused() -> None:
    data = bytearray(mat_bytes({"a": np.arange(1000)}, do_compression=True))
    data[400] ^= 0xFF
    with pytest.raises(ValueError, match="memory: expected"):
        decode_mat(bytes(data), "memory")


def test_nesting_has_a_limit() -> None:
    value: Any = np.eye(2)
    for _ in range(40):
        value = {"s": value}
    with pytest.raises(ValueError, match="levels deep"):
        decode_mat(mat_bytes({"a": value}), "memory")


def test_other_formats_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"version 7\.3 \(HDF5\).*-v7"):
        decode_mat(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM" + bytes(600), "new")
    with pytest.raises(ValueError, match=r"expected a level-5 \.mat file"):
        decode_mat(mat_bytes({"a": np.eye(2)}, format="4"), "old")
    with pytest.raises(ValueError, match="found 0 bytes with nothing there"):
        decode_mat(b"", "empty")
    with pytest.raises(ValueError, match="none: expected at least one variable"):
        decode_mat(mat_bytes({}), "none")
    with pytest.raises(FileNotFoundError, match=r"nowhere: expected a \.mat file, found nothing"):
        read_mat(tmp_path / "nowhere")
