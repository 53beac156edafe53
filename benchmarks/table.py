"""The rows of the one table: what is measured, against what, and the aim.

The textbook is ``benchmarks/textbook.py``, the paper's network as it is usually written. Where there is none (other
networks, other routings), that column has this package's plain operators, ``kernels.using("plain")``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

import capsnet
from benchmarks import _contenders
from benchmarks._contenders import Run
from benchmarks._timing import alternate, matrix_product_peak, memory_bandwidth
from capsnet import kernels, routing
from capsnet.inference import to_int8
from capsnet.oscillators import normal, simulate

has_bf16: Callable[[], bool] = getattr(kernels, "has_bf16", torch.ops.mkldnn._is_mkldnn_bf16_supported)
COLUMNS = ("this", "this bf16", "textbook", "textbook bf16", "compiled")
PRIMARY = 36 * 256 * 256 * 81  # multiply-adds for one image: 94 % of the network


@dataclass
class Settings:
    """How much to measure. ``quick``: everything once at the smallest sizes, to see that it works."""

    rounds: int = 5
    quick: bool = False
    progress: Callable[[str], None] = lambda text: None


@dataclass
class Machine:
    """The peaks of this process."""

    product: float  # float32, operations per second
    product_bf16: float | None
    bandwidth: float  # bytes per second

    @classmethod
    def measure(cls, quick: bool) -> Machine:
        size, megabytes = (256, 8) if quick else (2048, 256)
        low = matrix_product_peak(torch.bfloat16, size) if has_bf16() else None
        return cls(matrix_product_peak(size=size), low, memory_bandwidth(megabytes))

    def lines(self) -> list[list[str]]:
        low = "no bf16" if self.product_bf16 is None else f"{self.product_bf16 / 1e9:,.0f}"
        return [
            ["matrix product, GFLOP/s", f"{self.product / 1e9:,.0f}", low, "", "", "", "", "", ""],
            ["reading memory, GB/s", f"{self.bandwidth / 1e9:,.1f}", "", "", "", "", "", "", ""],
        ]


@dataclass
class Measured:
    """One row: a cell for each column (a number, or why there is none), and for routings the time of ``dynamic``."""

    what: str
    aim: str
    cells: dict[str, float | str]  # in the unit of ``what``
    more_is_better: bool = True
    relative_to: float | None = None

    def line(self) -> list[str]:
        values = [self.cells.get(column, "") for column in COLUMNS]
        cells = [value if isinstance(value, str) else _short(value) for value in values]
        if self.relative_to is not None:
            own = self.cells["this"]
            assert isinstance(own, float)
            return [self.what, *cells, f"{own / self.relative_to:.2f} x dynamic", "", self.aim]
        return [self.what, *cells, self.ratio("this", "textbook"), self.ratio("this", "compiled"), self.aim]

    def ratio(self, ours: str, theirs: str) -> str:
        a, b = self.cells.get(ours), self.cells.get(theirs)
        if not isinstance(a, float) or not isinstance(b, float):
            return ""
        return f"{a / b if self.more_is_better else b / a:.2f}"


HEADER = ["", "this fp32", "this bf16", "textbook fp32", "textbook bf16", "compiled textbook", "this / textbook",
          "this / compiled", "aim"]  # fmt: skip


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _times(runs: dict[str, Callable[[], Run]], settings: Settings, burst: int = 1) -> dict[str, float | str]:
    """Median seconds of each contender, or why it cannot run. Each is made and tried first."""
    ready: dict[str, Run] = {}
    cells: dict[str, float | str] = {}
    for name, make in runs.items():
        if name.endswith("bf16") and not has_bf16():
            cells[name] = "no bf16"
            continue
        settings.progress(name)
        try:
            run = make()
            run()
        except Exception as error:
            if name != "compiled":
                raise
            missing = "compiler" in str(error).lower() or "InvalidCxxCompiler" in type(error).__name__
            cells[name] = "no C++ compiler" if missing else f"fails: {type(error).__name__}"
            continue
        ready[name] = run
    settings.progress("alternating")
    return cells | alternate(ready, 1 if settings.quick else settings.rounds, burst=1 if settings.quick else burst)


def _network(what: str, aim: str, size: int, make: Callable[..., Run], settings: Settings) -> Measured:
    """The paper's network in images per second."""
    ours, plain = _contenders.pair()
    ours.train(make is _contenders.training)
    runs: dict[str, Callable[[], Run]] = {
        "this": lambda: make(ours, size),
        "this bf16": lambda: make(ours, size, bf16=True),
        "textbook": lambda: make(plain, size),
        "textbook bf16": lambda: make(plain, size, bf16=True),
        "compiled": lambda: make(plain, size, compiled=True),
    }
    if settings.quick:
        del runs["compiled"]
    seconds = _times(runs, settings)
    return Measured(what, aim, {name: s if isinstance(s, str) else size / s for name, s in seconds.items()})


def train(settings: Settings, machine: Machine) -> list[Measured]:
    size = 4 if settings.quick else 128
    what = f"paper's network, training, batch {size}, images/s"
    return [_network(what, "6.3 x textbook; bf16 2 x fp32", size, _contenders.training, settings)]


def inference(settings: Settings, machine: Machine) -> list[Measured]:
    size = 4 if settings.quick else 256
    what = f"paper's network, inference, batch {size}, images/s"
    return [_network(what, "6.4 x textbook; bf16 2 x fp32", size, _contenders.inference, settings)]


