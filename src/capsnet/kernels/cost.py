"""Which kernel to use, by an estimate of the cost.

The unit is one multiply-add of a large float32 matrix product. The prices were fitted to measurements
on two Zen 4 cores (``python -m benchmarks.prices`` compares prediction and measurement). Other machines differ, hence
the margin of 1.5.

Override with ``using("plain")`` or ``using("fast")`` around code, or with the environment variable CAPSNET_KERNELS.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Literal, cast

import torch
from torch import Tensor

from capsnet.kernels._autocast import autocast_dtype, has_bf16
from capsnet.kernels._tiles import Plan, candidates
from capsnet.kernels.int8_conv import available as int8_available
from capsnet.kernels.packed_conv import available

Path = Literal["auto", "plain", "fast"]

MARGIN = 1.5  # predicted gain below which the native convolution is used
STEP = 2.4  # a multiply-add of a transform: its matrices are small, so it costs more
TOUCH = 3.0  # a number read or written by a transform
GATHER = 65.0  # a number copied between layouts, with the memory it needs
SCATTER = 80.0  # the same, averaged over forward and backward passes
READ = 11.0  # a weight read from memory, which dominates products of few rows
CALL = 8e7  # fixed cost of a call: about fifty small operations and the barriers between threads
NATIVE, NATIVE_BACKWARD = 0.7, 1.0  # a multiply-add of the native convolution at inference and in training
LOWERED = 0.45  # a multiply-add of a large bfloat16 matrix product
NATIVE_LOWERED, NATIVE_BACKWARD_LOWERED = 0.35, 0.55  # of the native convolution in bfloat16

SHALLOW, WINDOW = 5.5, 1.5  # a multiply-add of a first convolution with few channels: native, and over gathered windows

_SMALLEST_KERNEL = 5
_USUAL_BATCH = 128
_DEEPEST_WINDOW = 512  # values under the first kernel of a stem: beyond, gathering windows costs too much
_DEEP, _FEWEST_ROWS = 512, 80  # packing is used from so many values under a kernel on, up to so many output positions
_path: ContextVar[Path | None] = ContextVar("capsnet_kernels", default=None)


def current_path() -> Path:
    """The current path: the innermost ``using``, else the environment's, else "auto"; "plain" while compiling."""
    if torch.compiler.is_compiling():
        return "plain"  # compilers and exporters need the plain operators, and do not see contexts
    path = _path.get() or os.environ.get("CAPSNET_KERNELS", "auto")
    if path not in ("auto", "plain", "fast"):
        raise ValueError(f'CAPSNET_KERNELS must be "auto", "plain" or "fast", got {path!r}')
    return cast(Path, path)


@contextmanager
def using(path: Path) -> Iterator[None]:
    """Within the block, use a fast path never ("plain"), if there is one ("fast"), or if it is faster ("auto")."""
    if path not in ("auto", "plain", "fast"):
        raise ValueError(f'path must be "auto", "plain" or "fast", got {path!r}')
    token = _path.set(path)
    try:
        yield
    finally:
        _path.reset(token)


def ordinary(*tensors: Tensor | None) -> bool:
    """Whether fast paths can take these tensors: dense CPU tensors of one dtype, in eager mode, outside autocast."""
    present = [t for t in tensors if t is not None]
    same = all(t.dtype == present[0].dtype and t.dtype in (torch.float32, torch.float64) for t in present)
    return same and autocast_dtype() is None and _eager(present)


def product_dtype(x: Tensor, *weights: Tensor | None) -> torch.dtype | None:
    """The dtype of the products of a convolution by transforms, or None where it cannot take these tensors.

    It is that of the tensors; under autocast to bfloat16 that one if the CPU has it, else float32, which is faster.
    """
    lowered = autocast_dtype()
    if lowered is None:
        return x.dtype if ordinary(x, *weights) else None
    present = [t for t in weights if t is not None]
    fits = x.dtype in (torch.float32, torch.bfloat16) and all(t.dtype == torch.float32 for t in present)
    if lowered != torch.bfloat16 or not fits or not _eager([x, *present]):
        return None
    return torch.bfloat16 if has_bf16() else torch.float32


def _eager(tensors: list[Tensor]) -> bool:
    """Whether these are dense CPU tensors in eager mode.

    Under compilation, export, tracing, function transforms and forward-mode derivatives the plain operators must stay
    visible.
    """
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return False
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return False
    kinds = (Tensor, torch.nn.Parameter)
    return all(type(t) in kinds and t.device.type == "cpu" and t.layout == torch.strided for t in tensors)


