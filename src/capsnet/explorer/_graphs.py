"""What the page without a server computes with: a network with its trace, its decoder, and routings, as ONNX graphs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from capsnet import kernels, routing
from capsnet.export import graph
from capsnet.models import Model, Output, replacements, reroute
from capsnet.routing import Routing, Trace

MOST = 10  # iterations: every routing is unrolled so far, and its first k iterations are those of a routing with k
TRACE = ("couplings", "logits", "steps", "activations")  # of each iteration; ``steps`` are the parents' poses
EQUAL = 1e-5


class Network(nn.Module):
    """All that the page shows of one picture, as the plain tuple of what ``names`` lists."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        output = self.output(model.example_inputs(1))
        self.traced = output.trace is not None
        self.drawn = output.reconstruction is not None and not model.draws  # else the decoder draws it
        self.names = ["lengths", *["poses"] * (output.poses is not None), *["reconstruction"] * self.drawn]
        self.names += [*TRACE, "votes"] * self.traced

    def output(self, images: Tensor) -> Output:
        wanted = self.model.class_routing is not None and self.model.grid is not None
        with kernels.using("plain"):
            return self.model(images, trace=wanted)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        output = self.output(images)
        values = [output.lengths[0]]
        if output.poses is not None:
            values.append(output.poses[0])
        if self.drawn and output.reconstruction is not None:
            values.append(output.reconstruction[0])
        if self.traced and output.trace is not None:
            values += [*_steps(output.trace), output.trace.votes[0]]
        return tuple(values)


class Decoder(nn.Module):
    """Poses (B, J, D) and classes (B,) -> pictures (B, C, H, W)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, poses: Tensor, classes: Tensor) -> tuple[Tensor]:
        return (self.model.decode(poses, classes),)


class Steps(nn.Module):
    """A routing from votes (1, I, J, D) to what happens in each iteration."""

    def __init__(self, own: Routing) -> None:
        super().__init__()
        self.own = own

    def forward(self, votes: Tensor) -> tuple[Tensor, ...]:
        trace = self.own(votes, trace=True).trace
        assert trace is not None
        return _steps(trace)


def _steps(trace: Trace) -> tuple[Tensor, ...]:
    """Of the one example, in the order of ``TRACE``."""
    return trace.couplings[:, 0], trace.logits[:, 0], trace.poses[:, 0], trace.activations[:, 0]


def network_graph(model: Model) -> tuple[bytes, list[str]]:
    """The network for one picture, and the names of its outputs."""
    network = Network(model)
    return graph(network, {"images": model.example_inputs(1)}, network.names), network.names


def decoder_graph(model: Model) -> bytes | None:
    """The decoder for any number of poses from 2 on, or None."""
    if not model.draws or model.pose_dim is None:
        return None
    inputs = {"poses": torch.rand(3, model.num_classes, model.pose_dim), "classes": torch.arange(3) % model.num_classes}
    return graph(Decoder(model), inputs, ["pictures"], {"poses": (0,), "classes": (0,)})


class _Made(NamedTuple):
    file: str
    parents: int | None  # the only number of parents that it takes; None: any


class RoutingGraphs:
    """Graphs of routings, each made once and given to ``write(file, content)``. ``names`` limits which are made."""

    def __init__(
        self, write: Callable[[str, bytes], object], names: list[str] | None, say: Callable[[str], object]
    ) -> None:
        self.write, self.names, self.say = write, names, say
        self.made: dict[Routing, list[_Made]] = {}

    def find(self, own: Routing, parents: int, name: str | None = None) -> str | None:
        """The file of a routing for that many parents, or None if ONNX cannot express it or it is not wanted."""
        if self.names is not None and (name or own.name) not in self.names:
            return None
        own = routing.get(own, iterations=MOST) if own.iterates else own
        made = self.made.setdefault(own, [])
        fitting = [each for each in made if each.parents in (None, parents)]
        if not fitting and (not made or made[0].file):
            made.append(self._make(own, parents, name or own.name))
            fitting = made[-1:]
        return (fitting[0].file or None) if fitting else None

    def _make(self, own: Routing, parents: int, name: str) -> _Made:
        votes = torch.randn(1, 7, parents, 5, generator=torch.Generator().manual_seed(0)) / 4
        try:
            if own.iterates:  # what ONNX cannot express shows in two iterations of one size, in a tenth of the time
                graph(Steps(routing.get(own, iterations=2)), {"votes": votes}, TRACE)
            content = graph(Steps(own), {"votes": votes}, TRACE, {"votes": (1, 2, 3)})
        except ValueError as error:
            self.say(f"{name} routing is left out: {error}")
            return _Made("", None)
        only = _fixed_size(content, axis=2)
        file = f"routing-{sum(map(len, self.made.values()))}-{name}.onnx"
        self.write(file, content)
        return _Made(file, only)


def _fixed_size(content: bytes, axis: int) -> int | None:
    """The size of an axis of the first input, if the graph fixes it."""
    import onnx

    dim = onnx.load_model_from_string(content).graph.input[0].type.tensor_type.shape.dim[axis]
    size = dim.dim_param or str(dim.dim_value)  # the converter writes either
    return int(size) if size.isdigit() else None


def variants(model: Model, graphs: RoutingGraphs) -> dict[str, dict[str, Any]]:
    """File and own number of iterations of the routings that the class capsules can be given, by name; its own, too, if
    it iterates.

    Only those for which the votes are all that is needed: a network with learned tensors in its routing, or with
    several layers of capsules, would need another graph for each.
    """
    own = model.class_routing
    if own is None or model.grid is None:
        return {}
    names = [name for name in replacements(model) if name != own.name] + [own.name] * own.iterates
    found: dict[str, dict[str, Any]] = {}
    with torch.no_grad(), kernels.using("plain"):
        images = model.example_inputs(1)
        votes = _trace(model, images).votes
        for name in names:
            other = reroute(model, name, MOST if routing.get(name).iterates else None)
            chosen = other.class_routing
            assert chosen is not None
            expected, alone = _trace(other, images), chosen(votes, trace=True).trace
            assert alone is not None
            if torch.allclose(expected.activations, alone.activations, atol=EQUAL):
                file = graphs.find(chosen, votes.shape[2], name)
                usual = own if name == own.name else routing.get(name)
                found |= {name: {"file": file, "iterations": getattr(usual, "iterations", None)}} if file else {}
    return found


def _trace(model: Model, images: Tensor) -> Trace:
    trace = model(images, trace=True).trace
    assert trace is not None
    return trace
