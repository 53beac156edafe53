"""What the generated sentences are made of: ten topics, their words, and the phrasings they are put in."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsnet.data.words import vocabulary_of

_TOPICS = {
    "sport": (
        "striker goalkeeper runner coach",
        "scored tackled sprinted trained",
        "football stadium league marathon referee trophy",
        "tennis court, world record, playing field, high score",
    ),
    "music": (
        "singer drummer pianist composer",
        "sang strummed rehearsed composed",
        "guitar melody concert chorus violin orchestra",
        "rock star, film score, vinyl record, piano key",
    ),
    "space": (
        "astronaut astronomer cosmonaut satellite",
        "orbited launched docked observed",
        "rocket planet telescope comet galaxy spacecraft",
        "neutron star, moon rock, magnetic field, solar cell",
    ),
    "medicine": (
        "doctor nurse surgeon patient",
        "diagnosed vaccinated operated prescribed",
        "hospital vaccine fever clinic surgery symptom",
        "blood test, blood cell, medical record, heart rate",
    ),
    "law": (
        "judge lawyer prosecutor jury",
        "sued acquitted testified appealed",
        "trial verdict lawsuit witness statute evidence",
        "high court, criminal record, prison cell, test case",
    ),
    "money": (
        "banker investor accountant broker",
        "invested borrowed taxed traded",
        "loan inflation dividend budget mortgage currency",
        "interest rate, stock market, central bank, share price",
    ),
    "farming": (
        "farmer shepherd beekeeper milkmaid",
        "harvested planted milked ploughed",
        "tractor wheat orchard cattle barn fertiliser",
        "corn field, market garden, live stock, seed bank",
    ),
    "film": (
        "director actress screenwriter projectionist",
        "filmed starred auditioned premiered",
        "movie cinema screenplay trailer sequel costume",
        "film star, screen test, court drama, opening scene",
    ),
    "cooking": (
        "chef baker cook waiter",
        "baked fried simmered grilled",
        "recipe oven soup pastry spice kitchen",
        "star anise, rock salt, market kitchen, seed oil",
    ),
    "computing": (
        "programmer hacker developer engineer",
        "compiled debugged encrypted installed",
        "software keyboard compiler browser laptop algorithm",
        "search key, data field, memory cell, data bank",
    ),
}
"""Who, did, what, and pairs: a pair belongs to its topic only as a whole (high court is law, high score is sport)."""

_SAYING = (
    "the WHO DID",
    "WHO and WHO DID",
    "one WHO DID again",
    "the WHO DID the WHAT",
    "the WHAT was ADJ",
    "about WHAT and WHAT",
    "a story about the WHAT",
    "we saw the WHAT",
    "the ADJ FIRST SECOND",
    "about the FIRST SECOND",
    "we saw the FIRST SECOND",
)
_DENYING = (
    "no WHO DID",
    "the WHO never DID",
    "neither WHO nor WHO DID",
    "there was no WHAT",
    "not about WHAT",
    "no story about the WHAT",
    "we never saw the WHAT",
    "no ADJ FIRST SECOND",
    "not about the FIRST SECOND",
)
_ADJECTIVES = ["new", "old", "strange", "famous", "quiet", "long"]
_JOINING = ["and", "but", "while", "then"]
_FILLERS = ["today", "perhaps", "really", "yesterday", "somehow", "often", "here", "indeed", "<unknown>"]

TOPICS = tuple(_TOPICS)
CLAUSE = 5  # words of the longest phrasing
_SLOTS = ("WHO", "DID", "WHAT", "ADJ", "FIRST", "SECOND")
_CHOICES = 12  # a multiple of every number of words to choose from, so that each is as likely as the others

VOCABULARY = vocabulary_of(
    *([word for words in kinds for word in words.replace(",", "").split()] for kinds in _TOPICS.values()),
    _ADJECTIVES,
    _JOINING,
    _FILLERS,
    [word for phrase in (*_SAYING, *_DENYING) for word in phrase.split() if word not in _SLOTS],
)
_NUMBERS = {word: number for number, word in enumerate(VOCABULARY)}

JOINING: NDArray[np.int64] = np.array([0] + [_NUMBERS[word] for word in _JOINING])  # 0: no word at all
FILLERS: NDArray[np.int64] = np.array([_NUMBERS[word] for word in _FILLERS])


class Phrases(NamedTuple):
    """Phrasings as numbers: a word, minus its slot's number minus one, or 0 where the phrase has ended."""

    codes: NDArray[np.int64]  # (F, CLAUSE)

    def fill(
        self, topics: NDArray[np.int64], which: NDArray[np.float64], choices: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Phrases about `topics` (N,); `which` (N,) and `choices` (N, CLAUSE) in [0, 1) choose phrasing and words.

        The two words of a pair are chosen by one number, the first one's, so that they belong together.
        """
        codes = self.codes[(which * len(self.codes)).astype(np.int64)]  # (N, CLAUSE)
        second = codes == -1 - _SLOTS.index("SECOND")
        choices = np.where(second, np.roll(choices, 1, axis=1), choices)
        words = _WORDS[topics[:, None], np.maximum(-codes - 1, 0), (choices * _CHOICES).astype(np.int64)]
        return np.where(codes < 0, words, codes)


def _phrases(phrasings: tuple[str, ...]) -> Phrases:
    numbers = {slot: -1 - k for k, slot in enumerate(_SLOTS)} | _NUMBERS
    rows = [[numbers[word] for word in phrase.split()] for phrase in phrasings]
    return Phrases(np.array([row + [0] * (CLAUSE - len(row)) for row in rows]))


def _words() -> NDArray[np.int64]:
    """Each topic's words for each slot, repeated until there are equally many: (topics, slots, choices)."""
    table = np.zeros((len(_TOPICS), len(_SLOTS), _CHOICES), np.int64)
    for t, (who, did, what, pairs) in enumerate(_TOPICS.values()):
        first, second = zip(*(pair.split() for pair in pairs.split(", ")), strict=True)
        for s, words in enumerate((who.split(), did.split(), what.split(), _ADJECTIVES, first, second)):
            table[t, s] = np.resize([_NUMBERS[word] for word in words], _CHOICES)
    return table


_WORDS = _words()
SAYING, DENYING = _phrases(_SAYING), _phrases(_DENYING)
