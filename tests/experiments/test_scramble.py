"""``scramble``: moved quarters and scores, on cases where the answer is known."""

import numpy as np
import pytest
import torch

from capsnet.experiments import Lab, Measure, Report, scramble
from capsnet.experiments._scramble import (
    DERANGEMENTS,
    answers,
    auc_measure,
    log_odds,
    roc,
    scramble_quarters,
    separation,
    summarise,
)
from capsnet.experiments.scramble import CNN, FAMILIES, NETS, PLAIN
from capsnet.metrics import auc
from capsnet.models import create_model


def quarters(image: np.ndarray) -> list[float]:
    """The values of a picture whose quarters are of one value each."""
    h, w = image.shape[0] // 2, image.shape[1] // 2
    blocks = [image[y : y + h, x : x + w] for y in (0, h) for x in (0, w)]
    assert all((block == block[0, 0]).all() for block in blocks)
    return [float(block[0, 0]) for block in blocks]


def test_scramble_quarters_gives_every_derangement() -> None:
    image = np.kron(np.array([[0.0, 1.0], [2.0, 3.0]]), np.ones((3, 2)))  # 6 x 4, quarters 3 x 2
    images = torch.tensor(image)[None, None].repeat(200, 1, 1, 1)
    moved = scramble_quarters(images, np.arange(200))[:, 0].numpy()
    seen = {tuple(quarters(one)) for one in moved}
    assert seen == {tuple(map(float, way)) for way in DERANGEMENTS}
    assert len(seen) == 9  # the number of derangements of four


def test_scramble_quarters_keeps_pixels_and_orientation() -> None:
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    moved = scramble_quarters(image, np.array([5]))[0, 0]
    blocks = {tuple(moved[y : y + 2, x : x + 2].flatten().tolist()) for y in (0, 2) for x in (0, 2)}
    assert blocks == {(0, 1, 4, 5), (2, 3, 6, 7), (8, 9, 12, 13), (10, 11, 14, 15)}


def test_scramble_quarters_is_keyed_by_example() -> None:
    images = torch.rand(30, 1, 4, 4)
    together = scramble_quarters(images, np.arange(30))
    alone = torch.cat([scramble_quarters(images[n : n + 1], np.array([n])) for n in range(30)])
    torch.testing.assert_close(together, alone, rtol=0, atol=0)


def test_scramble_quarters_refuses_odd_sizes() -> None:
    with pytest.raises(ValueError, match="5 x 4"):
        scramble_quarters(torch.zeros(1, 1, 5, 4), np.array([0]))


def test_log_odds_order_probabilities_that_round_to_one() -> None:
    logits = torch.tensor([[0.0, np.log(3.0)], [0.0, 60.0], [0.0, 80.0]])
    odds = log_odds(logits)
    assert odds[0].item() == pytest.approx(np.log(3), abs=1e-6)  # p = 3/4
    assert (logits.softmax(dim=1).amax(dim=1)[1:] == 1).all()
    assert odds[2] > odds[1]


def test_roc_matches_a_case_by_hand() -> None:
    intact, scrambled = [0.9, 0.8, 0.5], [0.8, 0.1]
    false, true = roc(intact, scrambled)
    np.testing.assert_allclose(false, [0, 0, 0.5, 0.5, 1])
    np.testing.assert_allclose(true, [0, 1 / 3, 2 / 3, 1, 1])
    assert separation(intact, scrambled) == pytest.approx((2 + 1.5 + 1) / 6)  # pairs won, a tie counting half
    area = float((np.diff(false) * (true[1:] + true[:-1]) / 2).sum())
    assert area == pytest.approx(auc([*intact, *scrambled], [1, 1, 1, 0, 0]))


def test_summary_counts_what_passes_at_the_intact_threshold() -> None:
    intact, scrambled = [float(n) for n in range(1, 21)], [0.0, 1.5, 2.0, 30.0] * 5  # 19 of 20 are 2 or more
    both = [{"label": [0] * 20, "score": rank, "rank": rank} for rank in (intact, scrambled)]
    assert summarise(both[0], both[1], [0] * 20)["passing at 95"] == 0.5


def test_summary_counts_the_threshold_as_present() -> None:
    intact = {"label": [0, 1, 1, 0], "score": [0.9, 0.9, 0.4, 0.9], "rank": [4, 3, 2, 3]}
    scrambled = {"label": [0, 0, 1, 1], "score": [0.5, 0.7, 0.2, 0.1], "rank": [1, 1, 1, 1]}
    found = summarise(intact, scrambled, [0, 1, 1, 1])
    assert found["right"] == 0.75
    assert (found["intact"], found["scrambled"], found["own class"]) == (0.75, 0.5, 0.25)
    assert (found["auc"], found["auc of drawing"]) == (1.0, None)
    drawn = {"drawing": [-1.0, -2.0, -3.0, -4.0]}
    worse = {"drawing": [-5.0, -6.0, -7.0, -8.0]}  # a larger error means: not what it looks like
    assert summarise(intact | drawn, scrambled | worse, [0, 1, 1, 1])["auc of drawing"] == 1.0