def one(settings: Settings, machine: Machine) -> list[Measured]:
    """One image. The limit is reading all weights once, or the arithmetic of the deep convolution if that is longer."""
    ours, plain = _contenders.pair()
    ours.eval()
    runs: dict[str, Callable[[], Run]] = {
        "this": lambda: _contenders.inference(ours, 1),
        "this bf16": lambda: _contenders.inference(ours, 1, bf16=True),
        "textbook": lambda: _contenders.inference(plain, 1),
        "textbook bf16": lambda: _contenders.inference(plain, 1, bf16=True),
        "compiled": lambda: _contenders.inference(plain, 1, compiled=True),
        "int8": lambda: _contenders.inference(to_int8(ours), 1),
    }
    if settings.quick:
        del runs["compiled"]
    if not kernels.int8_available():
        del runs["int8"]
    cells = {name: s if isinstance(s, str) else 1e3 * s for name, s in _times(runs, settings, burst=15).items()}
    read = 4e3 * ours.num_parameters() / machine.bandwidth
    arithmetic = 2e3 * PRIMARY / machine.product
    aim = f"1.5 x {read:.1f} ms (memory); arithmetic {arithmetic:.1f} ms"
    rows = [Measured("paper's network, one image, ms", aim, cells, more_is_better=False)]
    if "int8" in cells:
        rounded = cells | {"this": cells["int8"], "this bf16": "", "textbook bf16": ""}
        rows.append(Measured("the same, 8-bit convolution (to_int8), ms", aim, rounded, more_is_better=False))
    return rows


def _own(name: str, what: str, aim: str, settings: Settings) -> list[Measured]:
    """Training of another network: this package's plain operators instead of a textbook."""
    recipe = capsnet.recipes.get(name)
    size = 4 if settings.quick else recipe.batch_size
    options = dict(recipe.model_options or {})
    if recipe.iterations is not None:
        options["iterations"] = recipe.iterations
    torch.manual_seed(0)
    model = capsnet.create_model(recipe.model, **options).train()
    runs: dict[str, Callable[[], Run]] = {
        "this": lambda: _contenders.training(model, size),
        "this bf16": lambda: _contenders.training(model, size, bf16=True),
        "textbook": lambda: _contenders.training(model, size, path="plain"),
        "textbook bf16": lambda: _contenders.training(model, size, path="plain", bf16=True),
    }
    seconds = _times(runs, settings, burst=2)
    cells = {column: s if isinstance(s, str) else size / s for column, s in seconds.items()}
    return [Measured(f"{what}, training, batch {size}, images/s", aim, cells)]


def efficient(settings: Settings, machine: Machine) -> list[Measured]:
    return _own("efficient", "Efficient-CapsNet", "1,180; bf16 1,850", settings)


def matrix(settings: Settings, machine: Machine) -> list[Measured]:
    return _own("matrix", "matrix capsules with EM", "525", settings)


def routings(settings: Settings, machine: Machine) -> list[Measured]:
    """Every registered routing and form in a dense layer, forward and backward, relative to ``dynamic``."""
    size, children = (2, 32) if settings.quick else (32, 1152)
    rows: list[Measured] = []
    usual: float | None = None
    for name in sorted(routing.list_forms(), key=lambda form: form != "dynamic"):
        settings.progress(name)
        runs: dict[str, Callable[[], Run]] = {
            "this": lambda n=name: _contenders.layer(n, size, children),
            "this bf16": lambda n=name: _contenders.layer(n, size, children, bf16=True),
            "textbook": lambda n=name: _contenders.layer(n, size, children, path="plain"),
        }
        cells = {c: s if isinstance(s, str) else 1e3 * s for c, s in _times(runs, settings).items()}
        own = cells["this"]
        assert isinstance(own, float)
        usual = own if usual is None else usual
        aim = "2 x dynamic" if name in ("em", "kmeans", "kuramoto") else ""
        what = f"routing {name}, {children} -> 10, batch {size}, both ways, ms"
        rows.append(Measured(what, aim, cells, more_is_better=False, relative_to=usual))
    return rows


def oscillators(settings: Settings, machine: Machine) -> list[Measured]:
    """The Kuramoto model, 1,000 steps of the classical Runge-Kutta method. In float64, so there is no other column."""
    count, steps = (100, 10) if settings.quick else (10_000, 1_000)

    def simulation() -> Run:
        frequencies = normal().frequencies(count)
        return lambda: simulate(frequencies, 2.0, time=0.05 * steps, every=steps)

    what = f"Kuramoto model, {count:,} oscillators, {steps:,} steps, s"
    return [Measured(what, "5", _times({"this": simulation}, settings), more_is_better=False)]


ROWS: dict[str, Callable[[Settings, Machine], list[Measured]]] = {
    "train": train,
    "inference": inference,
    "one": one,
    "efficient": efficient,
    "matrix": matrix,
    "routings": routings,
    "oscillators": oscillators,
}


def markdown(lines: list[list[str]]) -> str:
    """The table, its columns aligned."""
    widths = [max(len(line[k]) for line in [HEADER, *lines]) for k in range(len(HEADER))]
    rule = ["-" * width for width in widths]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in [HEADER, rule, *lines]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in padded)
