"""Fast paths for CPUs: convolution by transforms, a stem without transpositions, BatchNorm folded into the next
convolution, routing without votes, packed and 8-bit weights.

Each has a reference implementation with the same result up to rounding, and is used where it is expected to be faster
(``cost.py``). ``using("plain")`` turns all of them off, ``using("fast")`` on; so does the environment variable
CAPSNET_KERNELS.
"""

from capsnet.kernels._autocast import has_bf16
from capsnet.kernels._em_procedure import EMOptions
from capsnet.kernels._memory import Memory
from capsnet.kernels.chunked_routing import route
from capsnet.kernels.cost import using
from capsnet.kernels.em_routing import route_em
from capsnet.kernels.fft_conv import conv2d
from capsnet.kernels.folded_norm import Stage, conv_relu_norm
from capsnet.kernels.int8_conv import available as int8_available
from capsnet.kernels.stem import conv_relu_conv
from capsnet.kernels.votes import Votes
from capsnet.kernels.votes_routing import route_votes
from capsnet.kernels.windows import windows

__all__ = [
    "EMOptions",
    "Memory",
    "Stage",
    "Votes",
    "conv2d",
    "conv_relu_conv",
    "conv_relu_norm",
    "has_bf16",
    "int8_available",
    "route",
    "route_em",
    "route_votes",
    "using",
    "windows",
]
