"""Sentences: a generated corpus whose topics depend on the order of words.

A text says something about its topics and, half of the time, denies something about another one: "we saw the tractor
while no drummer strummed" is farming. Some words (*high* court, *high* score) belong to a topic only in pairs. So
counting words is not enough. With labels=single all one to three clauses are about one topic, with labels=multi each
is about another one: a network can learn from single-label texts and be tested on multi-label ones, as in Zhao et al.,
*Investigating capsule networks with dynamic routing for text classification*, EMNLP 2018 (arXiv 1804.00538).

Every text is a pure function of (seed, split, index). The split of a text is a function of its words, so no two splits
share one, whatever their seeds and options.
"""

from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from capsnet._names import check_name
from capsnet.data import keyed
from capsnet.data._registry import register
from capsnet.data.augment import Augment
from capsnet.data.base import Augmentation, Batch, Dataset
from capsnet.data.generated._lexicon import CLAUSE, DENYING, FILLERS, JOINING, SAYING, TOPICS, VOCABULARY
from capsnet.data.splits import SPLITS
from capsnet.data.words import Words

COUNTS = {"train": 12_000, "validation": 2_000, "test": 2_000}
LENGTH = 24  # words of the longest text
WORDS = Words(vocabulary=VOCABULARY)

_BUCKETS = {"train": (0, 1), "validation": (2,), "test": (3,)}  # of four: half of all texts may be trained on
_CLAUSES = 4  # at most, said and denied together
_MOST = 3  # topics of a text
Labels = Literal["single", "multi"]


class Sentences(Dataset):
    """One split of generated sentences. ``batch(...).images`` are word numbers (B, 24) int64, 0 after the last word.

    ``count`` is per split: by default 12,000 for training, 2,000 for validation and test.
    """

    origin = "generated"
    channels = 1
    image_size = (1, LENGTH)

    def __init__(
        self,
        split: str = "train",
        *,
        topics: Annotated[int, Field(gt=_MOST, le=len(TOPICS))] = 8,
        labels: Labels = "single",
        noise: Annotated[float, Field(ge=0, le=1)] = 0.1,
        count: Annotated[int, Field(ge=1)] | None = None,
        seed: int = 0,
    ) -> None:
        check_name("split", split, SPLITS)
        check_name("kind of labels", labels, ("single", "multi"))
        if not _MOST < topics <= len(TOPICS):
            raise ValueError(f"topics must lie in {_MOST + 1}..{len(TOPICS)}, got {topics}")
        if not 0 <= noise <= 1:
            raise ValueError(f"noise is a fraction and must lie in 0..1, got {noise}")
        if count is not None and count < 1:
            raise ValueError(f"count must be at least 1 example, got {count}")
        self.name = f"sentences {labels} {split}"
        self.preprocess = WORDS
        self.class_names = TOPICS[:topics]
        texts = [
            _texts(piece, COUNTS[piece] if count is None else count, topics, labels, noise, seed)
            for piece in split.split("+")
        ]
        self.words = np.concatenate([words for words, _ in texts])  # (N, L)
        hot = np.concatenate([hot for _, hot in texts])  # (N, J)
        self.targets = hot.argmax(axis=1) if labels == "single" else hot.astype(np.float32)

    def __len__(self) -> int:
        return len(self.words)

    def batch(self, indices: ArrayLike, *, augment: Augmentation = None, seed: int = 0, epoch: int = 0) -> Batch:
        index = self._check_indices(indices)
        if augment is not None and augment != Augment():
            raise ValueError(f"texts cannot be augmented: leave out {augment}")
        return Batch(
            torch.from_numpy(self.words[index]), torch.from_numpy(self.targets[index]), torch.from_numpy(index)
        )

    def text(self, index: int) -> str:
        """An example as a string."""
        return WORDS.text(self.words[self._check_indices([index])[0]])

    def __repr__(self) -> str:
        return f"{self.name}: {len(self):,} texts of up to {LENGTH} words, {self.num_classes} classes"


