"""Write the bundled weights once more with a digest in their metadata; the tensors stay equal to the bit.

    python -m tools.add_digests

Files that have one are left alone.
"""

import sys
from pathlib import Path

import torch
from safetensors import safe_open

from capsnet import weights
from capsnet.weights._format import _read_metadata, write


def stored(path: Path) -> dict[str, torch.Tensor]:
    """The tensors in the types of the file."""
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a mapping


def main() -> None:
    for name in weights.list_weights():
        path = weights.resolve(name)
        format, about = _read_metadata(path)
        if "digest" in about:
            continue
        before, size = stored(path), path.stat().st_size
        write(before, about, path, format)
        after = stored(path)
        same = before.keys() == after.keys() and all(
            before[key].dtype == after[key].dtype and torch.equal(before[key], after[key]) for key in before
        )
        if not same:
            raise SystemExit(f"{path}: the tensors changed")
        weights.load_file(path)
        sys.stdout.write(f"{name}: {size:,} -> {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
