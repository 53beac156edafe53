"""Kernels under CPU autocast. PyTorch computes bfloat16 on every CPU, fast or not, so these tests run everywhere."""

import pytest
import torch
from torch import Tensor

from capsnet.kernels import route, route_votes, using


@pytest.mark.parametrize("children", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", ["children", "votes"])
def test_routing_kernels_compute_in_single_precision(kernel: str, children: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    u, weight = torch.randn(5, 7, 4, generator=g).to(children), torch.randn(7, 3, 6, 4, generator=g)
    votes = torch.randn(5, 7, 3, 6, generator=g).to(children)

    def run(*leaves: Tensor) -> list[Tensor]:
        pose = route(*leaves) if kernel == "children" else route_votes(*leaves)
        assert pose is not None and pose.dtype == torch.float32
        return [pose, *torch.autograd.grad(pose.square().sum(), leaves)]

    leaves = [t.requires_grad_() for t in ([u, weight] if kernel == "children" else [votes])]
    with using("fast"):
        plain = run(*(t.detach().float().requires_grad_() for t in leaves))
        with torch.autocast("cpu", torch.bfloat16):  # the backward pass too
            lowered = run(*leaves)
    for a, b in zip(lowered, plain, strict=True):
        torch.testing.assert_close(a, b.to(a.dtype))
