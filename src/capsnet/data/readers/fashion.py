"""Fashion-MNIST (Xiao, Rasul, Vollgraf 2017): ten kinds of clothes in MNIST's format, 28 x 28.

Before a download, the files are searched for where Debian's package ``dataset-fashion-mnist`` puts them. Debian
compressed them again, so the SHA-256 of the *uncompressed* bytes is checked.
"""

from pathlib import Path

from capsnet.data._registry import register
from capsnet.data.base import ArrayDataset
from capsnet.data.readers.download import Remote
from capsnet.data.readers.idx import fetch_idx, idx_dataset
from capsnet.data.splits import SPLITS

PLACES = (Path("/usr/share/datasets/fashion-mnist"),)
MIRRORS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
MD5 = {  # of the published .gz files
    "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
}
SHA256 = {  # of the uncompressed files
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
FILES = {f"{name}.gz": Remote(tuple(f"{url}{name}.gz" for url in MIRRORS), f"md5:{md5}") for name, md5 in MD5.items()}
CLASS_NAMES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


@register(
    "fashion-mnist",
    "Clothes, 28x28 grey: 50,000 train, 10,000 validation, 10,000 test (downloaded, 31 MB)",
    SPLITS,
    source="download",
    objects=1,
    environment="CAPSNET_FASHION_MNIST",
)
def fashion_mnist(split: str = "train", path: str | Path | None = None) -> ArrayDataset:
    """Load one split from the folder ``path`` (or CAPSNET_FASHION_MNIST) with the four IDX files, or fetch it."""
    return idx_dataset(
        "fashion-mnist",
        split,
        path,
        environment="CAPSNET_FASHION_MNIST",
        class_names=CLASS_NAMES,
        published=lambda part: fetch_idx("fashion-mnist", part, FILES, sha256=SHA256, places=PLACES),
    )
