"""The page's requests and answers, with their limits."""

from typing import Annotated, Literal

from pydantic import Field

from capsnet.serving.wire import Answer, Pixels, Wire

DECODED = 16  # pictures per call
SHIFT = 12  # pixels that a digit of a pair may be moved

Name = Annotated[str, Field(min_length=1, max_length=200)]
RoutingName = Annotated[str, Field(max_length=100)]
Iterations = Annotated[int, Field(ge=1, le=10)]
Class = Annotated[int, Field(ge=0, le=9999)]
Number = Annotated[float, Field(ge=-1000, le=1000, allow_inf_nan=False)]  # of a pose
Pose = Annotated[list[Number], Field(min_length=1, max_length=256)]
Move = Annotated[int, Field(ge=-SHIFT, le=SHIFT)]
Point = Annotated[list[Number], Field(min_length=2, max_length=2)]
ChildVotes = Annotated[list[Point], Field(min_length=1, max_length=8)]
Offset = Annotated[list[Move], Field(min_length=2, max_length=2)]  # down, right


class ModelQuestion(Wire):
    model: Name


class See(ModelQuestion):
    image: Pixels
    centre: bool = True


class Question(ModelQuestion):
    """A picture for a network, whose routing may be replaced for this one call."""

    seen: Pixels
    routing: RoutingName | None = None
    iterations: Iterations | None = None


class TraceQuestion(Question):
    """``class``: whose votes to send, if any."""

    klass: Class | None = Field(alias="class", default=None)


class ToyQuestion(Wire):
    """Votes [children][parents][2] in the plane."""

    votes: Annotated[list[ChildVotes], Field(min_length=1, max_length=32)]
    routing: RoutingName
    iterations: Iterations | None = None


class Decode(ModelQuestion):
    poses: Annotated[list[Pose], Field(min_length=1, max_length=DECODED)]
    classes: Annotated[list[Class], Field(min_length=1, max_length=DECODED)]


class Sweep(ModelQuestion):
    pose: Pose
    klass: Class = Field(alias="class")


class Pair(ModelQuestion):
    first: Pixels
    second: Pixels
    offsets: Annotated[list[Offset], Field(min_length=2, max_length=2)]


class Sprite(Answer):
    """As Pixels, of any size."""

    width: int
    height: int
    channels: Literal[1, 3]
    data: str


class RoutingInfo(Answer):
    """What a routing declares; ``coupling`` and ``presence`` are formulas as text with ``_`` and ``^``."""

    name: str
    sentence: str
    iterations: int | None
    iteration_name: str
    normalised: Literal["parents", "children", "none"]
    decides: bool
    presence_is_length: bool
    coupling: str
    presence: str


class ModelInfo(Answer):
    """``margins`` and ``receptive`` have the fields of ``models.Margins`` and ``models.ReceptiveField``."""

    name: str
    title: str
    summary: str
    purpose: str
    parameters: int
    image_size: list[int]
    channels: int
    style: Literal["digit", "plain"]
    classes: list[str]
    dims: int | None
    decoder: bool
    routing: RoutingInfo | None
    routings: list[str]
    grid: list[int] | None
    multi: bool
    test_accuracy: float | None
    ranges: list[list[list[float]]] | None
    means: list[list[float]] | None
    names: list[list[str | None]] | None
    margins: dict[str, float] | None
    receptive: dict[str, int] | None
    gallery: bool
    pairs: bool


class Models(Answer):
    models: list[ModelInfo]
    routings: list[RoutingInfo]


class Seen(Answer):
    seen: Sprite


class Classified(Answer):
    """``phases``: the ink in the hues of a network's phases, which say to which object a pixel belongs."""

    lengths: list[float]
    poses: list[list[float]] | None
    order: list[int]
    reconstruction: Sprite | None
    phases: Sprite | None
    milliseconds: float
    parameters: int


class Decoded(Answer):
    pictures: list[Sprite]


class Swept(Answer):
    offsets: list[float]
    pictures: Sprite


class Votes(Answer):
    """The votes for one class in a plane: ``points`` are pairs of float32 in base64."""

    points: str
    parents: list[list[float]]
    origin: list[float]
    explained: float


class Traced(Answer):
    """Byte b of ``couplings`` means offset + scale * b / 255; ``start`` is an equal share, null where couplings need
    not sum to one. ``contributions`` are int16 (R, I, J): n means contribution * n / 32767."""

    iterations: int
    grid: list[int]
    couplings: str
    offset: float
    scale: float
    start: float | None
    entropy: list[float]
    lengths: list[list[float]]
    votes: Votes | None
    contributions: str
    contribution: float


class ToyRouted(Answer):
    """Of each iteration: couplings [children][parents], poses [parents][2], presences [parents], entropy."""

    couplings: list[list[list[float]]]
    poses: list[list[list[float]]]
    presences: list[list[float]]
    entropy: list[float]


class Paired(Seen):
    alone: list[Sprite]


class Item(Answer):
    index: int
    labels: list[int]
    seen_as: int | None


class GalleryPage(Answer):
    items: list[Item]
    sprite: Sprite
    pages: int


class Digit(Seen):
    labels: list[int]


class RandomPair(Answer):
    first: Sprite
    second: Sprite
    labels: list[int]
    offsets: list[list[int]]
