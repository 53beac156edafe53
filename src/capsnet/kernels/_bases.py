"""The small matrices that turn a convolution into independent matrix products.

**The idea.** Short sequences y and w, seen as polynomials, are multiplied by evaluating both at n points, multiplying
value by value, and interpolating. The transposed algorithm is a *correlation*, y[p] = sum_q x[p+q] w[q], with m outputs
and k taps from n = m + k - 1 inputs: evaluate the taps, *interpolate-transposed* the inputs, multiply,
evaluate-transposed back. In two dimensions everything is a product of the two axes. With the n-th roots of unity as
points this is the FFT; with real points it is Toom-Cook, in deep learning called Winograd.

**Which points.** A complex point costs three real products [Gauss] and stands, with its conjugate, for two inputs; a
real point costs one product and stands for one. So real points are cheaper, but powers of real numbers are nearly
parallel for n beyond about eight, and rounding errors grow. The points in float32 for seven inputs or more - real ones
+-1, +-2, +-1/2 for even n, 0, +-1, 2, -1/2 for odd n, the others spread over the unit circle - have the error of the
FFT (7e-7 of the largest value against 4e-7 for direct summation; 10x10 inputs need 132 products instead of the FFT's
148). In float64 precision matters more than speed, and bfloat16 has 8 bits: there the points are the roots of unity.
Spectra and products in bfloat16 then have 1.3 to 1.4 times the mean error of the direct convolution in bfloat16, with
the points of float32 2.1 to 2.5 times. The transforms themselves stay in float32.

**Three real products for a complex one.** With X = a + ib, W = c + id: p = (a+b) c, q = a (d-c), r = b (c+d) give XW =
(p - r) + i (p + q). The sums in front fold into the bases of X and W, those behind into the basis of the output, so
that nothing but matrix products remains.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import torch
from torch import Tensor

# Rows: the three real products; columns: what each takes from the real and the imaginary part.
_GAUSS_INPUT = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
_GAUSS_TAPS = np.array([[1.0, 0.0], [-1.0, 1.0], [1.0, 1.0]])
_GAUSS_OUTPUT = np.array([[2.0, -2.0], [0.0, -2.0], [-2.0, 0.0]])  # 2 Re(y XW): a point and its conjugate together

_REAL_EVEN = (1.0, -1.0, 2.0, -0.5, -2.0, 0.5)
_REAL_ODD = (0.0, 1.0, -1.0, 2.0, -0.5)


@dataclass(frozen=True)
class Points:
    """Where the polynomials of one axis are evaluated: real points and one of each conjugate pair of complex ones."""

    real: tuple[float, ...]
    pairs: tuple[complex, ...]

    @property
    def count(self) -> int:
        return len(self.real) + 2 * len(self.pairs)


def products(rows: Points, columns: Points) -> int:
    """Real products per pair of channels for one tile: how many matrix products the convolution becomes."""
    real, pairs = len(rows.real), len(rows.pairs)
    return (real * len(columns.real)) + 3 * (
        real * len(columns.pairs) + pairs * len(columns.real) + 2 * pairs * len(columns.pairs)
    )


def transform_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the transforms around products in ``dtype``."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


@cache
def choose_points(n: int, dtype: torch.dtype) -> Points:
    """n points for transforms of n inputs: as many real ones as rounding allows, the others on the unit circle."""
    if dtype != torch.float32:
        pairs = (n - 1) // 2
        roots = np.exp(2j * np.pi * np.arange(1, pairs + 1) / n)
        return Points((1.0, -1.0)[: n - 2 * pairs], tuple(complex(z) for z in roots))
    real = (_REAL_ODD if n % 2 else _REAL_EVEN)[: n if n <= 3 else n - 2]
    pairs = (n - len(real)) // 2
    spread = np.exp(1j * np.pi * np.arange(1, pairs + 1) / (pairs + 1))
    return Points(real, tuple(complex(z) for z in spread))


def _powers(points: Points, length: int) -> np.ndarray:
    """Evaluation of a polynomial of ``length`` coefficients: row f holds z_f ** (0 ... length-1)."""
    z = np.array([*points.real, *points.pairs], dtype=np.complex128)
    return z[:, None] ** np.arange(length)[None, :]


def _interpolation(points: Points) -> np.ndarray:
    """Row f holds the coefficients of the Lagrange polynomial that is 1 at z_f and 0 at all the other points."""
    everything = np.array([*points.real, *points.pairs, *np.conj(points.pairs)], dtype=np.complex128)
    rows = []
    for f in range(len(points.real) + len(points.pairs)):
        others = np.delete(everything, f)
        rows.append(np.poly(others)[::-1] / np.prod(everything[f] - others))
    return np.array(rows)


def _balanced(points: Points, outputs: int, taps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The axis matrices of inputs, taps and outputs, scaled so that for each point all three are equally large: the
    result depends on their product only, and rounding errors are smallest for equal magnitudes."""
    matrices = [_interpolation(points), _powers(points, taps), _powers(points, outputs)]
    norms = np.array([np.linalg.norm(matrix, axis=1) for matrix in matrices])  # (3, points)
    scale = norms.prod(axis=0) ** (1 / 3) / norms
    inputs, kernel, output = (matrix * s[:, None] for matrix, s in zip(matrices, scale, strict=True))
    return inputs, kernel, output