def test_answers_of_a_plain_network_have_its_largest_logit() -> None:
    torch.manual_seed(0)
    model, images = create_model("cnn-small", widths=(8,)).eval(), torch.rand(3, 1, 28, 28)
    found = answers(model, images)
    logits = model(images).logits
    assert logits is not None
    torch.testing.assert_close(torch.tensor(found["logit"]).float(), logits.amax(dim=1))
    assert "drawing" not in found
    lower = found | {"logit": [value - 100 for value in found["logit"]]}
    assert summarise(found, lower, [0, 1, 2])["auc of logit"] == 1.0
    assert summarise(found, lower, [0, 1, 2])["auc"] == 0.5


def test_answers_of_capsules_have_no_logit() -> None:
    found = answers(create_model("capsnet-small", conv_channels=8, primary_types=2).eval(), torch.rand(2, 1, 28, 28))
    assert set(found) == {"label", "score", "rank", "drawing"}


def test_auc_measure_has_the_published_interval() -> None:
    low, high = auc_measure("x", [0.5], 100).interval or (0, 0)
    assert (0.5 - low) / 1.96 == pytest.approx(0.0409, abs=1e-4)  # close to sqrt((2n + 1) / 12n^2) of pure chance
    assert auc_measure("x", [1.0], 50).interval == (1.0, 1.0)
    assert high - 0.5 == pytest.approx(0.5 - low)


def report(shares: dict[str, float], intact: float = 0.95) -> Report:
    """The raw numbers of networks that accept such shares of 1,000 scrambled pictures."""
    summaries = {net: [{"scrambled": share, "intact": intact, "n": 1000}] for net, share in shares.items()}
    return Report(raw={f"{f}: {net}": {"measured": runs} for f in FAMILIES for net, runs in summaries.items()})


CASES = [
    (0.2, 0.9, 0.95, "is lower than that of the CNN", "holds"),
    (0.7, 0.9, 0.95, "is lower than that of the CNN", "does not hold"),
    (0.1, 0.4, 0.95, "is lower than that of the CNN", "does not hold"),
    (0.9, 0.2, 0.95, "is higher than that of the CNN", "does not hold"),
    (0.5, 0.5, 0.95, "no difference that 1,000 examples can show", "undecided"),
    (0.2, 0.9, 0.3, "is lower than that of the CNN", "does not hold"),  # it rejects intact pictures, too
]


@pytest.mark.parametrize(("caps", "cnn", "intact", "words", "verdict"), CASES)
@pytest.mark.parametrize("net", [net for net in NETS if net != CNN])
def test_findings_and_claims_are_true_either_way(
    net: str, caps: float, cnn: float, intact: float, words: str, verdict: str
) -> None:
    found = report({PLAIN: 0.5, CNN: cnn} | {net: caps}, intact)
    claims = {claim.text: claim for claim in scramble.claims(found)}
    claim = claims[f"{NETS[net].kind} reject scrambled houses, boats and faces, a CNN accepts them"]
    assert claim.verdict == verdict
    assert ("Of the intact pictures" in claim.finding) == (intact < 0.5)
    scores: dict[str, dict[str, Measure]] = {
        name: scramble.read_shares(found, "shapes", name) | {"auc": auc_measure("x", [0.7], 1000)}
        for name in (PLAIN, CNN, net)
    }
    scores[net] |= {"auc": auc_measure("x", [0.8], 1000), "drawing": auc_measure("x", [0.6], 1000)}
    sentence = next(one for one in scramble.findings("shapes", scores) if f"the {net} rejects" in one)
    assert words in sentence
    assert f"intact ones, the CNN accepts most scrambled ones) {scramble.WORDS[verdict]}." in sentence
    assert f"the AUC of the {net}'s {NETS[net].score} is higher than that of the CNN's probability" in sentence
    assert ("is higher than that of the CapsNet's length" in sentence) == (net != PLAIN)
    assert f"the AUC of its drawing is lower than that of its {NETS[net].score}: 0.600 against 0.800" in sentence


def test_claims_of_a_report_without_some_networks_are_decided() -> None:
    assert len(scramble.claims(report({PLAIN: 0.2, CNN: 0.9}))) == len(FAMILIES)
    assert len(scramble.claims(report(dict.fromkeys(NETS, 0.2)))) == len(FAMILIES) * (len(NETS) - 1)


@pytest.mark.parametrize("budget", ["smoke", "quick", "day", "paper"])
def test_networks_differ_in_their_routing_alone(budget: str) -> None:
    lab = Lab("scramble", budget, 1, "unused")  # type: ignore[arg-type]
    plain = scramble.config(lab, "shapes", PLAIN, 0)
    for name, net in NETS.items():
        if net.routing is None:
            continue
        one = scramble.config(lab, "shapes", name, 0)
        assert one.model == plain.model
        assert one.decoder
        assert (one.epochs, one.data, one.lr) == (plain.epochs, plain.data, plain.lr)
        if budget in ("smoke", "day"):  # the others are larger, and built the same way
            model = create_model(one.model, **one.create_options())
            assert model.class_routing is not None
            assert model.class_routing.name == net.routing
            assert not model.class_routing.presence_is_length
            assert model.draws
