"""Layers: modules that own weights and call a routing."""

from capsnet.layers.decoder import DenseDecoder
from capsnet.layers.dense import DenseCaps
from capsnet.layers.primary import PrimaryCaps

__all__ = ["DenseCaps", "DenseDecoder", "PrimaryCaps"]
