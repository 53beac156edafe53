"""One suite for all routings: checks that take a routing and raise AssertionError.

They are plain functions, so that a routing that is registered outside the package, or a deliberately broken one, can be
checked too:

    for route in suite.variants("my-routing"):
        for check in suite.CHECKS.values():
            check(route)

A routing is checked against its declarations (``normalised``, ``decides``, ``presence_is_length`` ...).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from capsnet import kernels, routing
from capsnet.functional import length
from capsnet.kernels import chunked_routing
from capsnet.kernels.cost import Path
from capsnet.layers import DenseCaps
from capsnet.routing import Edges, Routed, Routing, undecided

B, I, J, D = 3, 7, 4, 5
EDGES = Edges(torch.tensor([[0, 1, 2], [1, 2, 3], [2, 3, 4]]), 5)  # child 2 has parents at all three positions


def variants(name: str) -> list[Routing]:
    """A registered routing with its defaults, in its named forms, with each switch on, with one iteration, and with
    presence apart from the pose."""
    default = routing.get(name)
    fields = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    changes = [
        {},
        *type(default).forms.values(),
        *({option: True} for option, value in fields.items() if value is False),
    ]
    changes += [{"iterations": 1}] * default.iterates + [{"squash": "unit"}] * ("squash" in fields)
    return [routing.get(name, **change) for change in changes]


def decided(route: Routing) -> Routing:
    """The routing with so many iterations that it has decided."""
    return routing.get(route, iterations=5) if route.iterates else route


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def learned(
    route: Routing, children: int, parents: int, dim: int, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """The learned tensors of a layer, at values other than the neutral ones."""
    shapes = route.param_shapes(children, parents, dim)
    return {name: 0.3 * normal(len(name), *shape, dtype=dtype) for name, shape in shapes.items()}


def run(route: Routing, votes: Tensor, act: Tensor | None = None, *, trace: bool = False, **more: Any) -> Routed:
    children, parents, dim = votes.shape[-3:]
    return route(votes, act, params=learned(route, children, parents, dim, votes.dtype), trace=trace, **more)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def shapes(route: Routing) -> None:
    for b, i, j, d in ((B, I, J, D), (1, I, J, D), (B, 1, J, D), (B, I, 1, D), (B, I, J, 1), (1, 1, 1, 1)):
        routed = run(route, normal(0, b, i, j, d), trace=True)
        assert routed.pose.shape == (b, j, d)
        assert routed.act.shape == (b, j)
        assert routed.pose.isfinite().all()
        assert ((routed.act >= 0) & (routed.act <= 1)).all(), "activations are presences"
        assert routed.trace is not None
        R = len(routed.trace.couplings)
        assert routed.trace.couplings.shape == routed.trace.logits.shape == (R, b, i, j)
        assert routed.trace.poses.shape == (R, b, j, d)
        assert routed.trace.activations.shape == (R, b, j)
        assert routed.trace.votes.shape == (b, i, j, d)


def convolutional(route: Routing) -> None:
    P, K = EDGES.index.shape
    votes, act = normal(0, B, P, K, J, D), normal(1, B, 5).sigmoid()
    routed = run(route, votes, act, edges=EDGES, trace=True)
    assert routed.pose.shape == (B, P, J, D)
    assert routed.act.shape == (B, P, J)
    assert routed.trace is not None
    assert routed.trace.couplings.shape[1:] == (B, P, K, J)
    votes = normal(2, B, I, J, D)
    dense, one = run(route, votes), run(route, votes[:, None], edges=Edges(torch.arange(I)[None], I))
    close(one.pose[:, 0], dense.pose)
    close(one.act[:, 0], dense.act)


def neighbours(route: Routing) -> None:
    votes = normal(0, B, I, J, D)
    together = run(route, votes)
    for b in reversed(range(B)):
        alone = run(route, votes[b : b + 1])
        close(together.pose[b : b + 1], alone.pose)
        close(together.act[b : b + 1], alone.act)
    assert torch.equal(run(route, votes).pose, together.pose), "the second call gives the first one's answer"


def masks(route: Routing) -> None:
    """Masked children are ignored exactly, NaN included. (Learned tensors per child are cut as well.)"""
    votes, act = normal(0, B, I, J, D), normal(1, B, I).sigmoid()
    mask = torch.tensor([[True] * (I - 2) + [False] * 2] * B)
    params = learned(route, I, J, D)
    cut = {name: tensor[: I - 2] if tensor.shape[:1] == (I,) else tensor for name, tensor in params.items()}
    spoilt, unsure = votes.clone(), act.clone()
    spoilt[:, I - 2 :] = torch.nan
    unsure[:, I - 2 :] = torch.nan
    masked = route(spoilt, unsure, mask=mask, params=params)
    fewer = route(votes[:, : I - 2], act[:, : I - 2], params=cut)
    close(masked.pose, fewer.pose)
    close(masked.act, fewer.act)
    nobody = route(votes, act, mask=torch.zeros(B, I, dtype=torch.bool))
    assert (nobody.pose == 0).all()
    assert nobody.act.isfinite().all()


def activations(route: Routing) -> None:
    """A child of presence 0 does not count, and its votes get finite gradients; presence changes the result."""
    votes = normal(0, B, I, J, D)
    act = torch.full((B, I), 0.6, dtype=torch.float64)
    changed = act.clone()
    changed[:, 0] = 0.1
    assert not torch.allclose(run(route, votes, act).pose, run(route, votes, changed).pose)
    gone, params = act.clone(), learned(route, I, J, D)
    gone[:, -1] = 0
    cut = {name: tensor[:-1] if tensor.shape[:1] == (I,) else tensor for name, tensor in params.items()}
    fewer = route(votes[:, :-1], act[:, :-1], params=cut).pose
    close(route(votes, gone, params=params).pose, fewer)
    loud = votes.clone()
    loud[:, -1] *= 1e4
    pose = route(loud.requires_grad_(), gone.requires_grad_(), params=params).pose
    close(pose, fewer)
    pose.sum().backward()
    assert loud.grad is not None
    assert loud.grad.isfinite().all()
    assert gone.grad is not None
    assert gone.grad.isfinite().all()
    nobody = route(votes, torch.zeros_like(act), params=params)
    assert nobody.pose.isfinite().all()
    assert nobody.act.isfinite().all()


def order(route: Routing) -> None:
    votes, act, turn = normal(0, B, I, J, D), normal(1, B, I).sigmoid(), torch.randperm(I)
    params = learned(route, I, J, D)
    turned = {name: tensor[turn] if tensor.shape[:1] == (I,) else tensor for name, tensor in params.items()}
    close(route(votes[:, turn], act[:, turn], params=turned).pose, route(votes, act, params=params).pose)


def gradients(route: Routing) -> None:
    votes = normal(0, 2, 4, 3, 2).requires_grad_()
    act = normal(1, 2, 4).sigmoid().requires_grad_()
    params = {name: tensor.requires_grad_() for name, tensor in learned(route, 4, 3, 2).items()}
    assert torch.autograd.gradcheck(
        lambda v, a, *rest: route(v, a, params=dict(zip(params, rest, strict=True)))[:2], (votes, act, *params.values())
    )
    P, K = EDGES.index.shape
    spread = normal(2, 1, P, K, 2, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: run(route, v, edges=EDGES)[:2], spread)


def extremes(route: Routing) -> None:
    same = normal(3, 1, 1, 1, D, dtype=torch.float32).expand(2, I, J, D)
    for votes in (torch.zeros(2, I, J, D), 1e4 * normal(0, 2, I, J, D).float(), same, 1e4 * same):
        votes = votes.clone().requires_grad_()
        pose, act, _ = run(route, votes)
        assert pose.isfinite().all()
        assert act.isfinite().all()
        (pose.sum() + act.sum()).backward()
        assert votes.grad is not None
        assert votes.grad.isfinite().all()
    half = run(route, normal(0, B, I, J, D).bfloat16())
    assert half.pose.dtype == torch.bfloat16
    assert half.pose.isfinite().all()
    assert half.act.isfinite().all()


def tracing(route: Routing) -> None:
    votes, act = normal(0, B, I, J, D), normal(1, B, I).sigmoid()
    traced, plain = run(route, votes, act, trace=True), run(route, votes, act)
    close(traced.pose, plain.pose)
    assert plain.trace is None
    assert traced.trace is not None
    close(traced.trace.poses[-1], traced.pose)
    close(traced.trace.activations[-1], traced.act)
    close(traced.trace.votes, votes)
    before = dict(vars(route))
    run(route, votes, trace=True)
    assert vars(route) == before, "a routing has no state"


def in_layer(
    route: Routing, path: Path, u: Tensor, weight: Tensor, act: Tensor | None, mask: Tensor | None
) -> list[Tensor]:
    """A dense layer's pose and activation, and the gradients of children, presences and all that is learned."""
    I, J, D, K = weight.shape
    layer = DenseCaps(I, J, K, D, route, dtype=weight.dtype)
    layer.load_state_dict(
        {"weight": weight, **{f"routing_params.{name}": t for name, t in learned(route, I, J, D, weight.dtype).items()}}
    )
    u, act = u.detach().requires_grad_(), None if act is None else act.detach().requires_grad_()
    with kernels.using(path):
        routed = layer(u, act, mask=mask)
    loss = (routed.pose * normal(8, *routed.pose.shape)).sum() + routed.act.square().sum()
    leaves = [t for t in (u, act, *layer.parameters()) if t is not None]
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [
        routed.pose,
        routed.act,
        *(torch.zeros_like(t) if g is None else g for t, g in zip(leaves, found, strict=True)),
    ]


