"""A model's outline: its modules and the shapes of its tensors without their memory.

What a file or a command line asks for is known from its outline, before anything is allocated.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

M = TypeVar("M", bound=nn.Module)
# of these the shape is the argument's; on the meta device some would import PyTorch's compiler, which takes 10 seconds
FILLS = {"normal_", "uniform_", "bernoulli_", "erfinv_", "mul_", "add_", "div_", "clamp_", "fill_", "zero_", "copy_"}
FUNCTIONS = {"neg", "exp", "log", "log1p", "sqrt", "sin", "cos", "tanh", "abs"}
OPERATORS = {"mul", "rmul", "div", "add", "radd", "sub", "rsub", "truediv"}
SHARE = 0.8  # of the machine's memory, that a model may take


class _ShapesOnly(TorchFunctionMode):
    """Leaves out what does not change a shape."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        target = args[0] if args else (kwargs or {}).get("tensor")  # the functions of nn.init name it
        if isinstance(target, Tensor) and target.is_meta:
            name = getattr(func, "__name__", "").removeprefix("__").removesuffix("__")
            like = len(args) == 2 and (isinstance(args[1], int | float) or getattr(args[1], "shape", 0) == target.shape)
            if name in FILLS or name in FUNCTIONS or (like and name in OPERATORS):
                return target
        if func in (torch.rand, torch.randn, torch.eye):
            func, args = torch.empty, (args if func is not torch.eye else (args[0], args[-1]))
        return func(*args, **(kwargs or {}))


def is_outlining() -> bool:
    """Whether the code that asks is called by ``outline``."""
    return torch.get_default_device().type == "meta"


def outline(build: Callable[[], M]) -> M | None:
    """What ``build`` makes, on the meta device; None if it cannot be made there because it looks at values.

    ValueError if its shapes are beyond all memory.
    """
    try:
        with torch.device("meta"), _ShapesOnly():
            return build()
    except RuntimeError as error:
        if isinstance(error, NotImplementedError) or "meta" in str(error).lower():
            return None
        # the product of the sizes of a tensor does not fit 64 bits
        raise ValueError(f"the network is too large: {str(error).partition('.')[0]}") from None


def check_memory(name: str, build: Callable[[], nn.Module]) -> None:
    """Refuse a network that this machine's memory cannot hold. One that has no outline is not checked."""
    if (sketch := outline(build)) is None:
        return
    needed, there = num_bytes(sketch), memory()
    if there and needed > SHARE * there:
        count = sum(parameter.numel() for parameter in sketch.parameters())
        raise ValueError(
            f"{name} would have {count:,} parameters, {needed / 1e9:,.1f} GB, but this machine has {there / 1e9:,.1f} "
            "GB of memory: choose smaller options"
        )


def num_bytes(model: nn.Module) -> int:
    """Bytes of the parameters and buffers."""
    return sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))


def memory() -> int:
    """Bytes of this machine's memory; 0 if it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return 0
