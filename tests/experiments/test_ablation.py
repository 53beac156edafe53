"""``ablation``: the networks of its variants, and what is said of them."""

import pytest

from capsnet.experiments import Lab, Measure
from capsnet.experiments.ablation import PAPER, against_text, config, variants
from capsnet.models import create_model


@pytest.mark.parametrize("budget", ["smoke", "quick", "day"])
def test_authors_code_is_as_it_is(budget: str) -> None:
    lab = Lab("ablation", budget, 1, "unused")  # type: ignore[arg-type]
    both = config(lab, "biases, division and loss scale together", 0)
    model = create_model(both.model, **both.create_options())
    types = model.config["primary_types"]
    assert model.config["primary_scale"] == 1 / types
    biases = {name: tensor for name, tensor in model.named_parameters() if name.endswith(".bias")}
    assert "classes.routing_params.bias" in biases
    assert len(biases) == 6  # two convolutions, the class capsules, three layers of the decoder
    assert all((tensor == 0.1).all() for tensor in biases.values())
    text = config(lab, PAPER, 0)
    plain = create_model(text.model, **text.create_options())
    assert (plain.config["bias_start"], plain.config["primary_scale"]) == (None, 1)
    assert len(variants(lab)) == len({str(config(lab, name, 0)) for name in variants(lab)})


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (0.5, "lower error than the text's setting: leaky"),
        (2.0, "higher error than the text's setting: leaky"),
        (1.1, "No variant differs"),
    ],
)
def test_variants_are_compared_by_their_intervals(other: float, words: str) -> None:
    text, leaky = (Measure("", [mean], interval=(mean - 0.2, mean + 0.2)) for mean in (1.0, other))
    assert words in against_text({PAPER: text, "leaky": leaky})
