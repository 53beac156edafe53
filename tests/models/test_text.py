"""Models of texts: padding, any number of words, and the same commands as for pictures."""

from pathlib import Path

import numpy as np
import pytest
import torch

import capsnet
from capsnet.data import Sentences
from capsnet.metrics import exact_match
from capsnet.models import TextModel

TEXT_MODELS = [name for name in capsnet.list_models() if "vocabulary" in capsnet.models.model_options(name)]


def build(name: str, **options) -> TextModel:
    options = {"vocabulary": 40, "embedding": 8, "channels": 8, "num_classes": 3} | options
    model = capsnet.create_model(name, **options).eval()
    assert isinstance(model, TextModel)
    return model


def padded(words: torch.Tensor, length: int) -> torch.Tensor:
    return torch.nn.functional.pad(words, (0, length - words.shape[1]))


def test_text_models_are_registered() -> None:
    assert {"text-capsnet", "text-cnn"} <= set(TEXT_MODELS)


@pytest.mark.parametrize("name", TEXT_MODELS)
@pytest.mark.parametrize("options", [{}, {"ngrams": (1,)}, {"ngrams": (5, 2)}], ids=str)
def test_output_does_not_depend_on_padding(name: str, options: dict) -> None:
    """Outputs and gradients, with biases that would change the output if padding were read."""
    model = build(name, **options).double()
    words, targets = torch.randint(1, 40, (3, 6)), torch.tensor([0, 1, 2])
    answers = {}
    for length in (6, 7, 31):
        model.zero_grad()
        output = model(padded(words, length))
        model.loss(output, targets, words).total.backward()
        answers[length] = [output.lengths, *(p.grad for p in model.parameters() if p.grad is not None)]
    assert len(answers[6]) == 1 + len(list(model.parameters()))
    for length in (7, 31):
        torch.testing.assert_close(answers[length], answers[6], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_texts_of_any_length_work_alone_and_in_batches(name: str) -> None:
    model = build(name)
    texts = [torch.randint(1, 40, (n,)) for n in (1, 2, 3, 9, 60)]
    together = model(torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)).lengths
    alone = torch.cat([model(text[None]).lengths for text in texts])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)
    assert together.std(dim=0).min() > 0  # and they do differ from each other
    assert model(torch.zeros(0, 5, dtype=torch.int64)).lengths.shape == (0, 3)


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_order_of_words_matters(name: str) -> None:
    model, words = build(name), torch.tensor([[3, 4, 5, 6]])
    assert (model(words).lengths - model(words.flip(1)).lengths).abs().max() > 1e-6


@pytest.mark.parametrize(
    "options", [{}, {"routing": "em"}, {"routing_options": {"bias": True, "leaky": True}}], ids=str
)
def test_text_without_words_gives_zero_lengths(options: dict) -> None:
    model = build("text-capsnet", **options)
    words = torch.zeros(2, 7, dtype=torch.int64)
    words[1, :3] = torch.tensor([5, 6, 7])
    output = model(words)
    assert (output.lengths[0] == 0).all()
    assert (output.lengths[1] > 0).any()
    loss = model.loss(output, torch.tensor([0, 1]), words).total
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.loss(model(words[:1]), torch.tensor([0]), words).total.item() == pytest.approx(0.81)


def test_trace_has_grid_of_words() -> None:
    words = torch.tensor([[4, 5, 6, 0, 0]])
    output = build("text-capsnet", primary_types=2, iterations=2)(words, trace=True)
    assert output.trace is not None
    assert output.trace.grid == (1, 5, 6)  # five words, three sizes of n-grams, two types
    assert output.trace.couplings.shape == (2, 1, 30, 3)


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_wrong_words_are_refused(name: str) -> None:
    model = build(name)
    for wrong, message in (
        (torch.rand(2, 1, 28, 28), r"expected the word numbers of texts, shape \(B, L\), got \(2, 1, 28, 28\)"),
        (torch.zeros(2, 0, dtype=torch.int64), "expected the word numbers"),
        (torch.rand(2, 5), r"integers \(int64\), got torch.float32"),
        (torch.tensor([[1, 40]]), "no word number 40: the model knows words 0 to 39"),
        (torch.tensor([[1, -2]]), "no word number -2"),
    ):
        with pytest.raises(ValueError, match=message):
            model(wrong)
    with pytest.raises(ValueError, match=r"one row of words.*cannot be 3 x 28 x 28"):
        build(name, image_size=(28, 28), in_channels=3)
    with pytest.raises(ValueError, match="at least one size"):
        build(name, ngrams=())


