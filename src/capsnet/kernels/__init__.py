"""Fast paths for CPUs: convolution by transforms, a stem without transpositions, routing without votes,
packed and 8-bit weights.

Each has a reference implementation with the same result up to rounding, and is used where it is expected to be faster
(``cost.py``). ``using("plain")`` turns all of them off, ``using("fast")`` on; so does the environment variable
CAPSNET_KERNELS.
"""

from capsnet.kernels._memory import Memory
from capsnet.kernels.cost import using
from capsnet.kernels.dynamic_routing import route
from capsnet.kernels.fft_conv import conv2d
from capsnet.kernels.int8_conv import available as int8_available
from capsnet.kernels.stem import conv_relu_conv
from capsnet.kernels.votes_routing import route_votes

__all__ = ["Memory", "conv2d", "conv_relu_conv", "int8_available", "route", "route_votes", "using"]
