"""How a convolution is cut into tiles, and where each tile's numbers lie.

A stride-s convolution is a sum of s*s stride-1 convolutions of the phases of its input: rows 0, s, 2s ... with kernel
rows 0, s, 2s ..., rows 1, s+1 ... with kernel rows 1, s+1 ..., and so for columns. The phases are independent channels
to what follows, so a 9x9 kernel at stride 2 is a 5x5 kernel at stride 1 on four times the channels. Outputs are
computed in tiles of (m1, m2), each from an (m+k-1)-sized piece of every phase; neighbouring pieces overlap by k-1
[overlap-save], and maps that fit are one tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnet.kernels import _bases

LARGEST = 18  # inputs per tile axis: beyond it the transforms outgrow what the products save
_CACHE = 3 << 20  # bytes


@dataclass(frozen=True)
class Axis:
    """One axis of the cut: ``tiles`` tiles of ``outputs`` outputs, ``taps`` taps per phase."""

    size: int
    kernel: int
    stride: int
    padding: int
    tiles: int

    @property
    def total(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def outputs(self) -> int:
        return -(-self.total // self.tiles)

    @property
    def taps(self) -> int:
        return -(-self.kernel // self.stride)

    @property
    def inputs(self) -> int:
        return self.outputs + self.taps - 1

    @property
    def span(self) -> int:
        """Input rows that all tiles together look at, padding included; more or less than the input has."""
        return self.stride * ((self.tiles - 1) * self.outputs + self.inputs)


@dataclass(frozen=True)
class Plan:
    """Both axes, the dtype of the products, and the shapes that follow from them."""

    rows: Axis
    columns: Axis
    dtype: torch.dtype

    @property
    def tiles(self) -> int:
        return self.rows.tiles * self.columns.tiles

    @property
    def phases(self) -> int:
        return self.rows.stride * self.columns.stride

    @property
    def inputs(self) -> int:
        return self.rows.inputs * self.columns.inputs

    @property
    def outputs(self) -> int:
        return self.rows.outputs * self.columns.outputs

    @property
    def taps(self) -> int:
        return self.rows.taps * self.columns.taps

    @property
    def products(self) -> int:
        return _bases.products(*(_bases.choose_points(a.inputs, self.dtype) for a in (self.rows, self.columns)))

    @property
    def bases(self) -> _bases.Bases:
        return _bases.bases((self.rows.outputs, self.columns.outputs), (self.rows.taps, self.columns.taps), self.dtype)

    def pad(self, maps: Tensor) -> Tensor:
        """Maps (..., H, W) widened by the padding, and cut or widened to what the tiles look at. Contiguous."""
        edges = []
        for axis in (self.columns, self.rows):
            edges += [axis.padding, axis.span - axis.size - axis.padding]
        return (F.pad(maps, edges) if any(edges) else maps).contiguous()

    def windows(self, padded: Tensor) -> Tensor:
        """A view (n1, n2, B, tiles, tiles, s, s, C) of padded maps (B, C, span, span): position first, channels
        last."""
        r, c = self.rows, self.columns
        b, ch, y, x = padded.stride()
        size = (r.inputs, c.inputs, padded.shape[0], r.tiles, c.tiles, r.stride, c.stride, padded.shape[1])
        steps = (r.stride * y, c.stride * x, b, r.stride * r.outputs * y, c.stride * c.outputs * x, y, x, ch)
        return padded.as_strided(size, steps, padded.storage_offset())

    def scatter(self, tiles: Tensor, padded: Tensor) -> None:
        """The adjoint of reading ``windows``: add (n1, n2, B, tiles, tiles, s, s, C) pieces into zeroed padded maps."""
        target = self.windows(padded)
        if self.tiles == 1:
            target.copy_(tiles)
            return
        for i in range(self.rows.tiles):  # neighbours overlap, so one tile at a time
            for j in range(self.columns.tiles):
                target[:, :, :, i, j] += tiles[:, :, :, i, j]

    def unpad(self, padded: Tensor, size: tuple[int, ...]) -> Tensor:
        """The adjoint of ``pad``: the (..., H, W) part that came from the maps; zeros where no tile looked."""
        edges = []
        for axis in (self.columns, self.rows):
            edges += [-axis.padding, axis.padding + axis.size - axis.span]
        out = F.pad(padded, edges) if any(edges) else padded
        assert out.shape == size
        return out

    def tap_views(self, weight: Tensor, buffer: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Pairs (taps of one phase in the weight, their place in buffer (phases, k1, k2, C, O)), both (t1, t2, C,
        O)."""
        pairs = []
        for phase in range(self.phases):
            i, j = divmod(phase, self.columns.stride)
            part = weight[:, :, i :: self.rows.stride, j :: self.columns.stride].permute(2, 3, 1, 0)
            pairs.append((part, buffer[phase, : part.shape[0], : part.shape[1]]))
        return pairs

    def assemble(self, tiles: Tensor, batch: int) -> Tensor:
        """Outputs (m1*m2, B*tiles, O) as maps (B, O, H, W): in the same memory if there is one tile, else a copy.

        ``.data``, because autograd forbids in-place operations on what is known as a view and was made without it; the
        tiles are not used after this.
        """
        r, c = self.rows, self.columns
        parts = tiles.view(r.outputs, c.outputs, batch, r.tiles, c.tiles, -1)
        if self.tiles == 1:
            return parts[:, :, :, 0, 0].permute(2, 3, 0, 1).data
        maps = parts.permute(2, 5, 3, 0, 4, 1).reshape(batch, parts.shape[-1], r.tiles * r.outputs, c.tiles * c.outputs)
        return maps[:, :, : r.total, : c.total].data

    def disassemble(self, maps: Tensor, out: Tensor) -> None:
        """The adjoint of ``assemble``: maps (B, O, H, W) into out (m1*m2, B*tiles, O)."""
        r, c = self.rows, self.columns
        if self.tiles > 1:
            maps = F.pad(maps, (0, c.tiles * c.outputs - c.total, 0, r.tiles * r.outputs - r.total))
        batch, channels = maps.shape[:2]
        parts = maps.reshape(batch, channels, r.tiles, r.outputs, c.tiles, c.outputs).permute(3, 5, 0, 2, 4, 1)
        out.view(r.outputs, c.outputs, batch, r.tiles, c.tiles, channels).copy_(parts)


def candidates(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dtype: torch.dtype,
) -> list[Plan]:
    """Every sensible cut: from one tile per axis down to tiles as small as the kernel."""
    axes: list[list[Axis]] = []
    for s, k, t, p in zip(size, kernel, stride, padding, strict=True):
        choices, seen = [], set()
        for tiles in range(1, max(1, (s + 2 * p - k) // t + 1) + 1):
            axis = Axis(s, k, t, p, tiles)
            tight = -(-axis.total // axis.outputs) == tiles  # no tile entirely beyond the map
            if axis.inputs <= LARGEST and tight and axis.outputs not in seen:
                seen.add(axis.outputs)
                choices.append(axis)
            if axis.outputs < max(2, axis.taps // 2):
                break
        axes.append(choices)
    return [Plan(rows, columns, dtype) for rows in axes[0] for columns in axes[1]]


def chunk_length(rows: int, width: int, element_size: int) -> int:
    """How many columns of ``width`` numbers to take at once so that ``rows`` of them stay in the cache."""
    return max(1, _CACHE // (rows * width * element_size))
