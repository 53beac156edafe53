"""EM routing by the kernel, from children and from votes, dense and in windows, against routing/em.py."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from capsnet.kernels import em_routing, using, windows
from capsnet.layers import ClassCaps, ConvCaps, DenseCaps, SharedCaps
from capsnet.routing import EM, Edges
from tests.kernels._bytes import counted
from tests.kernels._compare import assert_as_good, run

OVERLAPPING = Edges(torch.tensor([[0, 1, 2], [1, 2, 4], [4, 2, 0]]), 6)  # no position sees children 3 and 5


def make_votes(u: Tensor, w: Tensor) -> Tensor:
    return torch.einsum("...ik,ijdk->...ijd", u, w)


def both(route: EM, edges: Edges | None, form: str) -> Callable[..., Tensor]:
    """Poses and activations in one row, of (u, weight, act, use_cost, act_cost): plain, from children or from votes."""

    def result(u: Tensor, w: Tensor, act: Tensor | None, use: Tensor | None, cost: Tensor | None) -> Tensor:
        params = {} if use is None or cost is None else {"use_cost": use, "act_cost": cost}
        if form == "plain":
            routed = route.plain(make_votes(u, w), act, edges, params, False)
        else:
            weight = w if form == "children" else None
            found = route._fused(u if weight is not None else make_votes(u, w), weight, act, edges, params, None)
            assert found is not None
            routed = found
        return torch.cat([routed.pose.flatten(), routed.act.flatten()])

    return result


def example(u: tuple[int, ...], J: int, D: int, children: int, act: bool, costs: bool, seed: int = 0) -> list[Any]:
    g = torch.Generator().manual_seed(seed)
    return [
        torch.randn(u, generator=g),
        torch.randn(u[-2], J, D, u[-1], generator=g) * 0.3 + 0.2,
        torch.rand(u[0], children, generator=g) if act else None,
        *([torch.randn(J, generator=g) if costs else None for _ in range(2)]),
    ]


def compare(route: EM, edges: Edges | None, form: str, arguments: list[Any]) -> None:
    leaves = [i for i, a in enumerate(arguments) if a is not None]
    fast, plain = both(route, edges, form), both(route, edges, "plain")
    assert_as_good(fast, plain, arguments, leaves)
    for a, b in zip(*(run(f, arguments, torch.float64, leaves) for f in (fast, plain)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


forms = pytest.mark.parametrize("form", ["children", "votes"])


@forms
@settings(max_examples=30, deadline=None, derandomize=True)  # rarely a case is ill-conditioned in itself
@given(data=st.data())
def test_kernel_matches_plain_form_for_any_shape_and_option(form: str, data: st.DataObject) -> None:
    B, I, J, D, K = (data.draw(st.integers(1, n), label=s) for s, n in zip("BIJDK", (6, 30, 6, 9, 9), strict=True))
    route = EM(
        iterations=data.draw(st.integers(1, 4), label="iterations"),
        inverse_temperature=data.draw(st.sampled_from([0.01, 1.0]), label="inverse_temperature"),
        start_cost=data.draw(st.sampled_from([0.0, 2.3]), label="start_cost"),
        min_variance=0.05,
    )
    act, costs, seed = data.draw(st.tuples(st.booleans(), st.booleans(), st.integers(0, 99)))
    compare(route, None, form, example((B, I, K), J, D, I, act, costs, seed))


@forms
@pytest.mark.parametrize("iterations", [1, 2, 3, 4])
@pytest.mark.parametrize("act", [False, True])
def test_windows_match_plain_form(form: str, iterations: int, act: bool) -> None:
    route = EM(iterations=iterations, inverse_temperature=0.5, min_variance=0.05)
    compare(route, OVERLAPPING, form, example((5, 3, 3, 4), 2, 5, 6, act, True))


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@forms
@pytest.mark.parametrize("edges", [None, OVERLAPPING])
@pytest.mark.usefixtures("threads")
def test_chunks_in_several_threads_match_plain_form(
    form: str, edges: Edges | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_CHUNK", 1), ("_FEWEST", 2), ("_WORTH_SHARING", 0)):
        monkeypatch.setattr(em_routing, name, value)
    u = (11, 7, 3) if edges is None else (11, 3, 3, 4)
    compare(EM(min_variance=0.05), edges, form, example(u, 3, 5, 7 if edges is None else 6, True, True))


@pytest.mark.usefixtures("threads")
def test_number_of_threads_may_change_before_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(em_routing, "_WORTH_SHARING", 0)
    arguments = [a.double().requires_grad_() for a in example((9, 7, 3), 3, 5, 7, True, True)]
    found = []
    for later in (3, 1):
        torch.set_num_threads(3)
        result = both(EM(), None, "children")(*arguments).square().sum()
        torch.set_num_threads(later)
        found.append(torch.autograd.grad(result, arguments))
    for same, fewer in zip(*found, strict=True):
        torch.testing.assert_close(fewer, same)


@forms
def test_votes_far_from_zero_keep_their_precision(form: str) -> None:
    arguments = example((4, 20, 6), 3, 5, 20, True, True)
    arguments[1] += 30
    compare(EM(inverse_temperature=0.1, min_variance=0.05), None, form, arguments)


@forms
@pytest.mark.parametrize("edges", [None, OVERLAPPING])
def test_first_and_second_derivatives_pass_gradcheck(form: str, edges: Edges | None) -> None:
    u = (2, 4, 2) if edges is None else (2, 3, 3, 2)
    arguments = example(u, 2, 3, 4 if edges is None else 6, True, True)
    arguments = [a.double().requires_grad_() for a in arguments]
    function = both(EM(iterations=3, inverse_temperature=0.5, min_variance=0.1), edges, form)
    assert torch.autograd.gradcheck(function, arguments)
    assert torch.autograd.gradgradcheck(function, arguments, fast_mode=True)


@forms
@pytest.mark.parametrize("edges", [None, OVERLAPPING])
def test_parents_without_votes_are_absent_with_finite_gradients(form: str, edges: Edges | None) -> None:
    u = (3, 6, 2) if edges is None else (3, 3, 3, 2)
    arguments = example(u, 2, 3, 6, True, True)
    arguments[2][1] = 0  # no child of this example is present
    if edges is not None:
        arguments[2][:, [0, 1, 2]] = 0  # none at the first position
    outputs = [run(both(EM(), edges, f), arguments, torch.float64, range(5)) for f in (form, "plain")]
    for fast, plain in zip(*outputs, strict=True):
        assert fast.isfinite().all()
        torch.testing.assert_close(fast, plain)


@forms
def test_equal_votes_have_finite_gradients(form: str) -> None:
    arguments = example((2, 5, 3), 2, 3, 5, True, True)
    arguments[0][:], arguments[1][:] = 1, 0.25
    fast, plain = (run(both(EM(), None, f), arguments, torch.float64, range(5)) for f in (form, "plain"))
    for a, b in zip(fast, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


@forms
def test_strided_arguments_match_contiguous_ones(form: str) -> None:
    u, w, act, use, cost = example((4, 6, 5), 3, 4, 6, True, True)
    function = both(EM(), None, form)
    strided = [
        u.permute(2, 0, 1).contiguous().permute(1, 2, 0),
        w.transpose(0, 3).contiguous().transpose(0, 3),
        act.t().contiguous().t(),
        torch.stack([use, use], 1)[:, 0],
        cost,
    ]
    for a, b in zip(
        *(run(function, x, torch.float32, range(5)) for x in ((u, w, act, use, cost), strided)), strict=True
    ):
        torch.testing.assert_close(a, b)


def layers() -> list[Any]:
    route = EM(inverse_temperature=0.3, start_cost=1.0, min_variance=0.05)
    return [
        pytest.param(DenseCaps(7, 3, 4, 5, routing=route), (7, 4), id="dense"),
        pytest.param(SharedCaps(3, 4, 5, routing=route), (7, 4), id="shared"),
        pytest.param(ConvCaps(2, 3, 3, 2, 4, 5, routing=route), (6, 8, 2, 4), id="conv"),
        pytest.param(ConvCaps(2, 3, 2, 1, pose="matrix", routing=route), (3, 4, 2, 16), id="matrix"),
        pytest.param(ClassCaps(2, 3, pose="matrix", routing=route), (3, 4, 2, 16), id="classes"),
    ]


@pytest.mark.parametrize("batch", [0, 1, 5])
@pytest.mark.parametrize(("layer", "shape"), layers())
def test_layer_matches_plain_path(layer: Any, shape: tuple[int, ...], batch: int) -> None:
    g = torch.Generator().manual_seed(0)
    poses, act = torch.randn(batch, *shape, generator=g), torch.rand(batch, *shape[:-1], generator=g)
    found = []
    for path in ("plain", "auto"):
        leaves = [poses.double().requires_grad_(), act.double().requires_grad_()]
        layer = layer.double()
        with using(path):
            pose, presence, _ = layer(*leaves)
            total = (pose * pose.detach().cos()).sum() + presence.sin().sum()
            found.append([pose, presence, *torch.autograd.grad(total, [*leaves, *layer.parameters()])])
    for plain, fast in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain)


def test_masked_children_do_not_count_even_if_not_finite() -> None:
    layer = DenseCaps(6, 3, 4, 5, routing="em")
    u, mask = torch.randn(2, 6, 4), torch.tensor([1, 1, 0, 1, 0, 1], dtype=torch.bool).expand(2, -1)
    with using("plain"):
        expected = layer(u, mask=mask)
    u[:, 2] = torch.nan
    torch.testing.assert_close(layer(u, mask=mask)[:2], expected[:2])


def test_votes_are_never_stored_for_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(em_routing, "_CHUNK", 1 << 20)
    B, I, J, D, K = 64, 200, 10, 16, 8
    layer, u = DenseCaps(I, J, K, D, routing="em"), torch.randn(B, I, K, requires_grad=True)
    with counted() as seen:
        layer(u).pose.sum().backward()
    assert seen.largest <= 3 * (1 << 20) < 4 * B * I * J * D


def test_bfloat16_autocast_routes_in_single_precision() -> None:
    layer = ConvCaps(2, 3, 2, 1, pose="matrix", routing="em")
    poses, act = torch.randn(3, 3, 4, 2, 16), torch.rand(3, 3, 4, 2)
    with torch.autocast("cpu", torch.bfloat16):
        routed = layer(poses, act)
    assert routed.pose.dtype == routed.act.dtype == torch.float32
    expected = layer(poses, act)
    torch.testing.assert_close(routed.pose, expected.pose, rtol=0.01, atol=0.02)


def test_kernel_declines_function_transforms_and_forward_derivatives() -> None:
    layer, u = DenseCaps(5, 2, 3, 4, routing="em").double(), torch.randn(2, 5, 3, dtype=torch.float64)

    def function(u: Tensor) -> Tensor:
        return layer(u).pose

    backward = torch.autograd.functional.jacobian(function, u)
    torch.testing.assert_close(torch.func.jacrev(function)(u), backward)
    torch.testing.assert_close(torch.func.jacfwd(function)(u), backward)


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2), (2, 3)])
def test_windows_and_their_derivatives(kernel: int, stride: int) -> None:
    grid = torch.randn(2, 6, 7, 2, 3, dtype=torch.float64, requires_grad=True)
    with using("plain"):
        expected = windows(grid, kernel, stride)
    assert torch.equal(windows(grid, kernel, stride), expected)
    small = grid[:1, :5, :4, :1, :1].detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda g: windows(g, kernel, stride), small)
    assert torch.autograd.gradgradcheck(lambda g: windows(g, kernel, stride), small, fast_mode=True)
