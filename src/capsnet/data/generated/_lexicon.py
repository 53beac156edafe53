"""The words and phrasings of the generated sentences, from topics.txt, as numbers."""

from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsnet.data.words import vocabulary_of


def _read() -> dict[str, list[str]]:
    text = files("capsnet.data.generated").joinpath("topics.txt").read_text(encoding="utf-8")
    lines = (line.partition(": ") for line in text.splitlines() if not line.startswith("#"))
    return {name: entries.split(" | ") for name, _, entries in lines}


_LISTS = _read()
TOPICS = tuple(name for name in _LISTS if name.islower())
CLAUSE = 5  # words of the longest phrasing
_SLOTS = ("WHO", "DID", "WHAT", "ADJ", "FIRST", "SECOND")
_CHOICES = 12  # a multiple of every list's length, so that all words are equally likely

VOCABULARY = vocabulary_of(
    *([word for words in _LISTS[topic] for word in words.replace(",", "").split()] for topic in TOPICS),
    *(_LISTS[name] for name in ("ADJECTIVES", "JOINING", "FILLERS")),
    [word for name in ("SAYING", "DENYING") for p in _LISTS[name] for word in p.split() if word not in _SLOTS],
)
_NUMBERS = {word: number for number, word in enumerate(VOCABULARY)}

JOINING: NDArray[np.int64] = np.array([0] + [_NUMBERS[word] for word in _LISTS["JOINING"]])  # 0: no word at all
FILLERS: NDArray[np.int64] = np.array([_NUMBERS[word] for word in _LISTS["FILLERS"]])


class Phrases(NamedTuple):
    """Phrasings as numbers: a word, minus its slot's number minus one, or 0 where the phrase has ended."""

    codes: NDArray[np.int64]  # (F, CLAUSE)

    def fill(
        self, topics: NDArray[np.int64], which: NDArray[np.float64], choices: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Phrases about ``topics`` (N,); ``which`` (N,) and ``choices`` (N, CLAUSE), in [0, 1), choose their words.

        The two words of a pair are chosen by one number, the first one's.
        """
        codes = self.codes[(which * len(self.codes)).astype(np.int64)]  # (N, CLAUSE)
        second = codes == -1 - _SLOTS.index("SECOND")
        choices = np.where(second, np.roll(choices, 1, axis=1), choices)
        words = _WORDS[topics[:, None], np.maximum(-codes - 1, 0), (choices * _CHOICES).astype(np.int64)]
        return np.where(codes < 0, words, codes)


def _phrases(phrasings: list[str]) -> Phrases:
    numbers = {slot: -1 - k for k, slot in enumerate(_SLOTS)} | _NUMBERS
    rows = [[numbers[word] for word in phrase.split()] for phrase in phrasings]
    return Phrases(np.array([row + [0] * (CLAUSE - len(row)) for row in rows]))


def _words() -> NDArray[np.int64]:
    """Each topic's words for each slot, repeated until there are equally many: (topics, slots, choices)."""
    table = np.zeros((len(TOPICS), len(_SLOTS), _CHOICES), np.int64)
    for t, topic in enumerate(TOPICS):
        who, did, what, pairs = _LISTS[topic]
        first, second = zip(*(pair.split() for pair in pairs.split(", ")), strict=True)
        for s, words in enumerate((who.split(), did.split(), what.split(), _LISTS["ADJECTIVES"], first, second)):
            table[t, s] = np.resize([_NUMBERS[word] for word in words], _CHOICES)
    return table


_WORDS = _words()
SAYING, DENYING = _phrases(_LISTS["SAYING"]), _phrases(_LISTS["DENYING"])