def _second_stage(axis: np.ndarray, real: int, gauss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The products' rows for a real and for a complex value of the first axis, given the matrix of the second axis.

    A real first value leaves ``length`` numbers per tile, a complex one twice as many: its real, then its imaginary
    parts.
    """
    zero = np.zeros_like(axis[0].real)
    after_real = [row.real for row in axis[:real]]
    after_complex = []
    for row in axis[:real]:
        after_complex += list(gauss @ np.stack([np.r_[row.real, zero], np.r_[zero, row.real]]))
    for row in axis[real:]:
        after_real += list(gauss @ np.stack([row.real, row.imag]))
        for c in (row, row.conj()):  # (z1, z2) and (z1, conj z2) are independent; the other two are their conjugates
            after_complex += list(gauss @ np.stack([np.r_[c.real, -c.imag], np.r_[c.imag, c.real]]))
    return np.array(after_real), np.array(after_complex).reshape(-1, 2 * axis.shape[1])


class Transform:
    """One separable two-dimensional change of basis, from (height x width) positions to the products, and its adjoint.

    First the rows are transformed, by one matrix product; then the columns, by one product for each value of the first
    axis. Positions come first in memory, batch and channels behind them as columns: the layout of the batched matrix
    products, so that nothing is transposed. Two stages need a quarter of the multiplications of a single dense basis,
    and are 2.8 times as fast.
    """

    def __init__(
        self, axes: tuple[np.ndarray, np.ndarray], reals: tuple[int, int], gauss: np.ndarray, dtype: torch.dtype
    ):
        rows, columns = axes
        self.shape = (rows.shape[1], columns.shape[1])
        self.values, self.real = len(rows), reals[0]
        stacked = [row.real for row in rows[: reals[0]]]
        for row in rows[reals[0] :]:
            stacked += [row.real, row.imag]
        after_real, after_complex = _second_stage(columns, reals[1], gauss)
        self.dtype = transform_dtype(dtype)
        self.first = torch.tensor(np.array(stacked), dtype=self.dtype)  # (n1, height)
        self.after_real = torch.tensor(after_real, dtype=self.dtype)
        self.after_complex = torch.tensor(after_complex, dtype=self.dtype)
        # Rows of scratch: those between the two stages, and to convert a spectrum, the largest block of one.
        self.between = len(stacked) * self.shape[1]
        self.scratch = self.between + (max(len(after_real), len(after_complex)) if dtype != self.dtype else 0)
        # Adjoints are stored, because small products are faster on contiguous factors.
        self.first_t, self.after_real_t, self.after_complex_t = (
            m.t().contiguous() for m in (self.first, self.after_real, self.after_complex)
        )

    @property
    def products(self) -> int:
        return self.real * len(self.after_real) + (self.values - self.real) * len(self.after_complex)

    def _blocks(self, spectrum: Tensor, half: Tensor) -> list[tuple[bool, Tensor, Tensor]]:
        """(is real, rows of the spectrum, rows of the half-transformed) for each value of the first axis."""
        width, blocks, row, source = self.shape[1], [], 0, 0
        for value in range(self.values):
            is_real = value < self.real
            height, depth = (len(self.after_real), width) if is_real else (len(self.after_complex), 2 * width)
            blocks.append((is_real, spectrum[row : row + height], half[source : source + depth]))
            row, source = row + height, source + depth
        return blocks

    def forward(self, positions: Tensor, spectrum: Tensor, scratch: Tensor) -> None:
        """positions (height*width, N), contiguous -> spectrum (products, N), rows may be apart. ``scratch``: (scratch,
        N)."""
        half, single = scratch.tensor_split([self.between])
        torch.mm(self.first, positions.view(self.shape[0], -1), out=half.view(len(self.first), -1))
        for is_real, out, source in self._blocks(spectrum, half):
            matrix = self.after_real if is_real else self.after_complex
            if out.dtype == self.dtype:
                torch.mm(matrix, source, out=out)
            else:
                out.copy_(torch.mm(matrix, source, out=single[: len(matrix)]))

    def adjoint(self, spectrum: Tensor, positions: Tensor, scratch: Tensor) -> None:
        """The transposed map: spectrum (products, N) -> positions (height*width, N), contiguous."""
        half, single = scratch.tensor_split([self.between])
        for is_real, source, out in self._blocks(spectrum, half):
            rows = source if source.dtype == self.dtype else single[: len(source)].copy_(source)
            torch.mm(self.after_real_t if is_real else self.after_complex_t, rows, out=out)
        torch.mm(self.first_t, half.view(len(self.first), -1), out=positions.view(self.shape[0], -1))


@dataclass(frozen=True)
class Bases:
    """The three transforms of one tile shape: y = output.adjoint(input.forward(x) * taps.forward(w))."""

    input: Transform
    taps: Transform
    output: Transform

    @property
    def products(self) -> int:
        return self.input.products


@lru_cache(maxsize=64)
def bases(outputs: tuple[int, int], taps: tuple[int, int], dtype: torch.dtype) -> Bases:
    """The bases for tiles of ``outputs`` from kernels of ``taps``, both (height, width)."""
    points = [choose_points(m + k - 1, dtype) for m, k in zip(outputs, taps, strict=True)]
    axes = [_balanced(p, m, k) for p, m, k in zip(points, outputs, taps, strict=True)]
    reals = (len(points[0].real), len(points[1].real))
    built = [
        Transform((axes[0][i], axes[1][i]), reals, gauss, dtype)
        for i, gauss in enumerate((_GAUSS_INPUT, _GAUSS_TAPS, _GAUSS_OUTPUT))
    ]
    return Bases(*built)
