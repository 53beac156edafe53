"""Convolutional and class capsules: votes against loops, receptive fields, competition, memory."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from capsnet.layers import ClassCaps, ConvCaps
from capsnet.layers._poses import Pose
from capsnet.routing import get, list_routings

SIZES = [(3, 3, 3, 1), (5, 7, 3, 2), (6, 5, 2, 1), (4, 6, 1, 1), (7, 6, 3, 3), (6, 6, 2, 3)]  # H, W, kernel, stride


def by_hand(weight: torch.Tensor, u: torch.Tensor, pose: str) -> torch.Tensor:
    return (u.view(4, 4) @ weight).flatten() if pose == "matrix" else weight @ u


def dims(pose: str) -> tuple[int, int]:
    return (16, 16) if pose == "matrix" else (5, 3)


@pytest.mark.parametrize("pose", ["vector", "matrix"])
@pytest.mark.parametrize(("H", "W", "K", "stride"), SIZES)
def test_votes_and_edges_match_loops(H: int, W: int, K: int, stride: int, pose: Pose) -> None:
    B, T, types = 2, 3, 2
    layer = ConvCaps(T, types, K, stride, *dims(pose), pose=pose)
    poses = torch.randn(B, H, W, T, dims(pose)[0])
    votes, (edges, children) = layer.votes(poses), layer.edges(H, W)
    down, right, _ = layer.grid(H, W)
    assert (down, right) == (len(range(0, H - K + 1, stride)), len(range(0, W - K + 1, stride)))
    assert votes.shape == (B, down * right, K * K * T, types, dims(pose)[1])
    assert edges.shape == votes.shape[1:3]
    assert children == H * W * T
    flat = poses.flatten(1, 3)  # children in the order (y, x, type)
    for p in range(down * right):
        y, x = p // right * stride, p % right * stride
        for k in range(K * K * T):
            ky, kx, t = k // (K * T), k // T % K, k % T
            child = poses[:, y + ky, x + kx, t]
            assert torch.equal(flat[:, edges[p, k]], child)
            for j in range(types):
                expected = torch.stack([by_hand(layer.weight[k, j], child[b], pose) for b in range(B)])
                torch.testing.assert_close(votes[:, p, k, j], expected)


@pytest.mark.parametrize("name", list_routings())
@pytest.mark.parametrize("pose", ["vector", "matrix"])
def test_shapes_and_finite_gradients(name: str, pose: Pose) -> None:
    layer = ConvCaps(3, 2, 3, 2, *dims(pose), pose=pose, routing=name)
    poses = torch.randn(2, 6, 7, 3, dims(pose)[0], requires_grad=True)
    act = torch.rand(2, 6, 7, 3, requires_grad=True)
    routed = layer(poses, act, trace=True)
    assert routed.pose.shape == (2, 2, 3, 2, dims(pose)[1])
    assert routed.act.shape == (2, 2, 3, 2)
    assert routed.trace is not None
    assert routed.trace.couplings.shape[1:] == (2, 6, 27, 2)
    (routed.pose.square().sum() + routed.act.sum()).backward()
    for tensor in (poses, act, layer.weight):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()
        assert tensor.grad.any()
    assert poses.grad is not None
    assert not poses.grad[:, 5].any()  # the last row is in no window
    assert layer(poses).pose.isfinite().all()


@pytest.mark.parametrize(("H", "W", "K", "stride"), SIZES)
def test_child_reaches_only_positions_that_see_it(H: int, W: int, K: int, stride: int) -> None:
    layer = ConvCaps(2, 3, K, stride, 4, 4, routing="uniform")
    poses = torch.randn(1, H, W, 2, 4)
    before = layer(poses).pose
    for y in range(H):
        for x in range(W):
            moved = poses.clone()
            moved[0, y, x, 1] += 1
            changed = (layer(moved).pose != before).flatten(3).any(-1)[0]
            sees_y = torch.tensor([top * stride <= y < top * stride + K for top in range(before.shape[1])])
            sees_x = torch.tensor([left * stride <= x < left * stride + K for left in range(before.shape[2])])
            assert torch.equal(changed, sees_y[:, None] & sees_x)


@pytest.mark.parametrize("name", ["dynamic", "em"])
def test_couplings_of_child_sum_to_one_over_all_positions(name: str) -> None:
    layer = ConvCaps(2, 3, 3, 1, 4, 4, routing=name)
    trace = layer(torch.randn(2, 5, 6, 2, 4), torch.rand(2, 5, 6, 2), trace=True).trace
    assert trace is not None
    totals = torch.zeros(2, 5 * 6 * 2)
    totals.index_add_(1, layer.edges(5, 6).index.flatten(), trace.couplings[-1].sum(-1).flatten(1))
    torch.testing.assert_close(totals, torch.ones_like(totals))


def test_window_over_whole_grid_equals_dense_layer() -> None:
    layer = ConvCaps(2, 3, 4, 1, 5, 6, routing="dynamic")
    poses, act = torch.randn(2, 4, 4, 2, 5), torch.rand(2, 4, 4, 2)
    votes = torch.einsum("ijdk,bik->bijd", layer.weight, poses.flatten(1, 3))
    expected = get("dynamic")(votes, act.flatten(1))
    routed = layer(poses, act)
    torch.testing.assert_close(routed.pose.flatten(1, 2).squeeze(1), expected.pose)
    torch.testing.assert_close(routed.act[:, 0, 0], expected.act)


def test_learned_tensors_have_window_size_and_class_layer_takes_any_grid() -> None:
    assert ConvCaps(2, 3, 3, 1, routing="self-attention").routing_params["prior"].shape == (18, 3)
    assert not ClassCaps(2, 3, routing="self-attention").routing_params
    layer = ClassCaps(2, 3, routing="em")
    assert layer.routing_params["use_cost"].shape == (3,)
    for H, W in ((1, 1), (3, 5)):
        assert layer(torch.randn(2, H, W, 2, 16), torch.rand(2, H, W, 2)).pose.shape == (2, 3, 16)


@pytest.mark.parametrize("pose", ["vector", "matrix"])
@pytest.mark.parametrize(("H", "W"), [(1, 1), (3, 2), (2, 5)])
def test_class_votes_match_loops_with_coordinates(H: int, W: int, pose: Pose) -> None:
    B, T, J = 2, 3, 4
    layer = ClassCaps(T, J, *dims(pose), pose=pose)
    poses = torch.randn(B, H, W, T, dims(pose)[0])
    votes = layer.votes(poses).unflatten(1, (H, W, T))
    for b in range(B):
        for y in range(H):
            for x in range(W):
                for t in range(T):
                    for j in range(J):
                        expected = by_hand(layer.weight[t, j], poses[b, y, x, t], pose).clone()
                        place = torch.tensor([(y + 0.5) / H, (x + 0.5) / W])
                        expected.view(4, 4)[:2, 3].add_(place) if pose == "matrix" else expected[:2].add_(place)
                        torch.testing.assert_close(votes[b, y, x, t, j], expected)


@pytest.mark.parametrize("name", list_routings())
def test_class_capsules_route_densely_and_trace_has_grid(name: str) -> None:
    layer = ClassCaps(2, 3, 5, 6, routing=name)
    poses = torch.randn(2, 3, 4, 2, 5, requires_grad=True)
    act = torch.rand(2, 3, 4, 2)
    routed = layer(poses, act, trace=True)
    expected = get(name)(layer.votes(poses), act.flatten(1))
    torch.testing.assert_close(routed.pose, expected.pose)
    torch.testing.assert_close(routed.act, expected.act)
    assert routed.trace is not None
    assert routed.trace.grid == (3, 4, 2)
    (routed.pose.sum() + routed.act.sum()).backward()
    assert poses.grad is not None
    assert poses.grad.isfinite().all()


class Largest(TorchDispatchMode):
    """The size of the largest storage, and how many of that size were made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        inputs = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
        if isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() not in inputs:
            self.made.append(out.untyped_storage().nbytes() // out.element_size())
        return out


@pytest.mark.parametrize("pose", ["vector", "matrix"])
def test_votes_need_no_other_tensor_of_their_size(pose: Pose) -> None:
    sizes = []
    for B, H in ((1, 9), (2, 9), (4, 9), (2, 16)):
        layer = ConvCaps(4, 32, 3, 1, pose=pose)
        with Largest() as memory:
            votes = layer.votes(torch.randn(B, H, H, 4, 16))
        assert max(memory.made) == votes.numel() == B * (H - 2) ** 2 * 36 * 32 * 16
        assert sum(memory.made) - max(memory.made) < 0.35 * votes.numel() + 2 * layer.weight.numel() * 16
        sizes.append(max(memory.made))
    assert sizes[1] == 2 * sizes[0]
    assert sizes[2] == 4 * sizes[0]


@pytest.mark.parametrize("name", ["dynamic", pytest.param("em", marks=pytest.mark.slow)])
def test_layers_compile(name: str) -> None:
    conv, classes = ConvCaps(2, 3, 3, 2, pose="matrix", routing=name), ClassCaps(3, 4, pose="matrix", routing=name)

    def both(poses: torch.Tensor, act: torch.Tensor) -> torch.Tensor:
        return classes(*conv(poses, act)[:2]).pose

    poses, act = torch.randn(2, 5, 6, 2, 16), torch.rand(2, 5, 6, 2)
    compiled = torch.compile(both, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(poses, act), both(poses, act))


@pytest.mark.parametrize("pose", ["vector", "matrix"])
def test_gradients_pass_gradcheck(pose: Pose) -> None:
    layer = ConvCaps(1, 2, 2, 1, *dims(pose), pose=pose).double()
    poses = torch.randn(1, 3, 2, 1, dims(pose)[0], dtype=torch.float64, requires_grad=True)
    weight = torch.randn_like(layer.weight).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda u, w: torch.func.functional_call(layer, {"weight": w}, (u,)).pose, (poses, weight)
    )


