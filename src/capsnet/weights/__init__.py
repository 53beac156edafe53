"""Trained weights: save, load, the bundled models, and models of the Hugging Face hub."""

from capsnet.weights._format import load_file, read_metadata, save
from capsnet.weights._push import Pushed, push
from capsnet.weights._resolve import SHIPPED, ensemble, list_weights, load, resolve, transfer

__all__ = [
    "SHIPPED",
    "Pushed",
    "ensemble",
    "list_weights",
    "load",
    "load_file",
    "push",
    "read_metadata",
    "resolve",
    "save",
    "transfer",
]
