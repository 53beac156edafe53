"""Complex, decoupled, rotating and oscillating layers against their equations; bad sizes, of pathways too."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from capsnet.layers.complex import ComplexBatchNorm2d, ComplexConv2d, ComplexLinear, CReLU, ModReLU, ZReLU, magnitude
from capsnet.layers.decoupled import ANGLES, LENGTHS, DecoupledConv2d
from capsnet.layers.oscillating import KuramotoLayer, Readout, SelfAttention2d
from capsnet.layers.pathways import PathwayLayer
from capsnet.layers.rotating import RotatingConv2d, RotatingConvTranspose2d, RotatingLinear, add_rotation
from tests.reference import complex_numbers
from tests.reference import synchrony as reference


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def to_complex(x: Tensor) -> Tensor:
    real, imaginary = x.chunk(2, dim=1)
    return torch.complex(real, imaginary)


def test_complex_convolution_equals_torch_complex_convolution() -> None:
    layer = ComplexConv2d(3, 4, 3, stride=2, padding=1, dtype=torch.float64)
    nn.init.normal_(layer.bias)  # type: ignore[arg-type]
    x = normal(0, 2, 6, 7, 8)
    weight = torch.complex(layer.real, layer.imaginary)
    assert layer.bias is not None
    bias = to_complex(layer.bias[None])[0]
    expected = nn.functional.conv2d(to_complex(x), weight, bias, 2, 1)
    torch.testing.assert_close(to_complex(layer(x)), expected)


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 1), (1, 2)])
def test_complex_convolution_equals_loop_over_positions(stride: int, padding: int) -> None:
    layer = ComplexConv2d(2, 3, 3, stride, padding, dtype=torch.float64).requires_grad_(False)
    assert layer.bias is not None
    nn.init.normal_(layer.bias)
    x = normal(0, 2, 4, 5, 4)
    weights = layer.real, layer.imaginary, layer.bias
    expected = torch.stack([complex_numbers.convolution(one, *weights, stride, padding) for one in x])
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)


def test_complex_linear_equals_torch_complex_linear() -> None:
    layer = ComplexLinear(5, 3, dtype=torch.float64)
    x = normal(0, 4, 10)
    expected = to_complex(x) @ torch.complex(layer.real, layer.imaginary).T
    torch.testing.assert_close(to_complex(layer(x)), expected)


def test_complex_weights_have_the_variance_of_he() -> None:
    torch.manual_seed(0)
    layer = ComplexConv2d(32, 64, 3)
    square = (layer.real.square() + layer.imaginary.square()).mean().item()
    assert square == pytest.approx(2 / (32 * 9), rel=0.03)
    assert abs(layer.real.mean().item()) < 1e-3


def test_complex_batch_norm_equals_loop_over_points() -> None:
    layer = ComplexBatchNorm2d(2, dtype=torch.float64)
    nn.init.normal_(layer.gain)
    nn.init.normal_(layer.shift)
    x = torch.einsum("oc,bchw->bohw", normal(1, 4, 4), normal(0, 3, 4, 2, 4)) + 3
    expected = complex_numbers.batch_norm(x, layer.gain.detach(), layer.shift.detach(), layer.eps)
    torch.testing.assert_close(layer(x).detach(), expected, rtol=0, atol=1e-10)


def test_complex_batch_norm_whitens() -> None:
    layer = ComplexBatchNorm2d(3, dtype=torch.float64)
    mix = normal(1, 6, 6)
    x = torch.einsum("oc,bchw->bohw", mix, normal(0, 16, 6, 9, 9)) + 3
    z = to_complex(layer(x)).movedim(1, 0).flatten(1)  # (C, N)
    assert z.mean(dim=1).abs().max() < 1e-9
    torch.testing.assert_close(z.abs().square().mean(dim=1), torch.ones(3, dtype=torch.float64), rtol=1e-4, atol=0)
    assert (z * z).mean(dim=1).abs().max() < 1e-4, "no direction of the plane is preferred"


def test_complex_batch_norm_evaluates_with_running_statistics() -> None:
    layer = ComplexBatchNorm2d(2, momentum=1.0, dtype=torch.float64)
    x = 2 * normal(0, 8, 4, 5, 5) + 1
    trained = layer(x)
    torch.testing.assert_close(layer.eval()(x), trained)
    torch.testing.assert_close(layer(x[:1]), trained[:1])


def test_activations_follow_their_definitions() -> None:
    x = normal(0, 3, 4, 5)
    z = to_complex(x)
    relu = ModReLU(2, dtype=torch.float64)
    nn.init.constant_(relu.bias, -0.5)
    torch.testing.assert_close(to_complex(relu(x)), torch.relu(z.abs() - 0.5) * torch.exp(1j * z.angle()))
    torch.testing.assert_close(to_complex(ZReLU()(x)), torch.where((z.real > 0) & (z.imag > 0), z, 0))
    torch.testing.assert_close(CReLU()(x), x.relu())
    torch.testing.assert_close(magnitude(x), z.abs())


def test_activations_equal_loop_over_numbers() -> None:
    """Also at zero, on the axes, and where the bias shortens a number to zero."""
    x = normal(0, 2, 4, 9)
    x[0, :, :3] = torch.tensor([[0.0, 0, 1], [0, 0, 1], [0, 1, 0], [0, 1, 0]])  # 0, i, 1 in both channels
    relu, bias = ModReLU(2, dtype=torch.float64).requires_grad_(False), [-0.75, 0.5]
    relu.bias.copy_(torch.tensor(bias))
    for layer, expected in (
        (relu, complex_numbers.mod_relu(x, bias)),
        (ZReLU(), complex_numbers.z_relu(x)),
        (CReLU(), complex_numbers.c_relu(x)),
    ):
        torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("function", [magnitude, ModReLU(2), ZReLU(), CReLU()])
def test_gradients_at_zero_are_finite(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.zeros(2, 4, requires_grad=True)
    function(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_linear_cosine_is_a_convolution_with_unit_filters() -> None:
    layer = DecoupledConv2d(3, 5, 3, 2, 1, h="linear", g="cosine", dtype=torch.float64)
    x = normal(0, 2, 3, 9, 9)
    filters = layer.weight / layer.weight.flatten(1).norm(dim=1)[:, None, None, None]
    expected = nn.functional.conv2d(x, filters, None, 2, 1)
    torch.testing.assert_close(layer(x), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("h", LENGTHS)
@pytest.mark.parametrize("g", ANGLES)
def test_decoupled_convolution_equals_loop_over_patches(h: str, g: str) -> None:
    layer = DecoupledConv2d(2, 3, 3, padding=0, h=h, g=g, dtype=torch.float64).eval()  # type: ignore[arg-type]
    nn.init.constant_(layer.mean_length, 2.5)
    nn.init.uniform_(layer.radius, 0.5, 1.5)
    x, layer = normal(0, 1, 2, 5, 4), layer.requires_grad_(False)
    rho = ((layer.radius.square() + 1e-4) * 2.5).tolist()
    expected = reference.decoupled_convolution(x[0], layer.weight, rho, h, g)
    torch.testing.assert_close(layer(x)[0], expected, rtol=0, atol=1e-6)


def test_bounded_lengths_bound_the_output() -> None:
    for h in ("sphere", "ball", "tanh"):
        layer = DecoupledConv2d(2, 3, 3, h=h, dtype=torch.float64).eval()
        assert layer(1e3 * normal(0, 1, 2, 5, 5)).abs().max() <= 1 + 1e-9


def rotation(n: int) -> Tensor:
    q, r = torch.linalg.qr(normal(7, n, n))
    return q * r.diagonal().sign()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (RotatingConv2d(2, 3, 3, 2, 1, n=4, dtype=torch.float64), (2, 4, 5)),
        (RotatingConvTranspose2d(2, 3, 3, 2, 1, 1, n=2, dtype=torch.float64), (2, 2, 3)),
        (RotatingLinear(5, 4, n=3, dtype=torch.float64), (5,)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_rotating_layer_equals_loop_over_units(layer: nn.Module, shape: tuple[int, ...]) -> None:
    layer = layer.eval().requires_grad_(False)
    assert isinstance(layer.bias, Tensor)
    assert isinstance(layer.layer, nn.Module)
    assert isinstance(layer.norm, nn.Module)
    norm = layer.norm
    for name, tensor in norm.state_dict().items():
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, -0.5 if name == "bias" else 0.5, 1.5)
    size, n = math.prod(shape), len(layer.bias)
    columns = layer.layer(torch.eye(size, dtype=torch.float64).reshape(size, *shape))  # (I, C', H', W')
    result = columns.shape[1:]
    z = normal(0, n, *shape)
    expected = reference.rotating(
        z.flatten(1),
        columns.flatten(1).T,
        layer.bias.expand(n, *result).flatten(1),
        lambda lengths: norm(lengths.reshape(1, *result)).flatten(),
    )
    torch.testing.assert_close(layer(z[None])[0].flatten(1), expected, rtol=0, atol=1e-12)


def test_rotating_layer_without_bias_commutes_with_rotations() -> None:
    layer = RotatingConv2d(2, 3, 3, n=4, dtype=torch.float64).eval()
    nn.init.zeros_(layer.bias)
    z, turn = normal(0, 2, 4, 2, 6, 6), rotation(4)
    turned = torch.einsum("mn,bnchw->bmchw", turn, z)
    torch.testing.assert_close(layer(turned), torch.einsum("mn,bnchw->bmchw", turn, layer(z)))


def test_rotating_layers_have_the_shapes_of_plain_ones() -> None:
    z = add_rotation(torch.rand(2, 3, 8, 8), 5)
    assert (z[:, 1:] == 0).all()
    small = RotatingConv2d(3, 4, 3, 2, 1, n=5)(z)
    assert small.shape == (2, 5, 4, 4, 4)
    assert RotatingConvTranspose2d(4, 3, 3, 2, 1, 1, n=5)(small).shape == (2, 5, 3, 8, 8)
    assert RotatingLinear(64, 7, n=5)(small.flatten(2)).shape == (2, 5, 7)


@pytest.mark.parametrize("coupling", ["conv", "attention"])
def test_oscillators_stay_on_the_sphere_and_repeat_in_evaluation(coupling: str) -> None:
    torch.manual_seed(0)
    layer = KuramotoLayer(3, 4, coupling=coupling, heads=2, frequencies=True).eval()  # type: ignore[arg-type]
    c = torch.randn(2, 3, 4, 5, 6)
    first, second = layer(c, trace=True), layer(c)
    assert first.steps is not None
    assert first.steps.shape == (8, 2, 3, 4, 5, 6)
    assert (first.steps.norm(dim=3) - 1).abs().max() < 1e-6
    assert torch.equal(first.x, second.x)
    assert not torch.equal(layer.train()(c).x, layer(c).x), "random starts in training"


def test_attention_on_a_cpu_is_exact_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel for CPUs is slower in bfloat16. The result is that of the plain formula."""
    torch.manual_seed(0)
    layer = SelfAttention2d(8, 2)
    x = torch.randn(2, 8, 3, 4)
    attend, seen = nn.functional.scaled_dot_product_attention, []
    monkeypatch.setattr(
        nn.functional, "scaled_dot_product_attention", lambda *qkv: (seen.append(qkv[0].dtype), attend(*qkv))[1]
    )
    with torch.autocast("cpu", torch.bfloat16):
        rounded = layer(x)
    assert seen == [torch.float32]
    query, key, value = layer.project(x).flatten(2).unflatten(1, (3, 2, 4)).unbind(1)  # (B, heads, d, N)
    weights = (query.transpose(2, 3) @ key / 2).softmax(dim=-1)  # (B, heads, N, N)
    expected = layer.join((value @ weights.transpose(2, 3)).flatten(1, 2).unflatten(2, (3, 4)))
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(rounded.float(), expected, atol=0.02, rtol=0.02)


