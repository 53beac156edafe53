"""The card of a model: what its file says about its origin. Free, but what is shown and used has a fixed kind."""

from typing import Any

import pydantic
from typing_extensions import TypedDict

from capsnet._names import describe_error
from capsnet.data import Preprocess, Words


class Accuracy(TypedDict):
    """As ``metrics.Proportion``."""

    value: float
    low: float
    high: float
    n: int


class Known(TypedDict, total=False):
    """The entries that commands read; others may be anything."""

    __pydantic_config__ = pydantic.ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    title: str
    summary: str
    data: str
    recipe: str
    command: str
    trained_on: str | dict[str, Any]
    origin: dict[str, Any]
    tests: dict[str, Any]
    test_accuracy: Accuracy
    init: str | None
    teacher: str | None
    members: list[dict[str, Any]]


def check_card(card: dict[str, Any]) -> None:
    """Refuse a card whose known entries are of another kind, in one sentence."""
    try:
        pydantic.TypeAdapter(Known).validate_python(card)
    except pydantic.ValidationError as error:
        raise ValueError(describe_error(error, "card")) from None


def check_preprocessing(preprocessing: dict[str, Any], takes_texts: bool) -> None:
    """Refuse a preprocessing that cannot be done, in one sentence; an empty one is the default."""
    if preprocessing:
        try:
            (Words if takes_texts else Preprocess)(**preprocessing)
        except pydantic.ValidationError as error:
            raise ValueError(describe_error(error, "preprocessing")) from None
        except TypeError as error:
            raise ValueError(f"preprocessing: {error}") from None
