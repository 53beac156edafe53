"""BatchNorm folded into the next convolution, against convolution, ReLU and BatchNorm one after another."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import capsnet
from capsnet.kernels import Stage, conv_relu_norm, folded_norm, has_bf16, using
from capsnet.kernels._parallel import each
from capsnet.models.efficient import EfficientCapsNet
from tests.kernels._compare import assert_as_good

SHAPES = [  # batch, channels, kernels, strides, size
    (5, (1, 6, 7, 8), (5, 3, 3), (1, 1, 2), (17, 15)),
    (1, (1, 4, 6), (3, 3), (2, 1), (11, 12)),
    (3, (2, 5), (4,), (1,), (9, 7)),
    (33, (1, 32, 64), (5, 3), (1, 2), (14, 13)),
]


def example(shape: tuple, seed: int = 0) -> tuple[list[Tensor], list[Tensor], tuple[int, ...]]:
    """(x, then the parameters), the running statistics, strides."""
    batch, channels, kernels, strides, size = shape
    g = torch.Generator().manual_seed(seed)
    tensors, running = [torch.rand(batch, channels[0], *size, generator=g)], []
    for i, o, kernel, stride in zip(channels, channels[1:], kernels, strides, strict=False):
        tensors += [torch.randn(o, i, kernel, kernel, generator=g) / (i * kernel * kernel) ** 0.5]
        tensors += [torch.randn(o, generator=g) / 4, torch.rand(o, generator=g) + 0.5, torch.randn(o, generator=g)]
        running += [torch.rand(o, generator=g), torch.rand(o, generator=g) + 0.1]
        size = tuple((s - kernel) // stride + 1 for s in size)
    tensors += [torch.randn(channels[-1], 1, *size, generator=g) / 3, torch.randn(channels[-1], generator=g)]
    return tensors, running, strides


def stages_of(parameters: Any, running: Any, strides: tuple[int, ...], training: bool) -> list[Stage]:
    groups = [(*parameters[4 * k : 4 * k + 4], *running[2 * k : 2 * k + 2]) for k in range(len(strides))]
    return [
        Stage(*group, stride=(stride, stride), training=training) for group, stride in zip(groups, strides, strict=True)
    ]


def functions(running: list[Tensor], strides: tuple[int, ...], training: bool) -> tuple:
    def plain(x: Tensor, *parameters: Tensor) -> Tensor:
        own = [t.to(x.dtype) for t in running]
        return folded_norm.plain(x, stages_of(parameters, own, strides, training), *parameters[-2:])

    def fast(x: Tensor, *parameters: Tensor) -> Tensor:
        own = [t.to(x.dtype).clone() for t in running]
        with using("fast"):
            y = conv_relu_norm(x, stages_of(parameters, own, strides, training), *parameters[-2:])
        assert y is not None
        return y

    return fast, plain


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_those_of_the_layers(shape: tuple, training: bool, threads: int) -> None:
    tensors, running, strides = example(shape, seed=1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        fast, plain = functions(running, strides, training)
        assert_as_good(fast, plain, tensors, range(len(tensors)))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("piece", [1, 100])
def test_pieces_of_any_size_give_the_same(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, running, strides = example(SHAPES[0])
    monkeypatch.setattr(folded_norm, "_PIECE", piece)
    fast, plain = functions(running, strides, True)
    assert_as_good(fast, plain, tensors, range(len(tensors)))


@pytest.mark.parametrize("training", [True, False])
def test_first_and_second_derivatives_pass_gradcheck(training: bool) -> None:
    tensors, running, strides = example((2, (1, 3, 2), (3, 3), (1, 2), (8, 7)))
    fast, _ = functions(running, strides, training)
    leaves = [t.double().requires_grad_() for t in tensors]
    assert torch.autograd.gradcheck(fast, leaves)
    assert torch.autograd.gradgradcheck(fast, leaves, fast_mode=True)


def test_each_thread_of_the_pool_computes_alone() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        seen: list[int] = []
        each(range(6), lambda slot, piece: seen.append(torch.get_num_threads()))
        assert seen == [1] * 6
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_running_statistics_are_those_of_batch_norm() -> None:
    tensors, running, strides = example(SHAPES[0])
    both = [[t.clone() for t in running] for _ in range(2)]
    for function, own in zip((folded_norm.plain, conv_relu_norm), both, strict=True):
        with using("fast"):
            function(tensors[0], stages_of(tuple(tensors[1:]), own, strides, True), *tensors[-2:])
    for one, other, first in zip(*both, running, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
        assert not torch.equal(one, first)


def test_constant_map_stays_finite() -> None:
    """Its variance is zero, and its mean large: the sums of squares may not cancel."""
    tensors, running, strides = example(SHAPES[0])
    tensors[1].zero_()
    tensors[2].fill_(300.0)
    fast, plain = functions(running, strides, True)
    torch.testing.assert_close(fast(*tensors), plain(*(t.double() for t in tensors)).float(), rtol=0, atol=1e-3)


def test_strided_input_is_taken_as_it_is() -> None:
    tensors, running, strides = example((4, (2, 5, 3), (3, 3), (1, 1), (9, 9)))
    fast, plain = functions(running, strides, True)
    turned = tensors[0].transpose(2, 3)[::2]
    torch.testing.assert_close(fast(turned, *tensors[1:]), plain(turned, *tensors[1:]), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not has_bf16(), reason="the CPU has no bfloat16 products, and PyTorch refuses its convolution")
def test_autocast_is_as_good_as_that_of_the_layers() -> None:
    tensors, running, strides = example(SHAPES[3])
    fast, plain = functions(running, strides, True)
    leaves = [t.clone().requires_grad_() for t in tensors]

    def run(function, dtype: torch.dtype) -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            inputs = leaves if dtype == torch.bfloat16 else [t.detach().double().requires_grad_() for t in leaves]
            y = function(*inputs)
        return [y.double(), *(g.double() for g in torch.autograd.grad(y.float().sin().sum(), inputs))]

    reference = run(plain, torch.float64)
    for name, r, usual, tested in zip(range(99), reference, run(plain, torch.bfloat16), run(fast, torch.bfloat16)):  # noqa: B905
        assert (tested - r).norm() <= 2 * (usual - r).norm() + 1e-2 * r.norm(), name
    with torch.autocast("cpu", torch.bfloat16):
        assert fast(*tensors).dtype == torch.float32  # squash and routing start from float32


def test_fp16_and_few_images_use_the_layers() -> None:
    tensors, running, strides = example(SHAPES[0])
    stages = stages_of(tuple(tensors[1:]), running, strides, True)
    with using("fast"):
        assert conv_relu_norm(tensors[0], stages, *tensors[-2:]) is not None
        assert conv_relu_norm(tensors[0][:0], stages, *tensors[-2:]) is None
        with torch.autocast("cpu", torch.float16):
            assert conv_relu_norm(tensors[0], stages, *tensors[-2:]) is None
    assert conv_relu_norm(tensors[0], stages, *tensors[-2:]) is None
    many = tensors[0].repeat(12, 1, 1, 1).repeat(4, 1, 1, 1)
    assert conv_relu_norm(many, stages, *tensors[-2:]) is not None
    with using("plain"):
        assert conv_relu_norm(many, stages, *tensors[-2:]) is None


def small() -> capsnet.Model:
    return capsnet.create_model("efficient-capsnet", channels=(4, 6, 6, 16), decoder_widths=(8, 9))


def test_hook_sees_the_normalised_map() -> None:
    model, seen = small().eval(), []
    images = torch.rand(3, 1, 28, 28)
    assert isinstance(model, EfficientCapsNet)
    with using("fast"):
        expected = model(images).lengths
    model.features[5].register_forward_hook(lambda module, inputs, output: seen.append(output))
    with using("fast"):
        torch.testing.assert_close(model(images).lengths, expected, rtol=1e-5, atol=1e-6)
    assert [maps.shape[1:] for maps in seen] == [(6, 22, 22)]


def test_network_trains_as_with_the_layers() -> None:
    """Ten steps: parameters, running statistics and counters agree. In float64, since Adam amplifies rounding."""
    models = [small().double()]
    models.append(copy.deepcopy(models[0]))
    for model, path in zip(models, ("plain", "fast"), strict=True):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        generator = torch.Generator().manual_seed(0)
        for _ in range(10):
            images = torch.rand(8, 1, 28, 28, generator=generator, dtype=torch.float64)
            labels = torch.randint(10, (8,), generator=generator)
            with using(path):  # type: ignore[arg-type]
                loss = model.loss(model(images, labels), labels, images).total
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    one, other = (model.state_dict() for model in models)
    torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-9)


def test_second_derivatives_do_not_update_running_statistics_again() -> None:
    tensors, running, strides = example((2, (1, 3, 2), (3, 3), (1, 2), (8, 7)))
    leaves = [t.clone().requires_grad_() for t in tensors]
    with using("fast"):
        y = conv_relu_norm(leaves[0], stages_of(leaves[1:], running, strides, True), *leaves[-2:])
    assert y is not None
    once = [t.clone() for t in running]
    (slope,) = torch.autograd.grad(y.square().sum(), leaves[0], create_graph=True)
    slope.square().sum().backward()
    for after, before in zip(running, once, strict=True):
        assert torch.equal(after, before)