@pytest.mark.parametrize(("gamma", "stimulus"), [(0.2, 1.0), (1.0, 0.0)])
def test_energy_never_rises_with_symmetric_coupling(gamma: float, stimulus: float) -> None:
    """|J| is 0.9; with a stimulus, which pulls too, steps are smaller (see ``oscillators.energy``)."""
    torch.manual_seed(0)
    layer = KuramotoLayer(3, 3, symmetric=True, steps=60, gamma=gamma, dtype=torch.float64).eval()
    assert layer.conv is not None
    with torch.no_grad():
        eye = torch.eye(3 * 3 * 5 * 5, dtype=torch.float64).reshape(-1, 3, 3, 5, 5)
        matrix = layer.couple(eye).flatten(1)
        torch.testing.assert_close(matrix, matrix.T, msg="the coupling is symmetric")
        layer.conv.weight *= 0.9 / torch.linalg.matrix_norm(matrix, 2)
    energy = layer(stimulus * normal(0, 2, 3, 3, 5, 5), trace=True).energy
    assert energy is not None
    assert (energy[1:] <= energy[:-1] + 1e-9).all()
    assert (energy[-1] < energy[0]).all()


def test_layer_equals_loop_over_oscillators() -> None:
    """Three steps, with the coupling as an explicit matrix."""
    torch.manual_seed(0)
    layer = KuramotoLayer(2, 3, frequencies=True, steps=3, gamma=0.7, dtype=torch.float64).eval().requires_grad_(False)
    shape = C, n, H, W = 2, 3, 3, 4
    c, x = normal(0, 1, *shape), layer.start(torch.zeros(1, *shape, dtype=torch.float64))[0]
    assert layer.rates is not None
    basis = torch.eye(C * n * H * W, dtype=torch.float64).reshape(-1, *shape)
    offset = layer.couple(torch.zeros(1, *shape, dtype=torch.float64))[0]
    matrix = (layer.couple(basis) - offset).flatten(1).T
    stimulus = layer.norm(c.flatten(1, 2)).reshape(shape)

    def couple(x: Tensor) -> Tensor:
        return (matrix @ x.flatten()).reshape(shape) + offset

    expected = reference.akorn_steps(x, stimulus, couple, layer.rates, 0.7, 3)
    torch.testing.assert_close(layer(c).x[0], expected, rtol=0, atol=1e-12)