def vote_free(route: Routing) -> None:
    """In a dense layer a routing gets votes that are not in memory; values and gradients are those of the votes.

    For odd sizes, single and no examples, children that are not contiguous, presences, masks, chunks and threads.
    """
    threads = torch.get_num_threads()
    small: dict[str, Any] = {"_CHUNK": 600, "_VOTES": 600, "_WORTH_SHARING": 1}
    large: dict[str, Any] = {"_CHUNK": 1 << 20}
    for b, i, j, d, k in ((7, 11, 4, 5, 3), (1, 5, 3, 2, 2), (5, 1, 2, 3, 4), (6, 9, 1, 1, 1), (0, 4, 3, 2, 2)):
        weight, u = 2 * normal(0, i, j, d, k), normal(1, b, k, i).transpose(1, 2)
        act, mask = normal(2, b, i).sigmoid(), normal(3, b, i) > -0.5
        for more in ((None, None), (act, None), (None, mask), (act, mask)):
            expected = in_layer(route, "plain", u, weight, *more)
            for count in (1, 2):
                torch.set_num_threads(count)
                try:
                    with mock.patch.multiple(chunked_routing, **(small if count == 2 else large)):
                        found = in_layer(route, "fast", u, weight, *more)
                finally:
                    torch.set_num_threads(threads)
                for f, e in zip(found, expected, strict=True):
                    torch.testing.assert_close(f, e, rtol=1e-7, atol=1e-9)


