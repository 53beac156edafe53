"""Whole networks, and the registry of their names."""

from capsnet.models._registry import create_model, describe, list_models, model_options, register
from capsnet.models.base import Loss, Model, Output
from capsnet.models.capsnet import CapsNet
from capsnet.models.cnn import CNN

register("capsnet", CapsNet, "the paper's network: conv 9x9x256, 1152 primary capsules, dynamic routing, decoder")
register(
    "capsnet-small",
    CapsNet,
    "the same network, narrower: for everyday use on a CPU",
    conv_channels=64,
    primary_types=8,
    decoder_widths=(256, 512),
)
register("baseline-cnn", CNN, "the paper's baseline: three 5x5 convolutions without pooling, 35.4 M parameters")
register(
    "cnn-small",
    CNN,
    "a small convolutional network with pooling, 0.7 M parameters like capsnet-small without its decoder",
    channels=(32, 64, 128),
    widths=(328, 192),
    pool=True,
)

__all__ = [
    "CNN",
    "CapsNet",
    "Loss",
    "Model",
    "Output",
    "create_model",
    "describe",
    "list_models",
    "model_options",
    "register",
]
