"""``push``: a trained model and its card to the Hugging Face hub."""

import json
import logging
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from capsnet._files import write_atomically
from capsnet.models import Model
from capsnet.weights._format import load_file, save
from capsnet.weights._hub import SCHEME, WEIGHTS, Address, library, parse, sentences
from capsnet.weights._readme import model_card
from capsnet.weights._resolve import SHIPPED, resolve

log = logging.getLogger("capsnet")

README = "README.md"
UNKNOWN = "unknown"  # the hub's word for a licence that nobody has stated


class Pushed(NamedTuple):
    """Where a model is now: the name that ``load`` takes, its page, and the commit (empty if nothing was uploaded)."""

    name: str
    url: str
    commit: str = ""


def push(
    model: Model | str | Path,
    repository: str,
    *,
    license: str | None = None,
    private: bool | None = None,
    card: bool = True,
    message: str | None = None,
    out: str | Path | None = None,
) -> Pushed:
    """Upload a model's weights and a model card to the Hugging Face hub, from where ``load("hf:user/name")`` gets them.

    The repository is made if there is none. Needs ``capsnet[hub]``, and a token: ``hf auth login`` or HF_TOKEN.

    Args:
        model: a model, or what ``load`` takes. A file of weights is uploaded as it is.
        repository: ``user/name``, or ``user/name@branch``.
        license: of the weights, by the hub's identifier, such as ``"mit"``; None is that of the package for a bundled
            model, and ``"unknown"`` for others.
        private: whether a new repository is private; None: as the user's settings on the hub say.
        card: whether to write README.md, also over an existing one.
        message: of the commit.
        out: write the files into this folder instead of uploading them.
    """
    address, hub = parse(repository), library()
    if license is not None and not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,60}", license):
        raise ValueError(f"license must be an identifier of the hub, such as mit or cc-by-4.0, got {license!r}")
    if out is None and hub.get_token() is None:
        raise ValueError(f"no token for {SCHEME}{address.repository}: log in with `hf auth login`, or set HF_TOKEN")
    with tempfile.TemporaryDirectory() as folder:
        path = save(model, Path(folder) / WEIGHTS) if isinstance(model, Model) else resolve(model)
        if path.suffix.lower() == ".onnx":
            raise ValueError(f"{path} is an exported file: push the weights that it was made from")
        loaded = load_file(path)  # what others could not load is not uploaded
        _warn_of_paths(loaded)
        chosen = license or ("mit" if path.parent == SHIPPED else UNKNOWN)
        files = {WEIGHTS: path.read_bytes()}
        if card:
            files[README] = model_card(loaded, address, chosen).encode()
        if out is not None:
            return _write(files, Path(out), address)
        return _upload(files, address, private, message or "Upload a model of capsnet")


def _write(files: dict[str, bytes], folder: Path, address: Address) -> Pushed:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(folder / name, content)
    return Pushed(str(address), folder.resolve().as_uri())


def _upload(files: dict[str, bytes], address: Address, private: bool | None, message: str) -> Pushed:
    hub = library()
    api = hub.HfApi(library_name="capsnet")
    with sentences(str(address)):
        page = api.create_repo(address.repository, private=private, exist_ok=True)
        if address.revision:
            api.create_branch(address.repository, branch=address.revision, exist_ok=True)
        adding = [hub.CommitOperationAdd(name, content) for name, content in files.items()]
        done = api.create_commit(address.repository, adding, commit_message=message, revision=address.revision or None)
    return Pushed(str(address), str(page), done.oid)


def _warn_of_paths(model: Model) -> None:
    """The card in the file says with which command and data it was trained: say so if that names a user's folder."""
    if (home := str(Path.home())) != "/" and home in json.dumps(model.card):
        log.warning("the file's own card has paths below %s, which become public: see `capsnet info --json`", home)
