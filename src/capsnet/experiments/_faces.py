"""Real faces: the 100 faces and 100 other pictures of scikit-image's wheel as a folder of image files.

They are cut from Labeled Faces in the Wild (Huang et al. 2007), 25 x 25, grey. Other cuts of the same photographs are
the pictures without a face. Who is on a picture is not recorded, so one person may be in two folds.
"""

import shutil
import tempfile
from importlib import import_module
from pathlib import Path

import numpy as np
from PIL import Image

from capsnet._files import cache_dir

CLASSES = ("face", "other")
COUNT, SIDE = 100, 25  # of each class; pixels


def faces_spec() -> str:
    """The data set as a spec, its pictures at their own size."""
    return f"folder:{faces_folder()},size={SIDE}"


def faces_folder() -> Path:
    """The folder in the cache, made if it is not there."""
    folder = cache_dir() / "lfw-subset"
    if not folder.is_dir():
        images = np.round(255 * np.clip(read_faces(), 0, 1)).astype(np.uint8)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            for number, image in enumerate(images):
                path = Path(scratch) / "made" / CLASSES[number // COUNT] / f"{number % COUNT:03}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(path)
            if not folder.is_dir():  # another process may have been faster
                shutil.move(Path(scratch) / "made", folder)
    return folder


def read_faces() -> np.ndarray:
    """(200, 25, 25) in [0, 1]: first the faces."""
    try:
        lfw_subset = import_module("skimage.data").lfw_subset
    except ModuleNotFoundError:
        raise ValueError("the faces come with scikit-image, which is not installed: pip install scikit-image") from None
    images = lfw_subset()
    if images.shape != (2 * COUNT, SIDE, SIDE):
        raise ValueError(f"expected {2 * COUNT} pictures of {SIDE} x {SIDE} in scikit-image, got {images.shape}")
    return images
