"""Pure functions on capsules: squash, lengths, losses and masking.

Sabour, Frosst, Hinton, *Dynamic Routing Between Capsules*, NIPS 2017 (arXiv 1710.09829). Equation numbers are that
paper's. Shape letters: B batch, J classes (parent capsules), D pose.
"""

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from capsnet._names import check_name


def full_precision(s: Tensor) -> Tensor:
    """Values that autocast made half precision in float32, for squash and softmax; all others unchanged."""
    return s.float() if s.dtype in (torch.bfloat16, torch.float16) and _autocasts(s) else s


def without_autocast(like: Tensor) -> AbstractContextManager[object]:
    """A block in which autocast does not lower the precision of products on the tensor's device."""
    return torch.autocast(like.device.type, enabled=False) if _autocasts(like) else nullcontext()


def _autocasts(like: Tensor) -> bool:
    kind = like.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def length(s: Tensor, dim: int = -1) -> Tensor:
    """Euclidean length of each capsule: the probability that the entity it stands for is present.

    The norm's gradient at the zero vector is zero, so that blank patches give no NaN.
    """
    return torch.linalg.vector_norm(s, dim=dim)


def squash(s: Tensor, dim: int = -1) -> Tensor:
    """Shrink each vector to a length in [0, 1) and keep its direction [Eq. 1].

        squash(s) = |s|^2 / (1 + |s|^2) * s / |s|

    Written as ``s * |s| / (1 + |s|^2)``: the same value without a division by |s|, hence exact (no epsilon) and, with
    the norm's zero gradient at zero, differentiable everywhere with the correct derivative, 0, at the origin.

    Shapes: any ``s``; the result has the same shape, ``dim`` is the pose axis.
    """
    s = full_precision(s)
    norm = torch.linalg.vector_norm(s, dim=dim, keepdim=True)
    return s * (norm / (1 + norm * norm))


