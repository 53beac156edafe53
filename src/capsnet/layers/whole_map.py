"""Convolution, ReLU, BatchNorm, again and again, then one number per channel: with BatchNorm folded where possible."""

from collections.abc import Sequence

from torch import Tensor, nn

from capsnet import kernels
from capsnet.layers.primary import has_hooks


def whole_map_features(features: nn.Sequential, depthwise: nn.Conv2d, x: Tensor) -> Tensor:
    """depthwise(features(x)) as (B, C).

    ``features`` are triples of a convolution without padding, ReLU and BatchNorm; ``depthwise`` covers their last map.
    """
    stages = _stages(list(features))
    hooks = any(has_hooks(module) for module in (*features, features, depthwise))
    if stages is not None and not hooks and depthwise.bias is not None:
        folded = kernels.conv_relu_norm(x, stages, depthwise.weight, depthwise.bias)
        if folded is not None:
            for norm in features:
                if isinstance(norm, nn.BatchNorm2d) and norm.training and norm.num_batches_tracked is not None:
                    norm.num_batches_tracked.add_(1)
            return folded
    return depthwise(features(x)).flatten(1)


def _stages(modules: Sequence[nn.Module]) -> list[kernels.Stage] | None:
    """The modules' tensors, or None if one is not as the network made it: replaced, quantised, parametrised."""
    stages = []
    for conv, relu, norm in zip(modules[::3], modules[1::3], modules[2::3], strict=True):
        if not isinstance(conv, nn.Conv2d) or type(relu) is not nn.ReLU or type(norm) is not nn.BatchNorm2d:
            return None
        mean, var = norm.running_mean, norm.running_var
        if mean is None or var is None or norm.momentum is None or conv.bias is None or not norm.affine:
            return None
        options = conv.stride, norm.training, norm.momentum, norm.eps
        stages.append(kernels.Stage(conv.weight, conv.bias, norm.weight, norm.bias, mean, var, *options))
    return stages
