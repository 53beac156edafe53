"""``to_int8``: a trained model whose deep convolutions compute with 8-bit numbers."""

import copy

from torch import Tensor, nn

from capsnet.kernels import Memory
from capsnet.kernels.cost import choose_int8
from capsnet.kernels.int8_conv import available, int8_conv2d
from capsnet.models import Model

DEEP = 512  # weights of a filter, below which rounding the image costs more than it gains


class Int8Conv2d(nn.Conv2d):
    """A convolution with 8-bit products at inference on a CPU (``kernels/int8_conv.py``), else an ordinary one.

    The parameters stay float32: saving, exporting and training are those of ``nn.Conv2d``.
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__(conv.in_channels, conv.out_channels, 1, bias=conv.bias is not None, device="meta")
        self.kernel_size, self.stride, self.padding = conv.kernel_size, conv.stride, conv.padding
        self.weight, self.bias, self.memory = conv.weight, conv.bias, Memory()
        self.train(conv.training)

    def forward(self, input: Tensor) -> Tensor:
        if not choose_int8(input, self.weight, self.bias):
            return super().forward(input)
        stride, padding = (self.stride[0], self.stride[1]), (int(self.padding[0]), int(self.padding[1]))
        return int8_conv2d(input, self.weight, self.bias, stride, padding, self.memory)


def to_int8(model: Model) -> Model:
    """A copy of a trained model, for inference, whose deep convolutions compute with 8-bit numbers.

    It is faster on CPUs with VNNI, for one image most of all. Answers change by the noise of the rounding: measure it
    with ``evaluate(to_int8(model))``. No calibration is needed, and an image's answer does not depend on the others.

    A ValueError says so where the model has no such convolution, or the CPU no VNNI.
    """
    deep = [name for name, part in model.named_modules() if isinstance(part, nn.Conv2d) and _suits(part)]
    if not deep:
        name = model.config.get("name", type(model).__name__)
        raise ValueError(f"{name} cannot be quantised: none of its convolutions has {DEEP} weights or more per filter")
    if not available():
        raise ValueError("this CPU has no instructions for sums of 8-bit products (VNNI): use the model as it is")
    light = copy.deepcopy(model).cpu().eval()
    for name in deep:
        conv = light.get_submodule(name)
        assert isinstance(conv, nn.Conv2d)
        light.set_submodule(name, Int8Conv2d(conv))
    return light


def _suits(conv: nn.Conv2d) -> bool:
    ordinary = type(conv) is nn.Conv2d and conv.groups == 1 and conv.dilation == (1, 1)
    shifts = conv.padding_mode == "zeros" and not isinstance(conv.padding, str)
    return ordinary and shifts and conv.weight[0].numel() >= DEEP
