"""Generated sentences: reproducible, no sentence in two splits, labels that follow from the text."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from capsnet.data import Augment, Sentences, Words, batches, load
from capsnet.data.generated import _lexicon


def as_set(data: Sentences) -> set[bytes]:
    return {row.tobytes() for row in data.words}


@pytest.mark.parametrize(
    ("labels", "first"),
    [
        ("single", "about marathon and trophy and we saw the league"),
        ("multi", "about chorus and orchestra and we saw the league"),
    ],
)
def test_sentences_are_pinned(labels: str, first: str) -> None:
    data = load(f"sentences:count=2,labels={labels}", "train")
    assert isinstance(data, Sentences)
    assert [data.text(i) for i in range(2)] == [first, "not about the film score but the galaxy was quiet"]


def test_sentence_depends_on_seed_split_and_index_only() -> None:
    few, many = Sentences(count=40), Sentences(count=400)
    np.testing.assert_array_equal(few.words, many.words[:40])
    np.testing.assert_array_equal(few.targets, many.targets[:40])
    assert (Sentences(count=40, seed=1).words != few.words).any(axis=1).mean() > 0.9
    both = Sentences("train+validation", count=40)
    np.testing.assert_array_equal(both.words, np.concatenate([few.words, Sentences("validation", count=40).words]))
    batch, again = many.batch([7, 3], epoch=5, augment=Augment()), many.subset([3, 7]).batch([1, 0])
    assert batch.images.dtype == torch.int64
    assert batch.images.shape == (2, 24)
    assert torch.equal(batch.images, again.images)
    assert torch.equal(batch.targets, again.targets)
    assert many.subset([3]).vocabulary == many.vocabulary


def test_no_two_splits_share_a_sentence_whatever_the_options() -> None:
    """Short texts occur twice within a split, so they could occur in two splits."""
    splits = ("train", "validation", "test")
    options: tuple[dict[str, Any], ...] = (
        {"noise": 0.0},
        {"noise": 0.0, "labels": "multi"},
        {"seed": 5},
        {"topics": 4, "noise": 0.0},
    )
    texts_of = {s: set().union(*(as_set(Sentences(s, count=3000, **o)) for o in options)) for s in splits}
    assert len(as_set(Sentences("train", count=3000, noise=0.0))) < 3000
    assert not texts_of["train"] & texts_of["validation"]
    assert not texts_of["train"] & texts_of["test"]
    assert not texts_of["validation"] & texts_of["test"]


@pytest.mark.parametrize("labels", ["single", "multi"])
@pytest.mark.parametrize("noise", [0.0, 0.1, 1.0])
def test_texts_have_three_to_24_words_and_padding_only_after_them(labels, noise: float) -> None:
    words = Sentences("test", labels=labels, noise=noise, count=2000).words
    lengths = (words > 0).sum(axis=1)
    assert (lengths.min() >= 3, lengths.max()) == (True, 24 if noise else lengths.max())
    np.testing.assert_array_equal(words > 0, np.arange(24) < lengths[:, None])
    fillers = np.isin(words, _lexicon.FILLERS).sum(axis=1)
    proper = lengths - fillers
    if noise in (0, 1):  # none, or one before each word for as long as there is room
        np.testing.assert_array_equal(lengths, np.minimum(proper * (1 + int(noise)), 24))
    else:
        assert fillers[proper < 12].sum() / proper[proper < 12].sum() == pytest.approx(noise, abs=0.015)


def slot_words(topic: int, slot: str) -> list[str]:
    numbers = _lexicon._WORDS[topic, _lexicon._SLOTS.index(slot)]
    return sorted({_lexicon.VOCABULARY[number] for number in numbers})


def denials() -> re.Pattern[str]:
    """Every phrasing that denies something, longest first, with the words that its slots may hold."""
    phrases = []
    for phrase in _lexicon._LISTS["DENYING"]:
        for slot in _lexicon._SLOTS:
            words = {word for topic in range(len(_lexicon.TOPICS)) for word in slot_words(topic, slot)}
            phrase = re.sub(rf"\b{slot}\b", f"(?:{'|'.join(sorted(words))})", phrase)
        phrases.append(phrase)
    return re.compile("|".join(rf"\b{phrase}\b" for phrase in sorted(phrases, key=lambda p: -p.count(" "))))


@pytest.mark.parametrize("labels", ["single", "multi"])
def test_stated_topics_are_labelled_and_denied_ones_are_not(labels) -> None:
    """Read back by regular expressions: the words that belong to one topic only, outside and inside of denials."""
    data = Sentences("test", labels=labels, noise=0.0, count=500, topics=10)
    owner = {w: t for t in range(10) for slot in ("WHO", "DID", "WHAT") for w in slot_words(t, slot)}
    hot = data.targets if labels == "multi" else np.arange(10) == data.targets[:, None]
    pattern, denied_texts = denials(), 0
    for i in range(len(data)):
        text, labelled = data.text(i), set(np.flatnonzero(hot[i]))
        denied = {owner[w] for denial in pattern.findall(text) for w in denial.split() if w in owner}
        stated = {owner[w] for w in pattern.sub(" . ", text).split() if w in owner}
        assert stated <= labelled, text
        assert not denied & labelled, text
        denied_texts += bool(pattern.search(text))
        assert len(labelled) == 1 or (labels == "multi" and len(labelled) <= 3)
    assert 0.4 < denied_texts / len(data) < 0.6


def test_labels_are_balanced() -> None:
    single = np.bincount(Sentences(count=4000).targets, minlength=8) / 4000
    assert np.abs(single - 1 / 8).max() < 0.025
    several = Sentences(labels="multi", count=4000).targets.sum(axis=1)
    assert np.abs(np.bincount(several.astype(int))[1:] / 4000 - 1 / 3).max() < 0.03


def test_counting_words_is_not_enough() -> None:
    """A linear classifier of word counts learns the topics but not which one is denied."""
    train, test = Sentences(count=6000), Sentences("test", count=1000)

    def counts(data: Sentences) -> torch.Tensor:
        words = torch.from_numpy(data.words)
        return torch.zeros(len(data), len(data.vocabulary)).scatter_add_(1, words, (words > 0).float())

    model = torch.nn.Linear(len(train.vocabulary), 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(counts(train)), torch.from_numpy(train.targets)).backward()
        optimizer.step()
    right = (model(counts(test)).argmax(dim=1) == torch.from_numpy(test.targets)).float().mean()
    assert 0.7 < right < 0.9


def test_words_are_numbered_and_read_back() -> None:
    words = Words(vocabulary=Sentences(count=1).vocabulary)
    numbers = words("The singer, surprisingly, SANG!")
    assert words.text(numbers) == "the singer <unknown> sang"
    assert words.text([*numbers.tolist(), 0, 0]) == "the singer <unknown> sang"
    assert Words(**words.model_dump(mode="json")) == words == Sentences(count=1).preprocess
    with pytest.raises(ValueError, match=r"takes text and knows no word of 'digit.png'; .*such as striker"):
        words("digit.png")
    with pytest.raises(ValueError, match="knows no word of ''"):
        words("")
    with pytest.raises(ValueError, match="takes text, got ndarray"):
        words(np.zeros(3))


def test_bad_options_are_refused() -> None:
    data = Sentences(count=3)
    with pytest.raises(ValueError, match=r"texts cannot be augmented.*shift=2"):
        data.batch([0], augment=Augment(shift=2))
    with pytest.raises(ValueError, match=r"indices must lie in 0..2"):
        data.text(3)
    for spec in ("topics=3", "topics=11", "labels=both", "noise=2", "count=0"):
        with pytest.raises(ValueError, match=f"option {spec.partition('=')[0]} of sentences"):
            load(f"sentences:{spec}", "train")
    wrong: dict[str, Any]
    for wrong in ({"topics": 3}, {"noise": -1.0}, {"count": 0}, {"labels": "both"}, {"split": "tset"}):
        with pytest.raises(ValueError, match=str(next(iter(wrong)))):
            Sentences(**wrong)
    assert repr(data) == "sentences single train: 3 texts of up to 24 words, 8 classes"
    assert sum(len(batch.images) for batch in batches(data, 2)) == 3
