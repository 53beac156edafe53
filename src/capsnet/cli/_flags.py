"""The flags of each verb, with their help and defaults: typed dataclasses that tyro turns into a command line."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from capsnet.training import TrainConfig

Device = Literal["auto", "cpu", "cuda", "mps"]


@dataclass(kw_only=True)
class TrainArgs:
    """Train a model by a recipe; any part of the recipe can be changed by a flag.

    The run leaves a folder with configuration, metrics, environment, weights, figures and a README. Ctrl-C stops after
    the current step and says how to go on.
    """

    out: str | None = None
    """Folder of the run; default: runs/RECIPE/TIME-SEED."""
    resume: str = "no"
    """`auto` goes on with the newest unfinished run of an equal configuration, else starts one; or a run folder."""
    device: Device = "auto"
    """Where to compute."""
    threads: int | None = None
    """CPU threads; None leaves PyTorch's choice."""
    compile: bool = False
    """Let torch.compile translate the network: a minute at the start, quicker steps after it."""
    folds: int | None = None
    """Cross-validate your own images in this many parts, e.g. 5: each image is tested once."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A further option of the network, as KEY=VALUE; may be repeated: `--set pose_dim=8 --set primary_types=16`."""
    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = field(default_factory=TrainConfig)


@dataclass(kw_only=True)
class EvaluateArgs:
    """Test a model on a whole data set: accuracy with its 95 % interval, precision, recall and AUC per class."""

    model: tyro.conf.Positional[str]
    """A shipped name (see `capsnet list models`), a file of weights or a run folder."""
    data: str | None = None
    """Data set, as NAME or NAME:PATH; None takes the one that the model was trained on."""
    split: str = "test"
    """Which part of it."""
    batch_size: int = 250
    """Images at a time."""
    device: Device = "auto"
    """Where to compute."""
    json: bool = False
    """Print all numbers as JSON."""


@dataclass(kw_only=True)
class PredictArgs:
    """Say what is on pictures: any size, dark on light or light on dark, a photo of a pen digit included.

    A model that was trained on texts takes texts instead of image files. A picture that cannot be read is reported, the
    others still get their answers, and the exit code is 2.
    """

    images: tyro.conf.Positional[tuple[str, ...]]
    """Image files, folders of them (with all that is below), or `-`: one image from standard input. Or texts in quotes,
    `-` being one text per line."""
    model: str
    """A shipped name (see `capsnet list models`), a file of weights, an exported .onnx file or a run folder."""
    json: bool = False
    """Print one JSON object per picture."""
    threshold: float = 0.5
    """How long a capsule must be for its class to be there; if none is, the answer is "none of them"."""
    several: bool = False
    """Name all classes that reach the threshold, not only the longest capsule's."""
    batch_size: int = 64
    """Pictures at a time."""
    save_reconstructions: str | None = None
    """Folder for what the longest capsule of each picture draws, as PNG."""


@dataclass(kw_only=True)
class ExportArgs:
    """Write a trained model as one file that runs without capsnet: any number of images at a time.

    The file is run and compared with torch before it is kept. FILE.json beside it says what it takes.
    """

    model: tyro.conf.Positional[str]
    """A shipped name (see `capsnet list models`), a file of weights or a run folder."""
    output: str
    """The file to write, such as digits.onnx, or digits.pt2 for the format torch."""
    format: Literal["onnx", "torch"] = "onnx"
    """onnx: for onnxruntime and other runtimes; torch: for `torch.export.load`."""


@dataclass(kw_only=True)
class EnsembleArgs:
    """Make one model of several: each class is as present as its capsules are on average.

    The file holds all of them and is used like the weights of one model.
    """

    models: tyro.conf.Positional[tuple[str, ...]]
    """At least two models of the same classes and pictures: shipped names, files of weights or run folders."""
    output: str
    """The file of weights to write, such as both.safetensors."""


