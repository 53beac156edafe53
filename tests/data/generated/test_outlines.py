import numpy as np
import pytest
import torch

from capsnet import data
from capsnet.data.generated.outlines import BACKGROUND, OUTLINES, OVERLAP


def test_owners_by_hand() -> None:
    alone = torch.zeros(1, 2, 1, 2, 3)
    alone[0, 0, 0, 0] = torch.tensor([0.9, 0.5, 0.2])
    alone[0, 1, 0, 0] = torch.tensor([0.0, 0.7, 0.8])
    expected = [[1, OVERLAP, 2], [BACKGROUND] * 3]
    assert data.owners(alone)[0].tolist() == expected
    with pytest.raises(ValueError, match="each object alone"):
        data.owners(alone[0])


@pytest.mark.parametrize(("spec", "objects"), [("outlines", 2), ("outlines:objects=3", 3), ("outlines:digit=true", 2)])
def test_picture_is_the_sum_of_its_objects(spec: str, objects: int) -> None:
    batch = data.load(spec, "test").batch(range(40))
    assert batch.sources is not None
    alone = batch.sources.images
    assert alone.shape == (40, objects, 1, 32, 32)
    torch.testing.assert_close(batch.images, alone.sum(dim=1).clamp(max=1))
    assert (alone.flatten(2).amax(dim=2) > 0.5).all()
    owners = data.owners(alone)
    assert set(owners.unique().tolist()) <= {OVERLAP, *range(objects + 1)}
    assert all((owners == k).flatten(1).any(dim=1).float().mean() > 0.95 for k in range(1, objects + 1))


def test_outlines_are_thin_closed_and_not_cut_off() -> None:
    from scipy.ndimage import label

    batch = data.load("outlines:size=24", "test").batch(range(60))
    assert batch.sources is not None
    for alone, kind in zip(batch.sources.images[:, 0, 0], batch.sources.classes[:, 0], strict=True):
        ink = alone.numpy() > 0
        assert ink.any(axis=0).sum() > 7, OUTLINES[int(kind)]
        assert ink[1:-1, 1:-1].sum() == ink.sum()
        assert label(ink, structure=np.ones((3, 3)))[1] == 1  # type: ignore[index]
        assert label(~ink)[1] == 2  # type: ignore[index]  # inside and outside are apart


def test_each_training_epoch_has_new_pictures() -> None:
    train, test = data.load("outlines", "train"), data.load("outlines", "test")
    assert not torch.equal(train.batch([0]).images, train.batch([0], epoch=1).images)
    assert torch.equal(test.batch([0]).images, test.batch([0], epoch=1).images)


def test_wrong_options_are_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="with a digit need a size of at least 32, got 28"):
        data.load("outlines:digit=true,size=28", "test")
    with pytest.raises(ValueError, match="objects"):
        data.load("outlines:objects=5", "test")
    with pytest.raises(ValueError, match=r"objects must lie in 2\.\.4"):
        data.Outlines("test", objects=1)
