"""Trained weights: save, load, and the bundled models."""

from capsnet.weights._format import load_file, read_metadata, save
from capsnet.weights._resolve import SHIPPED, ensemble, list_weights, load, resolve, transfer

__all__ = ["SHIPPED", "ensemble", "list_weights", "load", "load_file", "read_metadata", "resolve", "save", "transfer"]