@dataclass(kw_only=True)
class SearchArgs:
    """Search for better settings of a recipe: try out, judge by the validation split, compare the winner in the end.

    `capsnet search --spaces` says what can be searched. Stopped or killed at any moment, the same command goes on;
    started several times, on one machine or on many with one storage, it shares the work.
    """

    recipe: tyro.conf.Positional[str]
    """A recipe (see `capsnet list recipes`) or the config.json of a run."""
    space: str
    """What to change."""
    trials: int
    """How many finished trials the whole study shall have, pruned ones included."""
    storage: str | None = None
    """sqlite:///PATH, journal:PATH (a network disk) or postgresql://USER@HOST/DATABASE; default: OUT/study.db."""
    study: str | None = None
    """The study's name in the storage; default: RECIPE-SPACE."""
    timeout: float | None = None
    """Seconds after which no further trial is begun."""
    workers: int = 1
    """Processes that try things out on this machine."""
    epochs: int | None = None
    """Epochs of each trial; None takes the recipe's."""
    limit: int | None = None
    """Training images of each trial; None takes the recipe's."""
    seeds: int = 3
    """How often winner and recipe are trained again, with new seeds, to compare them; 0 does not."""
    out: str | None = None
    """Folder of everything; default: runs/RECIPE/search-SPACE."""
    device: Device = "auto"
    """Where to compute."""


@dataclass(kw_only=True)
class ExperimentArgs:
    """What every experiment can be told."""

    budget: Literal["smoke", "quick", "shipped", "paper"] = "quick"
    """smoke: does it run? quick: minutes, small networks. shipped: the trained networks in the box, for
    affine, perturb and multimnist-figure. paper: the full setting; says how long it takes and asks."""
    seeds: int | None = None
    """How often each network is trained; None takes 1, and 3 for the paper's setting."""
    out: str = "results"
    """Folder for all results; this one goes to OUT/BUDGET/NAME."""
    device: Device = "auto"
    """Where to compute."""
    fresh: bool = False
    """Start from nothing, whatever was done there before."""
    yes: bool = False
    """Do not ask."""


@dataclass(kw_only=True)
class ReproduceArgs(ExperimentArgs):
    """Reproduce a table or figure of the literature: train what it needs, measure, draw, write a page about it.

    Stopped at any moment, the same command goes on where it was. `capsnet reproduce --list` names the experiments.
    """

    name: tyro.conf.Positional[str]
    """Which experiment, or `all`."""


@dataclass(kw_only=True)
class CompareArgs(ExperimentArgs):
    """Put routings side by side: the same network and data, one table of error, time, memory, parameters and entropy.

    Also: what a network that was trained with its own number of iterations does with others at test time.
    """

    routings: tuple[str, ...] = ()
    """Which ones (see `capsnet list routings`; also fixed-point, kmeans-inner, em-full); all of them by default."""
    recipe: str | None = None
    """A recipe of a network that takes a routing, or the config.json of a run: trained for its own number of epochs,
    whatever the budget (but `smoke`). By default the small CapsNet on MNIST."""


@dataclass(kw_only=True)
class ExploreArgs:
    """Open a page on which you draw a digit, see which capsules answer, turn their knobs and watch the routing.

    It listens on this machine only. Ctrl-C stops it.
    """

    models: tyro.conf.Positional[tuple[str, ...]] = ()
    """Shipped names (see `capsnet list models`), files of weights or run folders; by default all shipped ones."""
    port: int | None = None
    """Where to listen; None takes the first free port from 8028 on."""
    host: str = "127.0.0.1"
    """Address to listen on. Beyond this machine visitors need the token that is printed."""
    browser: bool = True
    """Open the page in the browser."""
    token: str | None = None
    """What visitors have to bring; None makes a random one where one is needed."""
    name: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """What else the server answers to, because a proxy in front of it is called so, as --name caps.example.org; may be
    repeated. Visitors need the token then, too."""


@dataclass(kw_only=True)
class ListArgs:
    """List what there is, one line each."""

    what: tyro.conf.Positional[Literal["models", "routings", "datasets", "recipes", "experiments"]]
    """Which of the registries."""