def compiles(route: Routing) -> None:
    """A compiled dense layer computes the same, with gradients."""
    u, layer = normal(0, 5, I, 3).float(), DenseCaps(I, J, 3, D, route)
    with torch.no_grad():
        layer.weight.mul_(5)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    gradients = []
    for module in (layer, compiled):
        routed = module(u)
        (routed.pose * normal(8, *routed.pose.shape).float()).sum().backward()
        assert layer.weight.grad is not None
        gradients += [routed.pose, routed.act, layer.weight.grad]
        layer.weight.grad = None
    for got, expected in zip(gradients[3:], gradients[:3], strict=True):
        close(got, expected, 1e-4)


def clusters() -> tuple[Tensor, Tensor]:
    """Two groups of children: each agrees about its own parent and votes in all directions for the others.

    All votes are equally long, so only agreement distinguishes them. Returns votes and the right parents.
    """
    right_parent = torch.tensor([0] * 20 + [1] * 20)
    votes = normal(5, 1, 40, 3, 8)
    for child, parent in enumerate(right_parent.tolist()):
        votes[0, child, parent] = torch.eye(8, dtype=torch.float64)[parent] + 0.05 * normal(child, 8)
    return 6 * votes / votes.norm(dim=-1, keepdim=True), right_parent


def planted_couplings(route: Routing) -> tuple[float, float]:
    """The mean coupling of an agreeing child with its right parent (1 / 3 is chance), and the share of children whose
    largest coupling it is."""
    votes, right_parent = clusters()
    trace = route(votes, trace=True).trace
    assert trace is not None
    last = trace.couplings[-1, 0]  # (I, J)
    mean = last[torch.arange(len(right_parent)), right_parent].mean()
    return float(mean), float((last.argmax(dim=1) == right_parent).double().mean())


def finds_clusters(route: Routing) -> None:
    """If couplings depend on agreement and parents compete, children couple with the parent about which they agree."""
    coupling, right = planted_couplings(decided(route))
    if route.decides and route.normalised != "children":
        assert coupling >= 0.9  # a third parent whose pose is normalised to full length keeps some of it
        assert right >= 0.95
    else:
        assert coupling < 0.8


