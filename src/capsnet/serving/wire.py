"""What every request and answer is made of, with its limits.

Validation is strict: no number from a string, no unknown field, no NaN. Answers are declared for the OpenAPI schema
and its tests; they are written as plain JSON without being validated again.
"""

import json
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError, to_json

SIDE = 1024  # pixels: the largest image
FIELDS = 20  # of an object: more than any request has
BASE64 = 4 * -(-SIDE * SIDE * 3 // 3)  # characters of the largest image
NOT_A_NUMBER = "the network's answer is not a number"


class Wire(BaseModel):
    """A request, or a part of one."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def few_fields(cls, value: Any) -> Any:
        """Refuse many unknown fields at once: an error for each of a hundred thousand would block the server."""
        if isinstance(value, dict) and len(value) > FIELDS:
            counts = {"most": FIELDS, "count": len(value)}
            raise PydanticCustomError("too_many_fields", "At most {most} fields are taken, found {count}", counts)
        return value


class Pixels(Wire):
    """An image: bytes row by row, channels last, in base64. Byte b means b / 255."""

    width: Annotated[int, Field(ge=1, le=SIDE)]
    height: Annotated[int, Field(ge=1, le=SIDE)]
    channels: Literal[1, 3]
    data: Annotated[str, Field(max_length=BASE64)]


class Answer(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(extra="forbid")


class Problem(Answer):
    """Every 4xx: what was wrong, in one sentence."""

    error: str


def write(answer: dict[str, Any]) -> Response:
    """An answer as JSON. JSON has no NaN: a network with NaN weights gives a ValueError."""
    text = to_json(answer)  # for numbers twenty times as fast as ``json.dumps``
    if b"NaN" in text or b"Infinity" in text:  # as a number, or in the name of a class
        try:
            json.dumps(answer, allow_nan=False)
        except ValueError:
            raise ValueError(NOT_A_NUMBER) from None
    return Response(text, media_type="application/json")
