"""functional.py against plain loops, and against known bugs in squash, losses and masking."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from capsnet import functional as F
from tests.reference import sabour2017 as reference

sizes = st.integers(1, 6)
seeds = st.integers(0, 2**31 - 1)


def random(seed: int, *shape: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@given(seeds, sizes, sizes, st.sampled_from([1e-6, 1e-2, 1.0, 1e3]))
def test_squash_matches_equation_1(seed: int, B: int, D: int, scale: float) -> None:
    s = random(seed, B, D, scale=scale)
    expected = torch.tensor([reference.squash(row) for row in s.tolist()], dtype=torch.float64)
    torch.testing.assert_close(F.squash(s), expected, rtol=1e-10, atol=0)


def test_squash_works_along_any_axis() -> None:
    s = random(0, 3, 4, 5)
    torch.testing.assert_close(F.squash(s, dim=1), F.squash(s.movedim(1, -1)).movedim(-1, 1))
    assert not torch.allclose(F.squash(s, dim=1), F.squash(s))


def test_squash_keeps_direction_and_shortens() -> None:
    s = random(1, 50, 8, scale=10)
    v = F.squash(s)
    cosine = torch.nn.functional.cosine_similarity(s, v, dim=-1)
    torch.testing.assert_close(cosine, torch.ones(50, dtype=torch.float64))
    assert (F.length(v) < 1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-20, 1e-8, 1e-3, 1e4])
def test_squash_and_length_have_finite_gradients_everywhere(dtype: torch.dtype, size: float) -> None:
    s = torch.full((2, 8), size, dtype=dtype, requires_grad=True)
    (F.squash(s).sum() + F.length(s).sum() + F.length(F.squash(s)).sum()).backward()
    assert s.grad is not None
    assert s.grad.isfinite().all()
    assert F.squash(s).isfinite().all()


def test_squash_gradient_near_zero_is_exact() -> None:
    """d squash / ds at 0 is 0; near it, along s, it is 2|s|: squash(s) = s |s| / (1 + |s|^2)."""
    zero = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    F.squash(zero).sum().backward()
    assert zero.grad is not None
    assert (zero.grad == 0).all()
    for size in (1e-6, 1e-4):
        x = torch.tensor([[size]], dtype=torch.float32, requires_grad=True)
        F.squash(x).sum().backward()
        assert x.grad is not None
        assert x.grad.item() == pytest.approx(2 * size, rel=1e-4)


def test_squash_passes_gradcheck() -> None:
    assert torch.autograd.gradcheck(F.squash, random(2, 3, 4).requires_grad_())
    assert torch.autograd.gradcheck(F.length, random(2, 3, 4).requires_grad_())


def test_squash_is_accurate_in_bfloat16() -> None:
    s = random(3, 100, 8)
    error = (F.squash(s.bfloat16()).double() - F.squash(s.bfloat16().double())).abs().max()
    assert error < 2**-7  # one unit in bfloat16's last place of numbers below 1, with room for three roundings


@given(seeds, sizes, st.integers(1, 6))
def test_margin_loss_matches_equation_4(seed: int, B: int, J: int) -> None:
    lengths = random(seed, B, J).sigmoid()
    hot = random(seed + 1, B, J) > 0
    sets = [{k for k in range(J) if row[k]} for row in hot.tolist()]
    expected = reference.margin_loss(lengths.tolist(), sets)
    for targets in (hot, hot.double(), hot.long()):
        assert F.margin_loss(lengths, targets).item() == pytest.approx(expected, rel=1e-10, abs=1e-15)


def test_margin_loss_takes_class_numbers() -> None:
    lengths = random(0, 5, 4).sigmoid()
    labels = torch.tensor([0, 3, 1, 1, 2])
    hot = torch.nn.functional.one_hot(labels, 4)
    assert F.margin_loss(lengths, labels) == F.margin_loss(lengths, hot)


def test_margin_loss_matches_hand_computed_value() -> None:
    """A present class at 0.5, an absent one at 0.4: 0.4^2 + 0.5 * 0.3^2, squared, no softmax."""
    loss = F.margin_loss(torch.tensor([[0.5, 0.4]], dtype=torch.float64), torch.tensor([0]))
    assert loss.item() == pytest.approx(0.4**2 + 0.5 * 0.3**2)


def test_margin_loss_can_be_zero() -> None:
    """With 0.9 for the right class and 0.1 for the others the loss is exactly zero: no softmax on lengths."""
    lengths = torch.full((1, 10), 0.1, dtype=torch.float64)
    lengths[0, 7] = 0.9
    assert F.margin_loss(lengths, torch.tensor([7])).item() == 0


def test_margin_loss_sums_classes_and_averages_batch() -> None:
    one = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    assert F.margin_loss(one, torch.tensor([0])).item() == pytest.approx(0.16 + 0.08)
    assert F.margin_loss(one.repeat(3, 1), torch.tensor([0, 0, 0])).item() == pytest.approx(0.16 + 0.08)
    more = torch.tensor([[0.5, 0.5, 0.5]], dtype=torch.float64)
    assert F.margin_loss(more, torch.tensor([0])).item() == pytest.approx(0.16 + 2 * 0.08)


@given(seeds, sizes, sizes)
def test_reconstruction_loss_sums_pixels(seed: int, B: int, P: int) -> None:
    drawn, images = random(seed, B, 1, P, 2).sigmoid(), random(seed + 1, B, 1, P, 2).sigmoid()
    expected = reference.reconstruction_loss(drawn.flatten(1).tolist(), images.flatten(1).tolist())
    assert F.reconstruction_loss(drawn, images).item() == pytest.approx(expected, rel=1e-10)


def test_reconstruction_loss_grows_with_image() -> None:
    """A blank 28 x 28 drawing of a white image costs 0.0005 * 784; a mean over pixels would cost 784 times less."""
    white = torch.ones(2, 1, 28, 28)
    assert F.reconstruction_loss(torch.zeros_like(white), white).item() == pytest.approx(0.0005 * 784)


def test_mask_capsules_keeps_labelled_or_longest() -> None:
    poses = torch.tensor([[[1.0, 0], [0, 3], [2, 0]], [[5.0, 0], [0, 3], [2, 0]]])
    by_label = F.mask_capsules(poses, torch.tensor([2, 1]))
    assert by_label.tolist() == [[[0, 0], [0, 0], [2, 0]], [[0, 0], [0, 3], [0, 0]]]
    by_length = F.mask_capsules(poses)
    assert by_length.tolist() == [[[0, 0], [0, 3], [0, 0]], [[5, 0], [0, 0], [0, 0]]]
    several = F.mask_capsules(poses, torch.tensor([[1, 0, 1], [0, 0, 0]]))
    assert several.tolist() == [[[1, 0], [0, 0], [2, 0]], [[0, 0], [0, 0], [0, 0]]]


@pytest.mark.parametrize(
    ("lengths", "targets", "message"),
    [
        (torch.rand(2, 3), torch.tensor([0, 3]), "class number 3 is out of range"),
        (torch.rand(2, 3), torch.tensor([-1, 0]), "class number -1"),
        (torch.rand(2, 3), torch.tensor([0.0, 1.0]), "must be integers"),
        (torch.rand(2, 3), torch.rand(2, 4), "shape"),
        (torch.rand(2, 3), torch.tensor([0]), "2 examples but 1 targets"),
        (torch.rand(2, 3, 1), torch.tensor([0, 1]), r"\(B, J\)"),
    ],
)
def test_bad_input_is_refused(lengths: torch.Tensor, targets: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        F.margin_loss(lengths, targets)


def test_reconstruction_of_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="differ in shape"):
        F.reconstruction_loss(torch.rand(2, 1, 4, 4), torch.rand(2, 1, 4, 5))


@pytest.mark.parametrize("name", ["paper", "exp", "power:1", "power:1.5", "power:2", "power:3", "power:8", "unit"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_squash_variants_have_finite_gradients(name: str, dtype: torch.dtype) -> None:
    longest = 20 if dtype == torch.float64 else 18  # beyond, the square of a length is more than the largest number
    lengths = torch.cat([torch.zeros(1), torch.logspace(-20, longest, 161)]).to(dtype)
    s = (lengths[:, None] * torch.tensor([0.6, -0.8], dtype=dtype)).requires_grad_()
    pose, act = F.get_squash(name)(s)
    assert pose.isfinite().all()
    assert ((act >= 0) & (act <= 1 + 4 * torch.finfo(dtype).eps)).all()
    (pose.sum() + act.sum()).backward()
    assert s.grad is not None
    assert s.grad.isfinite().all()


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0, 3.0, 8.0])
def test_power_squash_matches_formula(power: float) -> None:
    s = random(4, 200, 5) * torch.logspace(-4, 4, 200, dtype=torch.float64)[:, None]
    norm = s.norm(dim=-1, keepdim=True)
    pose, act = F.get_squash(f"power:{power}")(s)
    torch.testing.assert_close(pose, s * norm ** (power - 1) / (1 + norm**power), rtol=1e-12, atol=0)
    torch.testing.assert_close(act, pose.norm(dim=-1))
    exact = pose.float()
    torch.testing.assert_close(F.get_squash(f"power:{power}")(s.float())[0], exact, rtol=1e-5, atol=1e-37)
    moderate = random(5, 20, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: F.get_squash(f"power:{power}")(s)[0], moderate)
