"""A training step of the paper's network here and in another PyTorch implementation of it, on a CPU.

    git clone https://github.com/XifengGuo/CapsNet-Pytorch
    python -m benchmarks.others CapsNet-Pytorch

One process, alternating, medians. It moves tensors to a GPU by name, so ``Tensor.cuda`` is replaced by a function that
leaves them where they are. Nothing else of it is changed; a step is its network, its loss and Adam.

(gram-ai/capsule-networks does not run with PyTorch 2.13: it takes a ``view`` of a tensor that has none.)
"""

import argparse
import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import capsnet
from benchmarks._contenders import batch, training
from benchmarks._timing import alternate
from capsnet.kernels import has_bf16

Step = Callable[[], object]


def load(path: Path) -> Any:
    """The module in a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"there is no {path}: give the folder of a clone")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def step(model: torch.nn.Module, loss: Callable[[Tensor, Tensor], Tensor], size: int) -> Step:
    images, labels = batch(size)
    hot = torch.nn.functional.one_hot(labels, 10).float()
    optimizer = torch.optim.Adam(model.parameters())

    def run() -> None:
        optimizer.zero_grad()
        loss(images, hot).backward()
        optimizer.step()

    return run


def xifeng(folder: Path, size: int) -> Step:
    vision: Any = types.ModuleType("torchvision")  # imported at its top, not used by the network
    vision.transforms = vision.datasets = None
    sys.modules.setdefault("torchvision", vision)
    load(folder / "capsulelayers.py")
    module = load(folder / "capsulenet.py")
    model = module.CapsuleNet([1, 28, 28], 10, 3)

    def loss(images: Tensor, hot: Tensor) -> Tensor:
        lengths, drawn = model(images, hot)
        return module.caps_loss(hot, lengths, images, drawn, 0.0005 * 784)

    return step(model, loss, size)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a clone of XifengGuo/CapsNet-Pytorch")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
    torch.manual_seed(0)
    ours = capsnet.create_model("capsnet")
    steps: dict[str, Step] = {"this package": training(ours, options.batch)}
    if has_bf16():
        steps["this package, bf16"] = training(ours, options.batch, bf16=True)
    steps["XifengGuo/CapsNet-Pytorch"] = xifeng(options.folder, options.batch)
    rates = {name: options.batch / seconds for name, seconds in alternate(steps, options.rounds).items()}
    for name, rate in rates.items():
        print(f"{name:28}{rate:8.0f} images/s{rates['this package'] / rate:8.2f} times as fast here")


if __name__ == "__main__":
    main()
