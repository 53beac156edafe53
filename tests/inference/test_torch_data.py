"""``evaluate`` and ``predict`` on what PyTorch users have: torch data sets, loaders, tensors and arrays."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import capsnet

IMAGES = torch.randint(0, 256, (11, 1, 20, 22), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(11) % 3


class Pairs(Dataset):
    """A map-style data set of (image, label)."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.images[index], self.labels[index]


class Stream(IterableDataset):
    """An iterable data set without a length."""

    def __iter__(self) -> Any:
        return zip(IMAGES, LABELS.tolist(), strict=True)


SOURCES = {
    "dataset": Pairs(IMAGES / 255, LABELS.tolist()),
    "uint8": Pairs(IMAGES, LABELS),
    "float64": Pairs(IMAGES.double() / 255, LABELS),
    "arrays": Pairs(IMAGES.numpy(), LABELS.numpy()),
    "no channel axis": TensorDataset(IMAGES[:, 0], LABELS),
    "tensors": TensorDataset(IMAGES / 255, LABELS),
    "loader": DataLoader(TensorDataset(IMAGES, LABELS), batch_size=3),
    "stream": Stream(),
    "list": list(zip(IMAGES, LABELS.tolist(), strict=True)),
    "loader of texts": DataLoader(Pairs(IMAGES, [str(int(label)) for label in LABELS]), batch_size=3),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_evaluate_takes_torch_data(kind: str, tiny: capsnet.Model) -> None:
    arrays = capsnet.data.ArrayDataset(IMAGES.numpy(), LABELS.numpy(), ("0", "1", "2"))
    expected = capsnet.evaluate(tiny, arrays)
    result = capsnet.evaluate(tiny, SOURCES[kind], batch_size=4)
    assert result.metrics["accuracy"] == expected.metrics["accuracy"]
    np.testing.assert_allclose(result.lengths, expected.lengths, atol=1e-6)


class Prepared(Pairs):
    """Uses the package in the processes of a loader."""

    def __getitem__(self, index: int) -> Any:
        framed = capsnet.data.Preprocess(style="plain", height=20, width=22)(self.images[index, 0].numpy())
        return framed, int(self.labels[index])


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])  # slow: two more imports
def test_evaluate_takes_loaders_with_processes(method: str, tiny: capsnet.Model) -> None:
    expected = capsnet.evaluate(
        tiny, Pairs(IMAGES, LABELS)
    )  # starts the threads of this process, which no fork inherits
    loader = DataLoader(Prepared(IMAGES, LABELS), batch_size=4, num_workers=2, multiprocessing_context=method)
    np.testing.assert_allclose(capsnet.evaluate(tiny, loader).lengths, expected.lengths, atol=1e-5)


def test_evaluate_prepares_pillow_images(tiny: capsnet.Model) -> None:
    pictures = [Image.fromarray(image[0].numpy()) for image in IMAGES]
    result = capsnet.evaluate(tiny, Pairs(pictures, LABELS))
    np.testing.assert_allclose(result.lengths, capsnet.evaluate(tiny, SOURCES["uint8"]).lengths, atol=1e-5)


def test_evaluate_takes_multi_hot_torch_targets(tiny: capsnet.Model) -> None:
    result = capsnet.evaluate(tiny, TensorDataset(IMAGES, torch.eye(3)[LABELS]))
    assert result.metrics["exact_match"]["n"] == 11
    assert result.metrics["threshold"] == 0.5


def test_evaluate_takes_texts_as_word_numbers() -> None:
    model = capsnet.create_model("text-cnn", vocabulary=9, embedding=4, channels=4, num_classes=2)
    result = capsnet.evaluate(model, [(torch.tensor([2, 3, 4]), 0), (torch.tensor([5, 6, 7, 8]), 1)])
    assert result.accuracy.n == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (TensorDataset(torch.rand(4, 3, 32, 32), LABELS[:4]), r"expected images of shape \(B, 1, 20, 22\), got \(4, 3"),
        (TensorDataset(torch.rand(4, 1, 20, 22) * 255, LABELS[:4]), r"must lie in \[0, 1\], got .*: divide by 255"),
        (TensorDataset(torch.randn(4, 1, 20, 22), LABELS[:4]), "leave out Normalize"),
        (TensorDataset(torch.full((4, 1, 20, 22), torch.nan), LABELS[:4]), "got nan to nan"),
        (
            TensorDataset(torch.ones(4, 1, 20, 22, dtype=torch.int64), LABELS[:4]),
            "float in .* or uint8, got torch.int64",
        ),
        (TensorDataset(IMAGES, LABELS + 1), "labels must be whole numbers from 0 to 2, got 3"),
        (TensorDataset(IMAGES), r"a pair \(image, label\), got 1 values"),
        (DataLoader(TensorDataset(IMAGES)), r"a pair \(image, label\), got 1 values"),
        ([(torch.rand(1, 20, 22), 0), (torch.rand(1, 22, 20), 1)], "images must have one size"),
        ([], "the data set is empty"),
        (3, "evaluate takes a name, a DataLoader, a data set .* got int"),
    ],
)
def test_evaluate_refuses_other_data_in_one_sentence(source: Any, message: str, tiny: capsnet.Model) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        capsnet.evaluate(tiny, source)
    assert "\n" not in str(caught.value)