def couplings(route: Routing) -> None:
    """Couplings sum to one over what the routing declares. (Without learned tensors: a prior is zero then.)"""
    trace = route(normal(0, B, I, J, D), trace=True).trace
    assert trace is not None
    sums = trace.couplings.sum(dim=2 if route.normalised == "children" else 3)
    if route.leaky:
        assert (sums < 1).all()
    else:
        close(sums, torch.ones_like(sums))
    if route.normalised == "none":
        tensors = learned(route, I, J, D)
        assert tensors, "couplings that need not sum to one have a learned part"
        changed = run(route, normal(0, B, I, J, D), trace=True).trace
        assert changed is not None
        assert not torch.allclose(changed.couplings.sum(dim=3), sums)
    level = undecided(trace.couplings, trace.logits, route.normalised)
    assert level.shape == (len(trace.couplings), B)
    assert ((level >= 0) & (level <= 1)).all()
    if not route.decides:
        close(level, torch.ones_like(level))


def presence(route: Routing) -> None:
    """Whether the presence of a parent is the length of its pose is as declared."""
    routed = run(route, normal(0, B, I, J, D), normal(1, B, I).sigmoid())
    assert torch.allclose(routed.act, length(routed.pose)) == route.presence_is_length


def declarations(route: Routing) -> None:
    """The declarations are complete, and the options rebuild the routing."""
    options = route.options()
    assert type(route)(**options) == route  # type: ignore[arg-type]
    assert hash(route) == hash(type(route)(**options))  # type: ignore[arg-type]
    assert route.iterates == ("iterations" in options)
    trace = route(normal(0, B, I, J, D), trace=True).trace
    assert trace is not None
    assert len(trace.couplings) == (options["iterations"] if route.iterates else 1)
    assert route.name
    assert route.sentence.endswith(".")
    assert all("=" in text for text in route.formula)
    assert route.iteration_name
    for form in type(route).forms.values():
        assert routing.get(route, **form).options().items() >= form.items()
    assert set(route.dense_options) <= set(options)


def continuing(route: Routing) -> None:
    """If it is declared, all iterations equal single ones, each from the parents of the one before; else a start is
    refused."""
    P, K = EDGES.index.shape
    dense: dict[str, Any] = {"votes": normal(0, B, I, J, D), "act": normal(1, B, I).sigmoid()}
    spread: dict[str, Any] = {"votes": normal(0, B, P, K, J, D), "act": normal(1, B, 5).sigmoid(), "edges": EDGES}
    for children in (dense, spread):
        start = torch.zeros((), dtype=torch.float64)
        if not route.continues:
            with pytest.raises(ValueError, match=f"{route.name} routing cannot start from given parents"):
                route(**children, start=start)
            continue
        whole = run(route, **children, trace=True)
        assert whole.trace is not None
        for coupling, pose, act in zip(whole.trace.couplings, whole.trace.poses, whole.trace.activations, strict=True):
            single = run(route, **children, trace=True, start=start)
            assert single.trace is not None
            assert len(single.trace.couplings) == 1
            close(single.trace.couplings[0], coupling)
            close(single.pose, pose)
            close(single.act, act)
            start = single.pose
        with pytest.raises(ValueError, match="start must be 0 or have the parents' shape"):
            route(**children, start=start[:1])


def training(route: Routing) -> None:
    """A layer learns what a second layer of the same routing, with other weights, computes."""
    layers = []
    for seed in (0, 1):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers.append(DenseCaps(6, 3, 4, 5, route))
    student, teacher = layers
    shapes = route.param_shapes(6, 3, 5)
    assert {key: tuple(tensor.shape) for key, tensor in student.routing_params.items()} == shapes
    with torch.no_grad():
        for layer in layers:
            layer.weight.mul_(5)  # votes of the size of the children's poses
        u = normal(2, 16, 6, 4, dtype=torch.float32)
        target = teacher(u).pose
    optimizer = torch.optim.Adam(student.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        loss = (student(u).pose - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(p.isfinite().all() for p in student.parameters())


CHECKS: Mapping[str, Callable[[Routing], None]] = {
    check.__name__: check
    for check in (
        shapes,
        convolutional,
        neighbours,
        masks,
        activations,
        order,
        gradients,
        extremes,
        tracing,
        vote_free,
        compiles,
        finds_clusters,
        couplings,
        presence,
        declarations,
        continuing,
        training,
    )
}