@lru_cache(maxsize=4096)
def estimate(plan: Plan, batch: int, channels: int, outputs: int, backward: bool, cached: bool) -> float:
    """The cost of a convolution by transforms, in multiply-adds. ``cached``: the weight's spectrum costs nothing."""
    count, rows, depth = plan.products, batch * plan.tiles, plan.phases * channels

    def transform(positions: int) -> float:
        """Both stages, for one column of ``positions`` numbers and its spectrum, with the way in or out."""
        stages = plan.rows.inputs * positions + 1.7 * plan.columns.inputs * count
        return STEP * stages + TOUCH * (positions + count) + (SCATTER if backward else GATHER) * positions

    price = LOWERED if plan.dtype == torch.bfloat16 else 1.0
    products = price * count * depth * outputs * (rows + READ) * (1 + 32 / depth) * (1 + 16 / outputs)
    sides = rows * depth * transform(plan.inputs) + rows * outputs * transform(plan.outputs)
    weights = 0.0 if cached else depth * outputs * transform(plan.taps)
    once = products + sides + weights + CALL
    return 3 * once if backward else once


@lru_cache(maxsize=4096)
def native(plan: Plan, batch: int, channels: int, outputs: int, backward: bool) -> float:
    """The cost of the native convolution, in multiply-adds."""
    size = plan.rows.total * plan.columns.total * plan.rows.kernel * plan.columns.kernel
    once = batch * channels * outputs * size + READ * channels * outputs * plan.rows.kernel * plan.columns.kernel
    lowered = plan.dtype == torch.bfloat16
    prices = (NATIVE_LOWERED, NATIVE_BACKWARD_LOWERED) if lowered else (NATIVE, NATIVE_BACKWARD)
    return 3 * prices[1] * once if backward else prices[0] * once


@lru_cache(maxsize=1024)
def best_plan(
    batch: int,
    channels: int,
    outputs: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dtype: torch.dtype,
    backward: bool,
    cached: bool,
) -> tuple[Plan | None, float]:
    """(the cheapest cut, predicted gain over the native convolution)."""
    plans = candidates(size, kernel, stride, padding, dtype)
    if not plans:
        return None, 0.0
    # A cached spectrum serves calls of every batch size, so its cut must not depend on this one's.
    usual = _USUAL_BATCH if cached else batch
    plan = min(plans, key=lambda p: estimate(p, usual, channels, outputs, backward, cached))
    cost = estimate(plan, batch, channels, outputs, backward, cached)
    return plan, native(plan, batch, channels, outputs, backward) / cost


def choose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    *,
    cached: bool = False,
) -> Plan | None:
    """The cut for a convolution by transforms, or None where the native one should be used."""
    path = current_path()
    dtype = product_dtype(x, weight, bias)
    if path == "plain" or x.ndim != 4 or weight.ndim != 4 or dtype is None:
        return None
    kernel = (weight.shape[2], weight.shape[3])
    small = min(kernel) < _SMALLEST_KERNEL or any(s not in (1, 2) for s in stride)
    fits = x.shape[1] == weight.shape[1] and min(*x.shape, *weight.shape) > 0
    reach = all(n + 2 * p >= k for n, p, k in zip(x.shape[2:], padding, kernel, strict=True))
    if small or not fits or not reach or min(padding) < 0:
        return None  # the native operator computes it, or raises its own error
    backward = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    size = (x.shape[2], x.shape[3])
    plan, gain = best_plan(
        x.shape[0], x.shape[1], weight.shape[0], size, kernel, stride, padding, dtype, backward, cached
    )
    return plan if path == "fast" or gain >= MARGIN else None


def choose_packed(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int], padding: tuple[int, int]
) -> torch.dtype | None:
    """The precision of a convolution as one matrix product with cached weights, or None where it is not faster.

    At inference, when there are many weights and few output positions: reordering the weights at each call would
    then take as long as the arithmetic, and transforms would be larger than the weights themselves.
    """
    dtype = autocast_dtype() or torch.float32
    if current_path() == "plain" or x.ndim != 4 or weight.ndim != 4 or not available():
        return None
    if dtype not in (torch.float32, torch.bfloat16) or x.dtype not in (torch.float32, dtype):
        return None
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    with torch.autocast("cpu", enabled=False):
        if weight.dtype != torch.float32 or not ordinary(x if x.dtype == weight.dtype else x.float(), weight, bias):
            return None
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias)):
        return None
    outputs = [
        (n + 2 * p - k) // s + 1 for n, p, k, s in zip(x.shape[2:], padding, weight.shape[2:], stride, strict=True)
    ]
    fits = x.shape[1] == weight.shape[1] and min(*x.shape, *outputs, *stride) > 0 and min(padding) >= 0
    deep, few = weight[0].numel() >= _DEEP, x.shape[0] * outputs[0] * outputs[1] <= _FEWEST_ROWS
    return dtype if fits and deep and few else None