def _texts(
    split: str, count: int, topics: int, labels: Labels, noise: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """All texts of a split and their topics: (N, L), (N, J). One that belongs to another split is made again."""
    words, hot = np.zeros((count, LENGTH), np.int64), np.zeros((count, topics), bool)
    missing = np.arange(count)
    attempt = 0
    while missing.size:
        new_words, new_hot = _draft(seed, attempt, missing, f"sentences.{split}", topics, labels, noise)
        accepted = np.isin(_bucket(new_words), _BUCKETS[split])
        words[missing[accepted]], hot[missing[accepted]] = new_words[accepted], new_hot[accepted]
        missing = missing[~accepted]
        attempt += 1
    return words, hot


def _bucket(words: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Which quarter of all possible texts these belong to: a hash of their words, (N, L) -> (N,)."""
    odd = np.uint64(0x9E3779B97F4A7C15)
    code = np.zeros(len(words), np.uint64)
    for column in words.T.astype(np.uint64):
        code = code * odd + column
    return keyed.bits(0, 0, code, 1, "sentences.split")[:, 0] >> np.uint64(62)


def _draft(
    seed: int, attempt: int, index: NDArray[np.int64], stream: str, topics: int, labels: Labels, noise: float
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """One attempt at each text: which topics, which clauses in which order, then their words."""

    def draw(what: str, n: int) -> NDArray[np.float64]:
        return keyed.uniform(seed, attempt, index, n, f"{stream}.{what}").astype(np.float64, copy=False)

    N = len(index)
    order = draw("topics", len(TOPICS))[:, :topics].argsort(axis=1)  # (N, J): first the stated, then the denied one
    num_said = 1 + (draw("said", 1) * _MOST).astype(np.int64)  # (N, 1): clauses
    num_denied = np.where(draw("denied", 1) < 0.5, 0, np.minimum(num_said, _CLAUSES - num_said))
    place = draw("order", _CLAUSES).argsort(axis=1)  # (N, 4): clause k of the text is number place[k]
    saying, denying = place < num_said, (place >= num_said) & (place < num_said + num_denied)
    topic = np.where(saying, 0 if labels == "single" else np.minimum(place, _MOST - 1), _MOST)
    topic = np.take_along_axis(order, topic, axis=1).ravel()  # (N * 4,)
    which, choices = draw("phrasing", _CLAUSES).ravel(), draw("words", _CLAUSES * CLAUSE).reshape(-1, CLAUSE)
    said_words, denied_words = (phrases.fill(topic, which, choices) for phrases in (SAYING, DENYING))
    present = saying | denying  # (N, 4)
    filled = np.where(saying.ravel()[:, None], said_words, denied_words).reshape(N, _CLAUSES, CLAUSE)
    filled *= present[..., None]  # 0 where there is no clause
    joined = JOINING[(draw("joining", _CLAUSES) * len(JOINING)).astype(np.int64)]  # (N, 4)
    joined *= present & (present.cumsum(axis=1) > 1)
    words = np.concatenate([joined[..., None], filled], axis=2).reshape(N, -1)  # (N, 4 * (1 + CLAUSE))
    hot = np.zeros((N, topics), bool)
    np.put_along_axis(hot, order[:, :_MOST], np.arange(_MOST) < (1 if labels == "single" else num_said), axis=1)
    return _with_fillers(words, draw("filler", words.shape[1]), draw("which", words.shape[1]), noise), hot


def _with_fillers(
    words: NDArray[np.int64], chance: NDArray[np.float64], which: NDArray[np.float64], noise: float
) -> NDArray[np.int64]:
    """Put a filler before a fraction ``noise`` of the words while there is room; close all gaps: (N, W) -> (N, L)."""
    chance = np.where(words > 0, chance, 1.0)
    room = LENGTH - (words > 0).sum(axis=1, keepdims=True)
    insert = (chance < noise) & (chance.argsort(axis=1).argsort(axis=1) < room)
    fillers = np.where(insert, FILLERS[(which * len(FILLERS)).astype(np.int64)], 0)
    both = np.stack([fillers, words], axis=2).reshape(len(words), -1)  # (N, 2 W)
    closed = np.take_along_axis(both, (both == 0).argsort(axis=1, kind="stable"), axis=1)
    return closed[:, :LENGTH]


sentences = register(
    "sentences",
    "Generated short texts on 4 to 10 topics, with denials and ambiguous words; labels=multi mixes topics",
    SPLITS,
    source="generated",
    objects=lambda options: 1 if options["labels"] == "single" else None,
    path="none",
)(Sentences)