@dataclass(frozen=True)
class Squash:
    """A squash function that describes itself: ``squash(s, dim=-1) -> (pose, activation)``.

    ``formula`` is plain text, ``_`` before subscripts and ``^`` before superscripts. ``presence_is_length``
    says whether the activation is the length of the pose; otherwise it is a separate number.
    """

    name: str
    function: Callable[[Tensor, int], Tensor]
    formula: str
    presence_is_length: bool = True

    def __call__(self, s: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
        s = full_precision(s)
        pose = self.function(s, dim)
        return pose, length(pose, dim) if self.presence_is_length else _saturate(s, dim)


def get_squash(name: str) -> Squash:
    """A squash by name, for routings and layers:

    - ``paper``: |s|^2 / (1 + |s|^2) s/|s| [Eq. 1];
    - ``exp``: (1 - exp(-|s|)) s/|s|, not flat at the origin (Efficient-CapsNet, arXiv 2101.12491);
    - ``power:P``: |s|^P / (1 + |s|^P) s/|s|, the paper's for P = 2; P is at least 1;
    - ``unit``: the direction s/|s|; the activation |s|^2 / (1 + |s|^2) is separate.

    For all but ``unit`` the activation is the length of the pose.
    """
    kind, colon, power = name.partition(":")
    if colon and kind == "power":
        try:
            exponent = float(power)
        except ValueError:
            exponent = math.nan
        if not 1 <= exponent <= 8:
            raise ValueError(f"a squash's power must lie between 1 and 8, got {power!r}")
        formula = f"v_j = |s_j|^{exponent:g} / (1 + |s_j|^{exponent:g}) · s_j / |s_j|"
        return Squash(name, functools.partial(_squash_power, power=exponent), formula)
    check_name("squash", name, (*_SQUASHES, "power:P"))
    return _SQUASHES[name]


def _squash_exp(s: Tensor, dim: int) -> Tensor:
    norm = torch.linalg.vector_norm(s, dim=dim, keepdim=True)
    safe = torch.where(norm > 0, norm, 1)  # the factor's limit at zero is 1, and so is its gradient's
    return s * torch.where(norm > 0, -torch.expm1(-safe) / safe, 1)


def _squash_power(s: Tensor, dim: int, *, power: float) -> Tensor:
    norm = torch.linalg.vector_norm(s, dim=dim, keepdim=True)
    # |s|^(P-1) / (1 + |s|^P); for long vectors numerator and denominator are divided by |s|^P, so that no power grows
    # in the value or the gradient. Each form replaces the other's arguments by 1, so that its gradient stays finite.
    short, long = torch.where(norm > 0, norm, 1).clamp_max(1), norm.clamp_min(1)
    factor = torch.where(norm < 1, short ** (power - 1) / (1 + short**power), 1 / (long + long ** (1 - power)))
    return s * torch.where(norm > 0, factor, 1.0 if power == 1 else 0.0)


def _squash_unit(s: Tensor, dim: int) -> Tensor:
    norm = torch.linalg.vector_norm(s, dim=dim, keepdim=True)
    return s / torch.where(norm > 0, norm, 1)


def _saturate(s: Tensor, dim: int) -> Tensor:
    square = torch.linalg.vector_norm(s, dim=dim).square()
    return square / (1 + square)


_SQUASHES = {
    "paper": Squash("paper", squash, "v_j = |s_j|^2 / (1 + |s_j|^2) · s_j / |s_j|"),
    "exp": Squash("exp", _squash_exp, "v_j = (1 - exp(-|s_j|)) · s_j / |s_j|"),
    "unit": Squash("unit", _squash_unit, "a_j = |s_j|^2 / (1 + |s_j|^2)", presence_is_length=False),
}


def multi_hot(targets: Tensor, num_classes: int) -> Tensor:
    """Targets (B,) of class numbers, or (B, J) already multi-hot -> (B, J) of zeros and ones, boolean."""
    if targets.ndim == 1:
        if targets.is_floating_point() or targets.dtype == torch.bool:
            raise ValueError(
                f"class numbers must be integers, got {targets.dtype}; multi-hot targets have shape (B, J)"
            )
        if not torch.compiler.is_compiling() and targets.numel():
            low, high = int(targets.min()), int(targets.max())
            if low < 0 or high >= num_classes:
                wrong = low if low < 0 else high
                raise ValueError(
                    f"class number {wrong} is out of range: there are {num_classes} classes, 0 to {num_classes - 1}"
                )
        return targets[:, None] == torch.arange(num_classes, device=targets.device)
    if targets.ndim == 2 and targets.shape[1] == num_classes:
        return targets > 0.5 if targets.is_floating_point() else targets.bool()
    raise ValueError(f"targets must have shape (B,) or (B, {num_classes}), got {tuple(targets.shape)}")


def weighted_mean(values: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean over the batch of values (B,) times ``weights`` (B,); None is a weight of 1 for all.

    The sum is divided by B and not by the sum of the weights, so that an example counts the same in every batch.
    """
    return values.mean() if weights is None else (values * weights).mean()


def _present_classes(presences: Tensor, targets: Tensor, what: str) -> Tensor:
    if presences.ndim != 2:
        raise ValueError(f"{what} must have shape (B, J), got {tuple(presences.shape)}")
    present = multi_hot(targets, presences.shape[1])
    if present.shape[0] != presences.shape[0]:
        raise ValueError(f"{presences.shape[0]} examples but {present.shape[0]} targets")
    return present


def margin_loss(
    lengths: Tensor,
    targets: Tensor,
    *,
    present: float = 0.9,
    absent: float = 0.1,
    down_weight: float = 0.5,
    weights: Tensor | None = None,
) -> Tensor:
    """Margin loss [Eq. 4], summed over the classes, averaged over the batch.

        L_k = T_k max(0, 0.9 - |v_k|)^2 + 0.5 (1 - T_k) max(0, |v_k| - 0.1)^2

    The classes are independent, so several may be present at once. ``lengths`` are raw capsule lengths: after a softmax
    the margins would be out of reach.

    Shapes: ``lengths`` (B, J); ``targets`` (B,) class numbers or (B, J) multi-hot; ``weights`` (B,); result a scalar.
    """
    present_classes = _present_classes(lengths, targets, "lengths")
    too_short = (present - lengths).clamp_min(0).square()
    too_long = (lengths - absent).clamp_min(0).square()
    return weighted_mean(torch.where(present_classes, too_short, down_weight * too_long).sum(dim=1), weights)


def spread_loss(
    activations: Tensor, targets: Tensor, margin: float | Tensor = 0.9, *, weights: Tensor | None = None
) -> Tensor:
    """Spread loss: push the wrong classes' activations a margin below the right one's, averaged over the batch.

    Hinton, Sabour, Frosst, *Matrix capsules with EM routing*, ICLR 2018, Section 3.1.

        L = sum over i != t of max(0, m - (a_t - a_i))^2

    Each present class is compared with each absent one. An example with all classes or with none has loss 0.

    Shapes: ``activations`` (B, J); ``targets`` (B,) class numbers or (B, J) multi-hot; ``weights`` (B,); result a
    scalar.
    """
    present_classes = _present_classes(activations, targets, "activations")
    lead = activations.unsqueeze(2) - activations.unsqueeze(1)  # (B, t, i): a_t - a_i
    pairs = present_classes.unsqueeze(2) & ~present_classes.unsqueeze(1)  # (B, t, i): t present, i absent
    return weighted_mean(((margin - lead).clamp_min(0).square() * pairs).sum(dim=(1, 2)), weights)


def coupling_loss(
    couplings: Tensor, parents: Tensor, presence: Tensor | None = None, *, weights: Tensor | None = None
) -> Tensor:
    """Cross-entropy of the couplings of children whose parent is known, averaged over the batch.

        L = sum over those children of -a_i log c_ij / sum over them of a_i

    ``presence`` (a_i) is a constant here: it gets no gradient. Without it all children count alike. It matters for
    routings that look at the ratios of agreements only: the gradient of such a coupling grows without bound as the
    child vanishes, and a_i cancels that while others are present. An example without such children has loss 0.

    Shapes: ``couplings`` (B, I, J), which sum to 1 over J; ``parents`` (B, I) class numbers, -1 where none is known;
    ``presence`` (B, I), not negative; ``weights`` (B,); result a scalar.
    """
    for name, each in {"parents": parents, "presence": presence}.items():
        if each is not None and (couplings.ndim != 3 or each.shape != couplings.shape[:2]):
            found = f"{tuple(couplings.shape)} and {tuple(each.shape)}"
            raise ValueError(f"expected couplings (B, I, J) and {name} (B, I), got {found}")
    known = (parents >= 0).to(couplings.dtype)
    count = known if presence is None else known * presence.detach().to(couplings.dtype)
    total = count.sum(dim=1, keepdim=True)
    right = couplings.gather(2, parents.clamp_min(0).unsqueeze(2)).squeeze(2)
    surprise = -right.clamp_min(torch.finfo(couplings.dtype).tiny).log()
    return weighted_mean((surprise * count / torch.where(total > 0, total, 1)).sum(dim=1), weights)


def spread_margin(progress: Tensor) -> Tensor:
    """The margin at ``progress`` in [0, 1] of its growth: from 0.2 to 0.9.

    A small margin at first keeps capsules active that a large one would switch off. The curve is that of the authors'
    code, a sigmoid from -4 to 10, scaled so that it starts at 0.2 and ends at the paper's 0.9.
    """
    first, last = (torch.sigmoid(torch.tensor(x)).to(progress) for x in (-4.0, 10.0))
    return 0.2 + 0.7 * (torch.sigmoid(14 * progress - 4) - first) / (last - first)


def reconstruction_loss(
    reconstruction: Tensor, images: Tensor, weight: float = 0.0005, *, weights: Tensor | None = None
) -> Tensor:
    """Squared differences *summed* over the pixels of an image, averaged over the batch, times 0.0005 [Section 4.1].

    The sum matters: a mean over 784 pixels with the same weight is 784 times weaker and has no effect.
    """
    if reconstruction.shape != images.shape:
        raise ValueError(
            f"reconstruction {tuple(reconstruction.shape)} and images {tuple(images.shape)} differ in shape"
        )
    return weight * weighted_mean((reconstruction - images).square().flatten(1).sum(dim=1), weights)


def mask_capsules(poses: Tensor, targets: Tensor | None = None) -> Tensor:
    """Zero all capsules but the chosen ones, as the decoder gets them.

    ``targets`` choose the labelled capsules (training); without them each example's longest one is chosen (testing).
    Targets with a third axis choose for K pictures, such as one per object.

    Shapes: ``poses`` (B, J, D); ``targets`` (B,) or (B, J) multi-hot -> (B, J, D); (B, K, J) multi-hot -> (B, K, J, D).
    """
    if targets is not None and targets.ndim == 3:
        B, K, J = targets.shape
        if tuple(poses.shape[:2]) != (B, J):
            raise ValueError(f"capsules {tuple(poses.shape)} need labels (B, K, J), got {tuple(targets.shape)}")
        return poses.unsqueeze(1) * multi_hot(targets.reshape(B * K, J), J).unflatten(0, (B, K)).unsqueeze(-1)
    if targets is None:
        targets = length(poses).argmax(dim=1)  # (B,)
    chosen = multi_hot(targets, poses.shape[1])
    if chosen.shape[0] != poses.shape[0]:
        raise ValueError(f"{poses.shape[0]} examples but {chosen.shape[0]} labels")
    return poses * chosen.unsqueeze(-1)