def test_training_works_after_inference_mode() -> None:
    layer = ConvCaps(2, 3, 3, 1)
    poses = torch.randn(1, 4, 4, 2, 16)
    with torch.inference_mode():
        layer(poses)
    layer(poses).pose.sum().backward()
    assert set(layer.state_dict()) == {"weight"}


def test_wrong_calls_are_refused() -> None:
    layer = ConvCaps(2, 3, 3, 1)
    with pytest.raises(ValueError, match=r"expected poses of shape \(B, H, W, 2, 16\), got \(1, 4, 4, 16\)"):
        layer(torch.randn(1, 4, 4, 16))
    with pytest.raises(ValueError, match="a grid of 2 x 9 capsules is too small for a 3x3 window"):
        layer(torch.randn(1, 2, 9, 2, 16))
    with pytest.raises(ValueError, match=r"act must have shape \(B, H, W, T\) = \(1, 4, 4, 2\), got \(1, 32\)"):
        layer(torch.randn(1, 4, 4, 2, 16), torch.rand(1, 32))
    with pytest.raises(ValueError, match="matrix poses have 16 dimensions, got in_dim=8"):
        ConvCaps(2, 3, in_dim=8, pose="matrix")
    with pytest.raises(ValueError, match="unknown kind of pose 'matrx'"):
        ConvCaps(2, 3, pose="matrx")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 2, got 1"):
        ClassCaps(2, 3, out_dim=1)
