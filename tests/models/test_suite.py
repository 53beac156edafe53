"""Every registered model against the one suite."""

from typing import Any

import pytest
import torch

import capsnet
from capsnet.models import Model, model_options
from tests.models import suite

# the same program at other widths
TWICE = [("matrix-capsnet", "compiles"), ("capsnet", "compiles")]


@pytest.mark.filterwarnings("ignore:var_mean")  # torch warns of the variance of no images at all
@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(name, check, marks=[pytest.mark.slow] * ((name, check) in TWICE))
        for name in capsnet.list_models()
        for check in suite.CHECKS
    ],
)
def test_model_keeps_contract(name: str, check: str) -> None:
    suite.CHECKS[check](name)


@pytest.mark.parametrize("name", capsnet.list_models())
@pytest.mark.parametrize(("C", "size", "J"), [(3, (21, 30), 2), (2, (17, 17), 1)])
def test_model_takes_other_sizes(name: str, C: int, size: tuple[int, int], J: int) -> None:
    texts = suite.build(name).takes_texts
    options = {"image_size": (1, size[1])} if texts else {"image_size": size, "in_channels": C}
    for check in (suite.outputs, suite.loss, suite.decoding, suite.features, suite.trace):
        check(name, num_classes=J, **options)


@pytest.mark.parametrize("name", [name for name in capsnet.list_models() if "routing" in model_options(name)])
def test_model_takes_a_step_with_kuramoto_routing(name: str) -> None:
    """From its initial weights, with the routing that the command line would give it: --routing kuramoto."""
    model = suite.build(name, routing="kuramoto").train()
    routed: dict[str, Any] = model.routed_layers()
    assert {layer.routing.name for layer in routed.values()} == {"kuramoto"}
    images, labels = suite.inputs(model, 4), torch.arange(4) % model.num_classes
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model.loss(model(images, labels), labels, images, step=0).total.backward()
    assert sum(float(p.grad.abs().sum()) for p in model.parameters() if p.grad is not None) > 0
    optimizer.step()
    model.eval()
    assert all(p.isfinite().all() for p in model.parameters())
    assert model.loss(model(images, labels), labels, images).total.isfinite()


def test_suite_checks_optional_parts() -> None:
    """Without a decoder, with separate presence, with other strides: the declarations follow the options."""
    for name in capsnet.list_models():
        if "decoder" in model_options(name):
            suite.outputs(name, decoder=False)
            suite.decoding(name, decoder=False)
        if "squash" in model_options(name):
            suite.trace(name, squash="unit")
            suite.features(name, squash="unit")
    suite.receptive_field("efficient-capsnet", image_size=(40, 40), strides=(1, 2, 1, 2))
    suite.receptive_field("capsnet", image_size=(20, 24), kernel_size=5)
    suite.receptive_field("matrix-capsnet", image_size=(23, 29))
    suite.receptive_field("capsnet-image", image_size=(96, 90), kernel_size=2)


def test_suite_notices_wrong_declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    from capsnet.models import CapsNet, Margins, ReceptiveField

    class Wrong(CapsNet):
        def __init__(self, conv_channels: int = 4) -> None:
            super().__init__(conv_channels=conv_channels, primary_types=2, decoder_widths=(8, 9))
            self.receptive_field = ReceptiveField(17, 1)
            self.pose_dim = 8
            self.grid = (6, 6, 3)
            self.margins = Margins(0.9, 0.2)

        def loss(self, *args, **options):
            result = CapsNet.loss(self, *args, **options)
            return result._replace(total=2 * result.total)

        @property
        def draws(self) -> bool:
            return False

    build = suite.build
    monkeypatch.setattr(suite, "build", lambda name, **options: Wrong() if name == "wrong" else build(name, **options))
    assert issubclass(Wrong, Model)
    for check in (suite.outputs, suite.loss, suite.decoding, suite.features, suite.receptive_field, suite.trace):
        with pytest.raises(BaseException):  # noqa: B017, PT011 - pytest's own failures are no Exception
            check("wrong")