def test_predict_takes_tensors_as_they_are(tiny: capsnet.Model) -> None:
    tiny.preprocessing = {"style": "digit", "height": 20, "width": 22}  # which would move the ink
    expected = tiny.eval()(IMAGES / 255).lengths
    answers = capsnet.predict(IMAGES, tiny, batch_size=4)
    assert [max(answer.lengths.values()) for answer in answers] == pytest.approx(expected.amax(1).tolist(), abs=1e-6)
    assert capsnet.predict(IMAGES[0] / 255, tiny)[0].lengths == pytest.approx(answers[0].lengths, abs=1e-6)
    with pytest.raises(ValueError, match="expected images of shape"):
        capsnet.predict(torch.rand(1, 9, 9), tiny)


def test_predict_takes_an_array_of_many_pictures(tiny: capsnet.Model) -> None:
    colours = np.random.default_rng(0).integers(0, 255, (3, 40, 44, 3), dtype=np.uint8)
    one_by_one = capsnet.predict(list(colours), tiny)
    assert [a.lengths for a in capsnet.predict(colours, tiny)] == [a.lengths for a in one_by_one]


class Damaged(Pairs):
    """Opens its files itself; the third is damaged."""

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            raise OSError("image file is truncated")
        return super().__getitem__(index)


def test_predict_names_the_index_of_a_picture_that_it_cannot_read(tiny: capsnet.Model, tmp_path: Path) -> None:
    tiny.preprocessing = {"style": "digit", "height": 20, "width": 22}
    page = np.full((40, 44), 255, np.uint8)
    page[10:30, 20:24] = 0
    drawn, blank = Image.fromarray(page), Image.new("L", (44, 40), 255)
    drawn.save(tmp_path / "1.png")
    drawn.save(tmp_path / "2.png")
    message = r"^pictures\[2\]: the image: no digit was found"
    for pictures in ([drawn, drawn, blank], Pairs([drawn, drawn, blank], [0, 1, 2]), [tmp_path, drawn, blank]):
        with pytest.raises(ValueError, match=message):
            capsnet.predict(pictures, tiny)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^pictures\[1\]: the array: no digit was found"):
        capsnet.predict(np.stack([page, np.full_like(page, 255)])[..., None], tiny)
    with pytest.raises(ValueError, match=r"^pictures\[2\]: image file is truncated"):
        capsnet.predict(Damaged([drawn] * 4, [0] * 4), tiny)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^the image: no digit was found"):  # there is only one
        capsnet.predict(blank, tiny)


def test_results_print_as_sentences(tiny: capsnet.Model) -> None:
    evaluation = capsnet.evaluate(tiny, SOURCES["uint8"])
    accuracy = evaluation.accuracy
    assert str(evaluation) == f"{accuracy.value:.2%} of 11 right (95 %: {accuracy.low:.2%} to {accuracy.high:.2%})"
    assert repr(evaluation) == f"<Evaluation: {evaluation}>"
    answer = capsnet.predict(IMAGES[0], tiny, threshold=0)[0]
    assert str(answer).startswith(f"{answer.label} (length {answer.length:.2f}), present: {answer.label}, ")
    assert str(answer._replace(labels=(), source="x.png")).startswith("x.png: ")
    assert "tensor" not in repr(answer)
    empty = capsnet.Evaluation(capsnet.metrics.summarise(np.eye(3), np.zeros((3, 3))), np.eye(3), np.zeros((3, 3)))
    assert str(empty) == "3 examples, none of them with a label"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_models_of_another_precision_evaluate_and_predict(
    dtype: torch.dtype, tiny: capsnet.Model, tmp_path: Path
) -> None:
    model, path = copy.deepcopy(tiny).to(dtype), tmp_path / "a.png"
    Image.fromarray(IMAGES[0, 0].numpy()).save(path)
    found = capsnet.evaluate(model, SOURCES["uint8"])
    np.testing.assert_allclose(found.lengths, capsnet.evaluate(tiny, SOURCES["uint8"]).lengths, atol=0.05)
    assert capsnet.predict(str(path), model)[0].label in model.class_names
