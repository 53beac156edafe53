"""From a text to a model's input and back: the counterpart of ``Preprocess`` for texts."""

import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, tensor

PADDING, UNKNOWN = "<padding>", "<unknown>"
_WORD = r"[^\W_]+(?:['’-][^\W_]+)*"  # noqa: RUF001


class Words(BaseModel):
    """The vocabulary, stored in the weights file. Word 0 is padding, word 1 every word that is not listed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    vocabulary: tuple[str, ...] = Field(min_length=3)

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.vocabulary)}

    def __call__(self, text: object) -> Tensor:
        """The numbers of a text's words, (L,) int64: lower case, punctuation left out. ValueError if it is no text."""
        if not isinstance(text, str):
            raise ValueError(f"the model takes text, got {type(text).__name__}")
        numbers = [self.numbers.get(word, 1) for word in re.findall(_WORD, text.lower())]
        if all(number == 1 for number in numbers):
            some = ", ".join(self.vocabulary[2:8])
            raise ValueError(f"the model takes text and knows no word of {text!r}; it knows words such as {some}")
        return tensor(numbers)

    def text(self, numbers: ArrayLike) -> str:
        """The words of numbers (L,), padding left out."""
        return " ".join(self.vocabulary[number] for number in np.asarray(numbers) if number)


def vocabulary_of(*lists: Sequence[str]) -> tuple[str, ...]:
    """Padding, unknown, then each word once, in the order of the lists."""
    return tuple(dict.fromkeys([PADDING, UNKNOWN, *(word for words in lists for word in words)]))
