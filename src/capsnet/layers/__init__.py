"""Layers: modules that own weights and call a routing."""

from capsnet.layers.capsules import Capsules, Lengths, Poses
from capsnet.layers.complex import ComplexBatchNorm2d, ComplexConv2d, ComplexLinear, CReLU, ModReLU, ZReLU
from capsnet.layers.concurrent import route_concurrently
from capsnet.layers.conv import ClassCaps, ConvCaps
from capsnet.layers.decoder import ConvDecoder, DenseDecoder
from capsnet.layers.decoupled import DecoupledConv2d
from capsnet.layers.dense import DenseCaps
from capsnet.layers.head import CapsuleHead
from capsnet.layers.homogeneous import HomogeneousCaps
from capsnet.layers.oscillating import KuramotoLayer, Oscillation, Readout
from capsnet.layers.pathways import PathwayLayer
from capsnet.layers.primary import PrimaryCaps
from capsnet.layers.rotating import RotatingConv2d, RotatingConvTranspose2d, RotatingLinear
from capsnet.layers.shared import SharedCaps
from capsnet.layers.stem import ResidualStem

__all__ = [
    "CReLU",
    "CapsuleHead",
    "Capsules",
    "ClassCaps",
    "ComplexBatchNorm2d",
    "ComplexConv2d",
    "ComplexLinear",
    "ConvCaps",
    "ConvDecoder",
    "DecoupledConv2d",
    "DenseCaps",
    "DenseDecoder",
    "HomogeneousCaps",
    "KuramotoLayer",
    "Lengths",
    "ModReLU",
    "Oscillation",
    "PathwayLayer",
    "Poses",
    "PrimaryCaps",
    "Readout",
    "ResidualStem",
    "RotatingConv2d",
    "RotatingConvTranspose2d",
    "RotatingLinear",
    "SharedCaps",
    "ZReLU",
    "route_concurrently",
]