def test_readout_does_not_depend_on_the_common_phase() -> None:
    readout = Readout(3, 5, 4).double()
    assert readout(normal(0, 2, 3, 4, 6, 6)).shape == (2, 5, 6, 6)
    weight = torch.einsum("oi,mn->omin", normal(1, 5, 3), torch.eye(4, dtype=torch.float64)).reshape(20, 12, 1, 1)
    with torch.no_grad():
        readout.conv.weight.copy_(weight)  # the same for all components
    x, turn = normal(0, 2, 3, 4, 6, 6), rotation(4)
    torch.testing.assert_close(readout(torch.einsum("mn,bcnhw->bcmhw", turn, x)), readout(x))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DecoupledConv2d(1, 1, 3, h="round"), "function h of the length"),  # type: ignore[arg-type]
        (lambda: DecoupledConv2d(1, 1, 3, g="sharp"), "function g of the angle"),  # type: ignore[arg-type]
        (lambda: KuramotoLayer(2, n=1), "at least 2 components"),
        (lambda: KuramotoLayer(2, n="a"), "n, .*, must be a whole number, got 'a'"),  # type: ignore[arg-type]
        (lambda: KuramotoLayer(2, n=2.5), "n, .*, must be a whole number, got 2.5"),  # type: ignore[arg-type]
        (lambda: KuramotoLayer("a"), "channels must be a whole number, got 'a'"),  # type: ignore[arg-type]
        (lambda: KuramotoLayer(2, steps=1.5), "steps must be a whole number, got 1.5"),  # type: ignore[arg-type]
        (lambda: KuramotoLayer(0), "channels must be at least 1, got 0"),
        (lambda: KuramotoLayer(2, gamma=0), "gamma must be positive"),
        (lambda: KuramotoLayer(2, gamma="a"), "gamma must be positive and finite, got 'a'"),  # type: ignore[arg-type]
        (lambda: KuramotoLayer(2, steps=0), "steps must be at least 1"),
        (lambda: KuramotoLayer(2, kernel_size=4), "kernel_size must be odd"),
        (lambda: KuramotoLayer(2, kernel_size=-1), "kernel_size must be odd and at least 1, got -1"),
        (lambda: KuramotoLayer(2, kernel_size="a"), "kernel_size must be odd and at least 1, got 'a'"),  # type: ignore[arg-type]
        (lambda: KuramotoLayer(2, heads="a"), "heads must be a whole number, got 'a'"),  # type: ignore[arg-type]
        (lambda: KuramotoLayer(2, coupling="all"), "coupling must be"),  # type: ignore[arg-type]
        (lambda: KuramotoLayer(2, coupling="attention", symmetric=True), "cannot be symmetric"),
        (lambda: KuramotoLayer(3, n=3, coupling="attention", heads=2), "cannot divide"),
        (lambda: Readout(2, 2, n=0), "at least 2 components, got n = 0"),
        (lambda: Readout(2, 2, n=1), "at least 2 components, got n = 1"),
        (lambda: Readout(2, 0), "outputs must be at least 1, got 0"),
        (lambda: RotatingLinear(2, 2, n=1), "at least 2 components"),
        (lambda: RotatingConv2d(2, 2, 3, n=-1), "at least 2 components, got n = -1"),
        (lambda: RotatingConvTranspose2d(2, 2, 3, n=0), "at least 2 components, got n = 0"),
        (lambda: RotatingConv2d(0, 2, 3), "inputs must be at least 1, got 0"),
        (lambda: ComplexConv2d(2, -3, 3), "outputs must be at least 1, got -3"),
        (lambda: ComplexConv2d(0, 3, 3), "inputs must be at least 1, got 0"),
        (lambda: ComplexConv2d(2, 3, 0), "kernel_size must be at least 1, got 0"),
        (lambda: ComplexLinear(0, 3), "inputs must be at least 1, got 0"),
        (lambda: ComplexLinear(2, -3), "outputs must be at least 1, got -3"),
        (lambda: ComplexBatchNorm2d(-1), "channels must be at least 1, got -1"),
        (lambda: ComplexBatchNorm2d(0), "channels must be at least 1, got 0"),
        (lambda: ComplexBatchNorm2d(2, eps=-1), "eps must be positive and finite, got -1"),
        (lambda: ModReLU(-1), "channels must be at least 1, got -1"),
        (lambda: DecoupledConv2d(2, -3, 3), "outputs must be at least 1, got -3"),
        (lambda: DecoupledConv2d(0, 3, 3), "inputs must be at least 1, got 0"),
        (lambda: DecoupledConv2d(2, 3, 0), "kernel_size must be at least 1, got 0"),
        (lambda: DecoupledConv2d(2, 3, 3, stride=0), "stride must be at least 1, got 0"),
        (lambda: DecoupledConv2d(2, 3, 3, momentum=math.nan), "momentum must be from 0 to 1, got nan"),
        (lambda: PathwayLayer(2, -3, 4), "outputs must be at least 1, got -3"),
        (lambda: PathwayLayer(0, 3, 4), "inputs must be at least 1, got 0"),
        (lambda: PathwayLayer(2, 3, 0), "modules must be at least 1, got 0"),
        (lambda: add_rotation(torch.rand(1, 1, 2, 2), 1), "at least 2 components"),
        (lambda: magnitude(torch.rand(2, 3)), "even number of channels"),
        (lambda: KuramotoLayer(2, 3)(torch.rand(1, 2, 3, 4, 5), torch.rand(1, 2, 3, 4, 4)), r"got \(1, 2, 3, 4, 4\)"),
    ],
)
def test_bad_arguments_are_refused(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(ValueError, match=message):
        build()


def test_training_starts_in_all_directions_and_anew() -> None:
    layer, like = KuramotoLayer(2, 3).train(), torch.empty(4, 2, 3, 20, 20)
    first, second = layer.start(like), layer.start(like)
    assert not torch.equal(first, second)
    assert first.mean(dim=(0, 1, 3, 4)).norm() < 0.1
    torch.testing.assert_close(first.norm(dim=2), torch.ones(4, 2, 20, 20))