def choose_int8(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether a convolution that may be rounded to 8 bits is: at inference, wherever the CPU has the instructions."""
    needs = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias))
    if needs or current_path() == "plain" or x.ndim != 4 or x.dtype != torch.float32 or x.shape[1] != weight.shape[1]:
        return False
    return int8_available() and ordinary(x, weight, bias) and min(x.shape) > 0


def choose_stem(
    x: Tensor, w1: Tensor, w2: Tensor, stride: tuple[int, int], *, backward: bool, cached: bool = False
) -> Plan | None:
    """The cut of the second of two fused convolutions, or None where they should be computed one by one.

    The second is done by transforms; the first is faster as well, because the native one is slow for few channels.
    """
    path = current_path()
    dtype = product_dtype(x, w1, w2)
    kernels = (*w1.shape[2:], *w2.shape[2:])
    if path == "plain" or dtype is None or x.ndim != 4 or x.requires_grad or not all(s in (1, 2) for s in stride):
        return None
    size = (x.shape[2] - w1.shape[2] + 1, x.shape[3] - w1.shape[3] + 1)
    fits = x.shape[1] == w1.shape[1] and w1.shape[0] == w2.shape[1] and min(*x.shape, *w1.shape, *w2.shape) > 0
    reach = all(n >= k for n, k in zip(size, w2.shape[2:], strict=True))
    if not fits or not reach or min(kernels[2:]) < _SMALLEST_KERNEL or w1[0].numel() > _DEEPEST_WINDOW:
        return None
    kernel = (w2.shape[2], w2.shape[3])
    plan, gain = best_plan(x.shape[0], w1.shape[0], w2.shape[0], size, kernel, stride, (0, 0), dtype, backward, cached)
    if plan is None or path == "fast":
        return plan
    one_by_one = native(plan, x.shape[0], w1.shape[0], w2.shape[0], backward)
    first = (2 if backward else 1) * x.shape[0] * size[0] * size[1] * w1.numel()
    first *= LOWERED if dtype == torch.bfloat16 else 1.0
    gain = (one_by_one + SHALLOW * first) / (one_by_one / gain + WINDOW * first)
    return plan if gain >= MARGIN else None


_FUSED_FROM = 4  # examples: for fewer, reading the weights costs more than making votes


_LARGE_VOTES = 1 << 28  # bytes


def choose_routing(
    u: Tensor, weight: Tensor, *others: Tensor | None, forms: bool = False
) -> Literal["chunks", "linear", "plain"]:
    """How to route the children of a dense layer, on any device. ``forms``: the routing needs the votes themselves.

    - "chunks": without votes, a few examples at a time;
    - "linear": without votes, in operations that a compiler knows;
    - "plain": with votes, for few examples, and where the plain operators must stay visible: export, tracing, function
      transforms, forward-mode derivatives.
    """
    if torch.compiler.is_exporting():  # and no question about sizes, which would become a condition of the program
        return "plain"
    tensors = [u, weight, *(t for t in others if t is not None)]
    if any(size == 0 for size in (*u.shape, *weight.shape)) or not all(t.is_floating_point() for t in tensors):
        return "plain"
    if torch.compiler.is_compiling():  # contexts are not seen by compilers
        return "linear"
    path = current_path()
    if path == "plain" or (path == "auto" and len(u) < _FUSED_FROM) or torch._C._get_tracing_state() is not None:
        return "plain"
    size = len(u) * weight[..., 0].numel() * weight.element_size()
    if forms and path == "auto" and size < _LARGE_VOTES and autocast_dtype() is None:
        return "plain"  # computing the votes of chunks twice takes longer, and is worth it for memory only
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return "plain"
    known = all(type(t) in (Tensor, torch.nn.Parameter) and t.layout == torch.strided for t in tensors)
    return "chunks" if known and len({t.device for t in tensors}) == 1 else "plain"


def choose_votes_routing(votes: Tensor, bias: Tensor | None, act: Tensor | None) -> bool:
    """Whether to route given votes by the kernel: wherever it can."""
    return current_path() != "plain" and ordinary(votes, bias, act) and votes.ndim == 4 and min(votes.shape) > 0


def choose_em(u: Tensor, weight: Tensor | None, *others: Tensor | None) -> bool:
    """Whether to route by the EM kernel, from children and weights or from given votes: wherever it can."""
    sizes = (*u.shape, *(() if weight is None else weight.shape))
    return current_path() != "plain" and ordinary(u, weight, *others) and min(sizes) > 0


_FOLDED_FROM = 12_000  # pixels, 16 digits: for fewer, folding the weights costs more than normalising the maps


def choose_folding(x: Tensor, *parameters: Tensor) -> bool:
    """Whether to fold BatchNorm into the next convolution: for enough images, also under autocast to bfloat16."""
    path = current_path()
    if path == "plain" or min(x.shape) == 0 or (path == "auto" and x[:, 0].numel() < _FOLDED_FROM):
        return False
    with torch.autocast("cpu", enabled=False):  # it is taken into account by the kernel
        usual = ordinary(x, *parameters)
    return usual and autocast_dtype() in (None, torch.bfloat16)
