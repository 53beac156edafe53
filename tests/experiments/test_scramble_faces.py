"""``scramble-faces``: what is done to a face, and what is said of it, on cases where the answer is known."""

import numpy as np
import pytest
import torch

from capsnet.experiments import Lab, Report, scramble_faces
from capsnet.experiments._faces import CLASSES, faces_folder
from capsnet.experiments._few_images import Task
from capsnet.experiments.scramble import CNN, NETS, PLAIN, WORDS
from capsnet.experiments.scramble_faces import (
    DRAWN,
    EVEN,
    KINDS,
    accepted,
    claims,
    findings,
    mixed,
    paired,
    scrambled,
    separated,
)
from capsnet.models import create_model


def test_scrambled_face_has_every_quarter_elsewhere() -> None:
    images = torch.rand(6, 1, 25, 25)
    moved = scrambled(images, np.arange(6))
    assert torch.equal(moved[..., EVEN:, :], images[..., EVEN:, :])
    before, after = (x[..., :EVEN, :EVEN].unfold(2, 12, 12).unfold(3, 12, 12) for x in (images, moved))
    for y in range(2):
        for x in range(2):
            assert not any(torch.equal(before[n, :, y, x], after[n, :, y, x]) for n in range(6))
    assert torch.equal(before.flatten(1).sort().values, after.flatten(1).sort().values)


@pytest.mark.parametrize("count", [4, 5, 20])
def test_mixed_face_has_quarters_of_four_faces_in_their_places(count: int) -> None:
    images = torch.arange(float(count))[:, None, None, None].expand(-1, 1, 25, 25)
    made = mixed(images, np.arange(3, 3 + count))
    for face in made[:, 0]:
        quarters = [face[:12, :12], face[:12, 12:], face[12:, :12], face[12:, 12:]]
        assert all((q == q[0, 0]).all() for q in quarters)
        assert len({float(q[0, 0]) for q in quarters}) == 4
    with pytest.raises(ValueError, match="at least 4 faces, got 3"):
        mixed(images[:3], np.arange(3))


def margins(share: float, n: int = 100) -> list[dict[str, list[float]]]:
    """Margins of which so large a share of the scrambled faces is positive; all others are."""
    return [{kind: [1.0 if kind != "scrambled" or k < share * n else -1.0 for k in range(n)] for kind in KINDS}]


@pytest.mark.parametrize(
    ("caps", "cnn", "words", "verdict"),
    [
        (0.1, 0.9, "face by face fewer: -80.0", "holds"),
        (0.62, 0.9, "face by face fewer: -28.0", "does not hold"),
        (0.9, 0.2, "face by face more: +70.0", "does not hold"),
        (0.5, 0.5, "face by face not shown to be fewer or more: +0.0", "undecided"),
    ],
)
@pytest.mark.parametrize("net", [PLAIN, "EM CapsNet"])
def test_findings_and_claims_are_true_either_way(net: str, caps: float, cnn: float, words: str, verdict: str) -> None:
    found = {PLAIN: margins(caps), CNN: margins(cnn), net: margins(caps)}
    found[net][0] |= {f"{DRAWN}{kind}": [float(kind == "intact")] * 100 for kind in KINDS}
    shown = {name: {kind: accepted(kind, name, found[name]) for kind in KINDS} for name in found}
    areas = {name: separated(name, one) for name, one in found.items()}
    assert areas[net]["drawing"].mean == 1
    assert areas[net]["auc"].mean == pytest.approx(1 - caps / 2)  # a tie counts half
    sentences = findings(shown, areas, found)
    [said] = [one for one in sentences if one.startswith(f"Scrambled faces: the {net} ")]
    assert words in said
    assert f"scrambled ones) {WORDS[verdict]}." in said
    [told] = [one for one in sentences if one.startswith(f"{net}: ")]
    assert f"face by face fewer: {-100 * (1 - caps):+.1f} points" in told  # all mixed ones pass
    assert "the AUC of its drawing is higher than that of its" in sentences[-1]
    report = Report([one for kinds in shown.values() for one in kinds.values()], raw={name: {} for name in found})
    assert {claim.verdict for claim in claims(report) if claim.text.startswith(f"{NETS[net].kind} reject")} == {verdict}


def test_interval_of_a_pair_covers_seeds_that_differ() -> None:
    """One of three seeds differs: three others could all be as it is, or none."""
    ours, theirs = margins(0.7) + margins(1.0) + margins(1.0), 3 * margins(1.0)
    gap = paired(ours, theirs)
    assert gap.values == pytest.approx([-30, 0, 0])
    assert gap.interval is not None
    assert gap.interval[0] < -25
    assert gap.interval[1] == 0
    level = paired(3 * margins(0.9), theirs).interval
    assert level is not None
    assert -18 < level[0] < level[1] < -3


def test_day_trains_the_full_recipe_with_each_routing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scramble_faces, "task", lambda lab: Task("faces", "shapes:kind=wholes,count=20", 0))
    planned = {}
    for name in NETS:
        [planned[name]] = scramble_faces.trainings(Lab("scramble-faces", "day", 1, "unused"), name, 0)
    assert {one.epochs for one in planned.values()} == {60}
    assert {one.model for one in planned.values()} == {"capsnet-image", "cnn-image"}
    for name in (PLAIN, "EM CapsNet", "attention CapsNet"):
        model = create_model("capsnet-image", image_size=(32, 32), **planned[name].create_options())
        assert model.class_routing is not None
        assert model.class_routing.name == (NETS[name].routing or "dynamic")
        assert model.config["width"] == 128


def test_faces_become_a_folder(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("skimage", reason="the faces come with scikit-image")
    monkeypatch.setenv("CAPSNET_CACHE", str(tmp_path))
    folder = faces_folder()
    assert [len(list((folder / name).glob("*.png"))) for name in CLASSES] == [100, 100]
    assert faces_folder() == folder
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_missing_scikit_image_is_one_sentence(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setenv("CAPSNET_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "skimage.data", None)
    with pytest.raises(ValueError, match="pip install scikit-image"):
        faces_folder()
    assert not list(tmp_path.iterdir())
    assert scramble_faces.DIFFERS
