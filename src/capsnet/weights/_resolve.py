"""Find a model by bundled name, file, run folder or name on the hub."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from capsnet.data import Preprocess
from capsnet.models import Ensemble, Model
from capsnet.weights import _hub
from capsnet.weights._format import load_file, read_converted
from capsnet.weights.onnx_file import load_onnx

SHIPPED = Path(__file__).parent / "shipped"
RUN_WEIGHTS = "model.safetensors"


def list_weights() -> list[str]:
    """The names of the bundled trained models."""
    return sorted(path.stem for path in SHIPPED.glob("*.safetensors"))


def resolve(name_or_path: str | Path, *, download: bool = True) -> Path:
    """The file of weights that a bundled name, a file, a run folder or a name on the hub (``hf:user/name``) stands for.

    Without ``download`` a model of the hub is searched for in the cache only.
    """
    path = Path(name_or_path)
    if str(name_or_path) in list_weights():
        return SHIPPED / f"{name_or_path}.safetensors"
    if _hub.is_address(name_or_path):
        return _hub.fetch(name_or_path, download=download)
    if path.is_dir():
        if (path / RUN_WEIGHTS).is_file():
            return path / RUN_WEIGHTS
        if (path / "checkpoint.pt").is_file():
            raise ValueError(f"the run in {path} is not finished: resume it with --resume {path}")
        raise ValueError(f"{path} is not a run folder: it has no {RUN_WEIGHTS}")
    if path.is_file():
        return path
    near = difflib.get_close_matches(str(name_or_path), list_weights(), 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise FileNotFoundError(
        f"no model {str(name_or_path)!r}: neither a file, nor a run folder, nor one of the bundled models "
        f"({', '.join(list_weights()) or 'none'}), nor a name on the hub, as hf:user/name.{hint}"
    )


def load(name_or_path: str | Path) -> Model:
    """A trained model in evaluation mode on the CPU.

    ``name_or_path`` is a bundled name, a file of weights or of ONNX, a run folder, or ``hf:user/name`` or
    ``hf:user/name@revision``, a model on the Hugging Face hub.
    """
    path = resolve(name_or_path)
    return load_onnx(path) if path.suffix.lower() == ".onnx" else load_file(path)


def ensemble(models: Sequence[Model | str | Path]) -> Model:
    """Several trained models as one, whose lengths are the mean of theirs: see ``models.Ensemble``."""
    members = [model if isinstance(model, Model) else load(model) for model in models]
    for member in members:  # an older file does not state what later became an option: complete it, so they compare
        if member.preprocessing and not member.takes_texts:
            member.preprocessing = Preprocess(**member.preprocessing).model_dump()
    return Ensemble(members).eval()


def transfer(model: Model, name_or_path: str | Path) -> list[str]:
    """Start ``model`` from trained weights: copy every tensor that fits, return the names of those that do not.

    For fine-tuning: with another number of classes, the class capsules and the decoder keep their initial weights. If
    the first layer does not fit, it is another network: an error. Integer tensors are counters of the other training,
    unless the model declares them (``transferred``): they are not copied, and not among the names.
    """
    path = resolve(name_or_path)
    tensors, targets = (
        read_converted(path),
        {n: t for n, t in model.state_dict().items() if t.is_floating_point() or n in model.transferred},
    )
    fitting = {name: t for name, t in tensors.items() if name in targets and targets[name].shape == t.shape}
    first = next(name for name, _ in model.named_parameters())
    if first not in fitting:
        raise ValueError(f"{path} is of another network: its first layer ({first}) does not fit this model")
    model.load_state_dict(fitting, strict=False)
    return sorted(targets.keys() - fitting.keys())
