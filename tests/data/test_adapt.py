"""``adapt``: arrays, torch data sets, pairs and Hugging Face data sets as data sets of this package."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset, TensorDataset

import capsnet
from capsnet import data

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 9, 11), dtype=np.uint8)
LABELS = np.arange(6) % 3


class Image_:  # noqa: N801 - the name that matters is given below
    """A feature without anything but its type, as ``datasets.Image``."""


Image_.__name__ = "Image"


class ClassLabel:
    def __init__(self, *names: str) -> None:
        self.names = list(names)


class Columns:
    """What ``adapt`` uses of ``datasets.Dataset`` 5.2: features, column_names, len and rows as dictionaries."""

    def __init__(self, features: dict[str, Any], **columns: Any) -> None:
        self.features, self.columns, self.column_names = features, columns, list(columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: column[index] for name, column in self.columns.items()}


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return zip(PIXELS, LABELS, strict=True)


PICTURES = [Image.fromarray(image) for image in PIXELS]
FEATURES = {"img": Image_(), "id": None, "label": ClassLabel("a", "b", "c")}

SOURCES: dict[str, Any] = {
    "N x H x W": (PIXELS, LABELS),
    "N x H x W x C": (PIXELS[..., None], LABELS),
    "N x C x H x W": (PIXELS[:, None], LABELS),
    "floats": (PIXELS / 255, LABELS),
    "tensors": (torch.from_numpy(PIXELS), torch.from_numpy(LABELS)),
    "list of labels": [PIXELS, LABELS.tolist()],
    "texts": (PIXELS, np.array(["0", "1", "2"])[LABELS]),
    "torch": TensorDataset(torch.from_numpy(PIXELS)[:, None], torch.from_numpy(LABELS)),
    "pairs": list(zip(PIXELS, LABELS.tolist(), strict=True)),
    "pillow": list(zip(PICTURES, LABELS.tolist(), strict=True)),
    "hugging face": Columns({}, image=PICTURES, label=LABELS.tolist()),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_gives_the_same_batches(kind: str) -> None:
    dataset = data.adapt(SOURCES[kind])
    batch = dataset.batch(range(6))
    assert torch.allclose(batch.images, torch.from_numpy(PIXELS)[:, None] / 255, atol=1e-6)
    assert batch.targets.tolist() == LABELS.tolist()
    assert dataset.class_names == ("0", "1", "2")


def test_own_data_sets_stay_as_they_are() -> None:
    own = data.ArrayDataset(PIXELS[:, None], LABELS)
    assert data.adapt(own) is own
    with pytest.raises(ValueError, match="has the classes 0, 1, 2: leave out class_names"):
        data.adapt(own, ("x", "y", "z"))


def test_channels_are_found_by_their_number() -> None:
    colour = np.zeros((4, 3, 20, 20), np.uint8)
    for images in (colour, colour.transpose(0, 2, 3, 1)):
        assert data.adapt((images, [0, 1, 0, 1])).channels == 3
    assert data.adapt((np.zeros((4, 2, 20, 20)), [0, 1, 0, 1])).channels == 2  # the shorter axis
    assert data.adapt((np.zeros((4, 3, 20, 3)), [0, 1, 0, 1])).image_size == (20, 3)


def test_names_come_from_the_source_or_are_given() -> None:
    columns = Columns(FEATURES, img=PICTURES, id=list(range(6)), label=LABELS.tolist())
    assert data.adapt(columns).class_names == ("a", "b", "c")
    torchvision = TensorDataset(torch.from_numpy(PIXELS), torch.from_numpy(LABELS))
    torchvision.classes = ["cat", "dog", "cow", "bee"]  # type: ignore[attr-defined]
    assert data.adapt(torchvision).class_names == ("cat", "dog", "cow", "bee")
    dataset = data.adapt((PIXELS, ["dog", "cat"] * 3), ("dog", "cat"))
    assert (dataset.class_names, dataset.batch([0, 1]).targets.tolist()) == (("dog", "cat"), [0, 1])
    assert data.adapt((PIXELS, LABELS > 0)).class_names == ("False", "True")


def test_multi_hot_labels_are_kept() -> None:
    assert data.adapt((PIXELS, np.eye(3)[LABELS])).batch([0]).targets.tolist() == [[1, 0, 0]]


def test_pictures_of_many_sizes_are_resized_on_request(tmp_path: Path) -> None:
    PICTURES[0].save(tmp_path / "grey.png")
    wide = Image.new("L", (40, 20), 255)
    pairs = [(tmp_path / "grey.png", "a"), (wide, "b"), ({"bytes": (tmp_path / "grey.png").read_bytes()}, "a")]
    with pytest.raises(ValueError, match=r"one size, got 1 x 9 x 11 and 1 x 20 x 40: adapt\(source, size=64\)"):
        data.adapt(pairs)
    grey = data.adapt(pairs, size=16)
    assert (grey.image_size, grey.channels, len(grey)) == ((16, 16), 1, 3)
    assert isinstance(grey.preprocess, data.Preprocess)
    assert torch.allclose(grey.preprocess(wide), grey.batch([1]).images[0], atol=1 / 255)
    colour = data.adapt([*pairs, (Image.new("RGB", (30, 30), "red"), "b")], size=(12, 20))
    assert (colour.image_size, colour.channels) == ((12, 20), 3)
    assert data.adapt([(wide, 0), (Image.new("RGBA", (40, 20), "red"), 1)]).channels == 3  # grey becomes colour


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "expected a data set of this package, a pair of arrays .* got int"),
        ("mnist", "expected .* got str"),
        (PIXELS, "expected .* got ndarray"),
        ({"train": (PIXELS, LABELS)}, "got a mapping of train: give one of them"),
        (Stream(), "expected .* got Stream"),
        ((PIXELS, LABELS[:5]), "6 images need as many labels, got 5"),
        ((PIXELS[0], LABELS), r"images must have shape \(N, H, W\), .* got \(9, 11\)"),
        ((PIXELS * 2.0, LABELS), r"your data: float images must lie in \[0, 1\]"),
        ((PIXELS, LABELS + 1), "class numbers begin at 0, got 1 to 3: subtract 1"),
        ((PIXELS, LABELS / 2), "labels must be whole numbers or texts, got float64"),
        ([(PIXELS[0], 0), (PIXELS[1], [0, 1])], "labels must all be"),
        ([(PIXELS[0], 0, 1)], r"a pair \(image, label\), got 3 values"),
        ([(object(), 0)], "an image must be a tensor or array .* got object"),
        ([], "the data set is empty"),
        (Columns({}, image=PICTURES), "no column of labels among image"),
        (Columns({}, image=PICTURES, label=LABELS, labels=LABELS), r"2 columns of labels \(label, labels\)"),
    ],
)
def test_another_thing_is_refused_in_one_sentence(source: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        data.adapt(source)
    assert "\n" not in str(caught.value)


def test_an_unknown_text_is_named() -> None:
    with pytest.raises(ValueError, match="the label 'cow' is none of the classes cat, dog"):
        data.adapt((PIXELS[:2], ["cow", "dog"]), ("cat", "dog"))


def test_evaluate_and_predict_share_the_conversion(tiny: capsnet.Model) -> None:
    images = np.random.default_rng(1).integers(0, 256, (5, 20, 22, 1), dtype=np.uint8)
    labels = np.array([0, 1, 2, 0, 1])
    expected = capsnet.evaluate(tiny, data.adapt((images, labels), ("0", "1", "2"))).lengths
    columns = Columns({}, image=[Image.fromarray(image[..., 0]) for image in images], label=labels.tolist())
    for source in ((images, labels), (images, labels.astype(str)), columns):
        np.testing.assert_allclose(capsnet.evaluate(tiny, source).lengths, expected, atol=1e-5)
    pairs = TensorDataset(torch.from_numpy(images).movedim(-1, 1), torch.from_numpy(labels))
    for pictures in (pairs, columns, Columns({}, image=columns.columns["image"])):
        answers = capsnet.predict(pictures, tiny)  # type: ignore[arg-type]
        np.testing.assert_allclose([list(a.lengths.values()) for a in answers], expected, atol=1e-5)
    named = Columns(FEATURES, img=columns.columns["image"], label=labels.tolist())
    with pytest.raises(ValueError, match="the model knows the classes 0, 1, 2, the data have a, b, c"):
        capsnet.evaluate(tiny, named)


def test_a_real_hugging_face_data_set_is_read(tiny: capsnet.Model) -> None:
    """``Columns`` above stands for it where the package is not installed."""
    datasets = pytest.importorskip("datasets", reason="Hugging Face's datasets is not in the extra `dev`")
    images = np.random.default_rng(1).integers(0, 256, (5, 20, 22), dtype=np.uint8)
    labels = [0, 1, 2, 0, 1]
    features = datasets.Features(img=datasets.Image(), label=datasets.ClassLabel(names=["0", "1", "2"]))
    columns = {"img": [Image.fromarray(image) for image in images], "label": labels}
    source = datasets.Dataset.from_dict(columns, features=features)
    adapted = data.adapt(source)
    assert adapted.class_names == ("0", "1", "2")
    assert adapted.batch(range(5)).targets.tolist() == labels
    assert torch.equal(adapted.batch(range(5)).images, torch.from_numpy(images)[:, None] / 255)
    expected = capsnet.evaluate(tiny, (images, labels)).lengths
    np.testing.assert_allclose(capsnet.evaluate(tiny, source).lengths, expected, atol=1e-5)
    undecoded = source.cast_column("img", datasets.Image(decode=False))
    for pictures in (source, source.remove_columns("label"), undecoded):
        answers = capsnet.predict(pictures, tiny)
        np.testing.assert_allclose([list(answer.lengths.values()) for answer in answers], expected, atol=1e-5)
    with pytest.raises(ValueError, match="is streamed, without a length"):
        data.adapt(source.to_iterable_dataset())


def test_pictures_are_turned_and_laid_on_white_as_in_predict(tmp_path: Path) -> None:
    top = np.zeros((32, 32, 3), np.uint8)
    top[:8] = 255
    turned, clear = tmp_path / "turned.jpg", tmp_path / "clear.png"
    exif = Image.Exif()
    exif[0x0112] = 6  # a phone held upright
    Image.fromarray(top).save(turned, exif=exif, quality=95)
    Image.fromarray(top).save(clear, transparency=(0, 0, 0))
    frame = data.preprocess_for((32, 32), 1)
    assert frame is not None
    for path in (turned, clear):
        seen = data.adapt([(path, 0), (path, 1)]).batch([0]).images[0]
        torch.testing.assert_close(seen, frame(path), atol=0.02, rtol=0)
    assert data.adapt([(turned, 0), (turned, 1)]).batch([0]).images[0, 0, :, -4:].min() > 0.9


def test_labels_that_are_missing_are_refused() -> None:
    for labels in ([None, *"abcab"], [None] * 6):
        with pytest.raises(ValueError, match="labels must be class numbers or texts, got NoneType"):
            data.adapt((PIXELS, labels))
