"""The parts of a convolution by transforms: spectra of maps and weights, their matrix products, and the way back.

All is arithmetic without autograd; fft_conv.py and stem.py put it together. Shapes, with F products per tile,
M = B * tiles rows, K = phases * C:

    input spectrum (F, M, K)  x  weight spectrum (F, K, O)  ->  output spectrum (F, M, O)

Large operands are made in chunks that stay in the cache between gathering and the two stages of a transform.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from capsnet.kernels._bases import Bases, Transform, transform_dtype
from capsnet.kernels._memory import Memory, fingerprint
from capsnet.kernels._parallel import each, slots
from capsnet.kernels._tiles import Plan, chunk_length

# Products per turn of the backward pass: small against their total, large enough to keep the matrix library busy.
_TURN = 12

Run = tuple[int, int]  # images start ... stop
# (slot, run, a (positions, images * tiles * K) buffer for it): fill the buffer, or any other one, and return it.
Fill = Callable[[int, Run, Tensor], Tensor]
Take = Callable[[int, Run, Tensor], None]


@dataclass(frozen=True)
class Spectral:
    """One convolution of one shape: C -> O channels, cut by ``plan``, computing in ``memory``.

    Spectra and their products have the plan's dtype; maps, weights and transforms have ``dtype``.
    """

    plan: Plan
    channels: int
    outputs: int
    memory: Memory

    @property
    def bases(self) -> Bases:
        return self.plan.bases

    @property
    def dtype(self) -> torch.dtype:
        return transform_dtype(self.plan.dtype)

    @property
    def depth(self) -> int:
        return self.plan.phases * self.channels

    def _input_block(self, batch: int) -> tuple[int, int, int]:
        return self.bases.products + _TURN, batch * self.plan.tiles, self.depth

    def _scratch(self, transform: Transform, columns: int, slot: int = 0) -> Tensor:
        return self.memory.block(f"half {slot}", (transform.scratch, columns), self.dtype)

    def runs(self, batch: int) -> list[Run]:
        """Runs of images small enough to be transformed in the cache."""
        step = chunk_length(self.plan.inputs, self.plan.tiles * self.depth, self.dtype.itemsize)
        return [(start, min(start + step, batch)) for start in range(0, batch, step)]

    def input_spectrum(self, batch: int, fill: Fill) -> Tensor:
        """(F, M, K). ``fill`` is called for each run of images."""
        spectrum = self.memory.block("input", self._input_block(batch), self.plan.dtype)[_TURN:]
        flat, width, transform = spectrum.flatten(1), self.plan.tiles * self.depth, self.bases.input

        def work(slot: int, run: Run) -> None:
            columns = (run[1] - run[0]) * width
            pieces = self.memory.block(f"pieces {slot}", (self.plan.inputs, columns), self.dtype)
            out = flat[:, run[0] * width : run[1] * width]
            transform.forward(fill(slot, run, pieces), out, self._scratch(transform, columns, slot))

        each(self.runs(batch), work)
        return spectrum

    def kept_input_spectrum(self, batch: int) -> Tensor:
        return self.memory.content("input", self._input_block(batch), self.plan.dtype)[_TURN:]

    def input_gradient(self, gradient: Tensor, take: Take) -> None:
        """The adjoint: calls ``take`` with the gradient of the pieces, run by run."""
        flat, width, transform = gradient.flatten(1), self.plan.tiles * self.depth, self.bases.input

        def work(slot: int, run: Run) -> None:
            columns = (run[1] - run[0]) * width
            pieces = self.memory.block(f"pieces {slot}", (self.plan.inputs, columns), self.dtype)
            source = flat[:, run[0] * width : run[1] * width]
            transform.adjoint(source, pieces, self._scratch(transform, columns, slot))
            take(slot, run, pieces)

        each(self.runs(gradient.shape[1] // self.plan.tiles), work)

    def _channel_runs(self) -> list[Run]:
        step = chunk_length(self.plan.phases * self.plan.taps, self.outputs, self.dtype.itemsize)
        return [(start, min(start + step, self.channels)) for start in range(0, self.channels, step)]

    def _taps(self, slot: int, channels: int) -> Tensor:
        plan = self.plan
        shape = (plan.phases, plan.rows.taps, plan.columns.taps, channels, self.outputs)
        return self.memory.block(f"taps {slot}", shape, self.dtype)

    def weight_spectrum(self, weight: Tensor) -> Tensor:
        """(F, K, O) of a weight (O, C, kh, kw); the one in memory if the weight is still the same."""
        plan, taps = self.plan, self.bases.taps
        shape = (taps.products, plan.phases, self.channels, self.outputs)
        key = fingerprint(weight), plan
        if key[0] is not None and self.memory.holds("weight", key):
            return self.memory.content("weight", shape, self.plan.dtype).flatten(1, 2)
        spectrum = self.memory.block("weight", shape, self.plan.dtype)

        def work(slot: int, run: Run) -> None:
            start, stop = run
            buffer, columns = self._taps(slot, stop - start), (stop - start) * self.outputs
            buffer.zero_()  # odd kernels leave gaps in the later phases
            for part, place in plan.tap_views(weight[:, start:stop], buffer):
                place.copy_(part)
            for phase in range(plan.phases):
                out = spectrum[:, phase, start:stop].flatten(1)  # a view: rows are apart, columns adjacent
                taps.forward(buffer[phase].view(plan.taps, columns), out, self._scratch(taps, columns, slot))

        each(self._channel_runs(), work)
        self.memory.remember("weight", key)
        return spectrum.flatten(1, 2)

    def weight_gradient(self, gradient: Tensor, like: Tensor) -> Tensor:
        """The adjoint: (F, K, O) -> (O, C, kh, kw)."""
        plan, taps = self.plan, self.bases.taps
        result = torch.empty(like.shape, dtype=self.dtype)
        phases = gradient.view(taps.products, plan.phases, self.channels, self.outputs)

        def work(slot: int, run: Run) -> None:
            start, stop = run
            buffer, columns = self._taps(slot, stop - start), (stop - start) * self.outputs
            for phase in range(plan.phases):
                source = phases[:, phase, start:stop].flatten(1)
                taps.adjoint(source, buffer[phase].view(plan.taps, columns), self._scratch(taps, columns, slot))
            for part, place in plan.tap_views(result[:, start:stop], buffer):
                part.copy_(place)

        each(self._channel_runs(), work)
        return result

    def output(self, inputs: Tensor, weights: Tensor) -> Tensor:
        """Products and the inverse transform: (m1*m2, M, O), newly allocated."""
        transform, rows = self.bases.output, inputs.shape[1]
        spectrum = self.memory.block("output", (transform.products, rows, self.outputs), self.plan.dtype)

        def work(_: int, part: slice) -> None:
            torch.bmm(inputs[part], weights[part], out=spectrum[part])

        each(_ranges(len(inputs)), work)
        result = torch.empty((self.plan.outputs, rows, self.outputs), dtype=self.dtype)
        transform.adjoint(spectrum.flatten(1), result.flatten(1), self._scratch(transform, rows * self.outputs))
        return result

    def output_spectrum(self, gradient: Tensor) -> Tensor:
        """Maps (B, O, H, W) -> (F, M, O): the gradient's way in."""
        transform, rows = self.bases.output, gradient.shape[0] * self.plan.tiles
        tiles = self.memory.block("pieces 0", (self.plan.outputs, rows, self.outputs), self.dtype)
        self.plan.disassemble(gradient, tiles)
        spectrum = self.memory.block("output", (transform.products, rows, self.outputs), self.plan.dtype)
        transform.forward(tiles.flatten(1), spectrum.flatten(1), self._scratch(transform, rows * self.outputs))
        return spectrum

    def products_backward(
        self, inputs: Tensor | None, weights: Tensor | None, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """(gradient of the input spectrum, or None without weights; of the weight spectrum, or None without inputs).

        Both overwrite what they are computed from, a few products at a time: the weight's gradient takes the weight's
        place, the input's gradient follows ``_TURN`` products behind in the input's block. This saves two blocks.
        """
        count, rows = gradient.shape[:2]
        ranges = _ranges(count)
        d_inputs = d_weights = spare = None
        if weights is not None:
            d_inputs = self.memory.block("input", (count + _TURN, rows, self.depth), self.plan.dtype)
            # A thread's first turn would overwrite inputs that another one still needs, so its result is stored here.
            spare = self.memory.block("spare", (len(ranges), _TURN, rows, self.depth), self.plan.dtype)
        if inputs is not None:
            self.memory.forget("weight")
            d_weights = weights
            if d_weights is None:
                d_weights = self.memory.block("weight", (count, self.depth, self.outputs), self.plan.dtype)

        def work(_: int, part: slice) -> None:
            for start in range(part.start, part.stop, _TURN):
                turn = slice(start, min(start + _TURN, part.stop))
                if weights is not None and d_inputs is not None and spare is not None:
                    waits = start == part.start > 0
                    out = spare[ranges.index(part), : turn.stop - start] if waits else d_inputs[turn]
                    torch.bmm(gradient[turn], weights[turn].transpose(1, 2), out=out)
                if inputs is not None and d_weights is not None:
                    torch.bmm(inputs[turn].transpose(1, 2), gradient[turn], out=d_weights[turn])

        each(ranges, work)
        if d_inputs is None or spare is None:
            return None, d_weights
        for part, waiting in zip(ranges[1:], spare[1:], strict=True):
            turn = slice(part.start, min(part.start + _TURN, part.stop))
            d_inputs[turn] = waiting[: turn.stop - turn.start]
        return d_inputs[:count], d_weights


def _ranges(count: int) -> list[slice]:
    """One run of products for each thread, in whole turns."""
    step = -(-count // (slots(count) * _TURN)) * _TURN
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]
