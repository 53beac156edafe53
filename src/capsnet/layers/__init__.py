"""Layers: modules that own weights and call a routing."""

from capsnet.layers.capsules import Capsules, Lengths, Poses
from capsnet.layers.conv import ClassCaps, ConvCaps
from capsnet.layers.decoder import ConvDecoder, DenseDecoder
from capsnet.layers.dense import DenseCaps
from capsnet.layers.primary import PrimaryCaps
from capsnet.layers.shared import SharedCaps
from capsnet.layers.stem import ResidualStem

__all__ = [
    "Capsules",
    "ClassCaps",
    "ConvCaps",
    "ConvDecoder",
    "DenseCaps",
    "DenseDecoder",
    "Lengths",
    "Poses",
    "PrimaryCaps",
    "ResidualStem",
    "SharedCaps",
]
