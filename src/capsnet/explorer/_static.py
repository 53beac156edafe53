"""The page without a server: a folder that any web server serves, with the networks in the visitor's browser."""

import gzip
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from capsnet import routing
from capsnet._version import __version__
from capsnet.data import info, list_datasets
from capsnet.explorer._answers import describe_routing, introduce
from capsnet.explorer._assets import FOLDER
from capsnet.explorer._examples import write_examples
from capsnet.explorer._graphs import RoutingGraphs, decoder_graph, network_graph, variants
from capsnet.explorer._onnx_web import PACKAGE, VERSION, runtime_files
from capsnet.explorer._seen import preparation
from capsnet.explorer._service import ExplorerService, ModelEntry
from capsnet.models import Model
from capsnet.serving.service import Models, load_models

MARKER = "capsnet-explorer.json"  # a folder with this file was written here, and may be written again
TOY_PARENTS = 3
PLAIN = {"theme.js", "server.js"}  # a plain script, and what only a page with a server loads
# as the server's policy, and WebAssembly; a header could also forbid frames, which a page cannot say of itself
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
)


class Written(NamedTuple):
    """The folder, the models in it, its size and that of its files compressed by gzip, in bytes."""

    folder: Path
    models: tuple[str, ...]
    size: int
    compressed: int


def write_static(
    folder: str | Path,
    models: Models = (),
    *,
    data: str | None = None,
    runtime: str | Path | None = None,
    routings: Sequence[str] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Written:
    """See ``capsnet.explorer.write_static``."""
    folder = Path(folder).expanduser()
    _check_place(folder)
    files = runtime_files(runtime)  # first: everything below takes minutes
    service = ExplorerService(models or smallest(load_models()), data)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        _write_page(made)
        for name, content in files.items():
            _write(made / "runtime" / name, content)
        _write_networks(made / "networks", service, routings, say)
        about = {"capsnet": __version__, PACKAGE: VERSION, "models": list(service.entries)}
        _write(made / MARKER, json.dumps(about, indent=2).encode() + b"\n")
        sizes = [(len(content), len(gzip.compress(content))) for content in _contents(made)]
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)
    return Written(folder, tuple(service.entries), *map(sum, zip(*sizes, strict=True)))


def smallest(models: Mapping[str, Model]) -> dict[str, Model]:
    """Of networks for the same data, whatever its options, that can do the same, the smallest: visitors download it.

    Networks for several objects that do not draw are left out: the panel for two digits draws each of them.
    """
    chosen: dict[tuple[Any, ...], str] = {}
    tested = {name: str(model.card.get("data", "")) for name, model in models.items()}
    for name, model in sorted(models.items(), key=lambda item: (item[1].num_parameters(), tested[item[0]])):
        kind, plain = tested[name].partition(":")[0], model.pose_dim is None
        if not model.draws and kind in list_datasets() and (info(kind).objects or 1) > 1:
            continue
        chosen.setdefault((kind, model.draws, plain), name)
    return {name: models[name] for name in sorted(chosen.values(), key=lambda name: not models[name].draws)}


def _check_place(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name a folder to write")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        raise ValueError(f"{folder} holds other files (it has no {MARKER}): name a new or empty folder")
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"cannot write {folder}: there is no folder {folder.parent}")


def _write_page(made: Path) -> None:
    """The page as the server sends it, with its policy and the name of who answers in it."""
    shutil.copytree(FOLDER, made / "static", ignore=shutil.ignore_patterns("index.html"))
    text = (FOLDER / "index.html").read_text(encoding="utf-8")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    text = text.replace("<html ", '<html data-backend="runtime" ', 1)
    text = text.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n  {policy}', 1)
    early = '<script src="static/js/runtime.js" type="module"></script>'  # loads the networks beside the page
    # all modules at once, not one after another has said which it needs
    modules = sorted(path.name for path in (FOLDER / "js").glob("*.js"))
    preloads = "".join(
        f'  <link rel="modulepreload" href="static/js/{name}">\n' for name in modules if name not in PLAIN
    )
    text = text.replace("</head>", f"  {early}\n{preloads}</head>", 1)
    assert policy in text
    assert 'data-backend="runtime"' in text
    _write(made / "index.html", text.encode())


def _write_networks(
    place: Path, service: ExplorerService, routings: Sequence[str] | None, say: Callable[[str], object]
) -> None:
    def write(name: str, content: bytes) -> None:
        _write(place / name, content)

    def tell(text: str) -> None:  # around the bar, if there is one
        with tqdm.external_write_mode():
            say(text)

    forms = routing.list_forms()
    graphs = RoutingGraphs(write, None if routings is None else list(routings), tell)
    with tqdm(total=len(forms) + len(service.entries) + 1, disable=None, leave=False, dynamic_ncols=True) as bar:

        def begin(what: str) -> None:
            bar.set_description(what)
            if bar.disable:
                say(f"{what} ...")

        begin("routings")
        known = []
        for name in forms:
            own = routing.get(name)
            if file := graphs.find(own, TOY_PARENTS, name):
                known.append(describe_routing(own) | {"name": name, "file": file})
            bar.update()
        described = []
        for number, entry in enumerate(service.entries.values()):
            begin(entry.name)
            entry.profile = entry.profile or service.measure(entry)
            described.append(introduce(entry) | _write_network(entry, f"{number}-{_slug(entry.name)}", graphs, write))
            bar.update()
        begin("pictures")
        examples = write_examples(service.entries.values(), write)
    write("networks.json", json.dumps({"models": described, "routings": known}).encode())
    write("examples.json", json.dumps(examples).encode())


def _write_network(
    entry: ModelEntry, stem: str, graphs: RoutingGraphs, write: Callable[[str, bytes], None]
) -> dict[str, Any]:
    """What the runtime needs to know beyond ``introduce``; ``fixed``: its own number of iterations is the only one."""
    content, outputs = network_graph(entry.model)
    write(f"{stem}.onnx", content)
    drawn = decoder_graph(entry.model)
    if drawn is not None:
        write(f"{stem}-decoder.onnx", drawn)
    found, own = variants(entry.model, graphs), entry.model.class_routing
    return {
        "network": f"{stem}.onnx",
        "outputs": outputs,
        "decoder_file": None if drawn is None else f"{stem}-decoder.onnx",
        "variants": found,
        "routings": [name for name in found if own is None or name != own.name],
        "fixed": own is not None and own.name not in found,
        "prepare": preparation(entry.model, centre=True).model_dump(),
    }


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.")[:60] or "network"


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]