def learn(model: capsnet.Model, data: Sentences, steps: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.train()
    for step in range(steps):
        batch = data.batch((np.arange(64) + 64 * step) % len(data))
        loss = model.loss(model(batch.images), batch.targets, batch.images).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize(("name", "options"), [("text-capsnet", {}), ("text-cnn", {"multi_label": True})])
@pytest.mark.parametrize(("labels", "least"), [("single", 0.75), ("multi", 0.5)])
def test_text_models_learn_topics(name: str, options: dict, labels, least: float) -> None:
    """Four topics: by chance a quarter of the single ones are right, and of the mixed ones about as many."""
    train, test = (Sentences(split, topics=4, labels=labels, count=3200) for split in ("train", "test"))
    model = build(name, vocabulary=len(train.vocabulary), num_classes=4, embedding=32, channels=32, **options)
    learn(model, train, 100)
    model.eval()
    batch = test.batch(range(1000))
    with torch.inference_mode():
        lengths = model(batch.images).lengths
    assert exact_match(lengths, capsnet.functional.multi_hot(batch.targets, 4)).value > least


def test_texts_work_in_every_command(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Train, TensorBoard, evaluate a run folder, other labels, predict from the file."""
    config = capsnet.recipes.get("text", epochs=1, limit=640, eval_limit=100, data="sentences:count=1000")
    result = capsnet.train(config, out=tmp_path / "run", device="cpu")
    assert result.test.metrics["n"] == 100
    assert "capsnet predict TEXT" in (tmp_path / "run" / "README.md").read_text()
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    assert (tmp_path / "run" / "figures" / "confusion.png").is_file()
    mixed = capsnet.evaluate(tmp_path / "run", "sentences:labels=multi,count=200")
    assert mixed.metrics["exact_match"]["n"] == 200
    one, two = capsnet.predict(["The singer sang.", "we saw the rocket and the very old planet"], tmp_path / "run")
    assert set(one.lengths) == set(Sentences(count=1).class_names)
    again = capsnet.predict("we saw the rocket and the very old planet", tmp_path / "run")[0]
    assert again.lengths == pytest.approx(two.lengths, abs=1e-6)
    from capsnet.cli import main

    main(["predict", "the singer sang", "--model", str(tmp_path / "run")])
    assert capsys.readouterr().out.splitlines()[-1].startswith("the singer sang: ")
    with pytest.raises(SystemExit):
        main(["predict", "digit.png", "--model", str(tmp_path / "run")])
    assert "takes text and knows no word of 'digit.png'" in capsys.readouterr().err


def test_texts_and_pictures_are_not_interchangeable(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has texts, but capsnet-small takes pictures"):
        capsnet.train(capsnet.TrainConfig(model="capsnet-small", data="sentences:count=10"), out=tmp_path / "a")
    with pytest.raises(ValueError, match="has pictures, but text-cnn takes texts"):
        capsnet.train(capsnet.TrainConfig(model="text-cnn", data="shapes:count=10"), out=tmp_path / "b")
    data = Sentences("test", count=10)
    assert data.preprocess is not None
    model = build("text-cnn", vocabulary=len(data.vocabulary), num_classes=8)
    with pytest.raises(ValueError, match="does not know its words"):
        capsnet.evaluate(model, data)
    model.preprocessing = {"vocabulary": [*data.vocabulary[:-1], "other"]}
    with pytest.raises(ValueError, match="trained with other words than those of sentences single test"):
        capsnet.evaluate(model, data)
    model.preprocessing = data.preprocess.model_dump()
    assert capsnet.evaluate(model, data).metrics["n"] == 10
    with pytest.raises(ValueError, match="has pictures, but the model takes texts"):
        capsnet.evaluate(model, "mnist")
    with pytest.raises(ValueError, match="takes text, got ndarray"):
        capsnet.predict(np.zeros((28, 28)), model)
