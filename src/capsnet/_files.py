"""Paths from users, atomic writing, and a cache folder for files that can be made again."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

TEMPORARY = ".*.tmp"  # temporary files that a killed process may leave


def expanded(path: str | Path) -> Path:
    """The path with ``~`` or ``~user`` expanded; unchanged if there is no such user, as in ``~x.jpg``."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def check_text(path: str | Path, what: str) -> None:
    """Refuse a name that is not UTF-8 before training, because safetensors and cards need it.

    File names are bytes, and those from old disks and archives may have another encoding.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = str(path).encode(errors="backslashreplace").decode()
        raise ValueError(
            f"{shown}: the name of the {what} is not UTF-8: rename it; if it is, PYTHONUTF8=1 in the environment reads "
            "names as UTF-8 in this locale"
        ) from None


def write_atomically(path: str | Path, content: bytes | str) -> Path:
    """Write a whole file or nothing: a temporary file beside it, flushed to the disk, then renamed over it.

    On any failure (a full disk, a signal, a missing folder) the old file stays and no new one is left.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}")
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError) and error.filename is None:  # a full disk: which file?
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    return path


def cache_dir() -> Path:
    """CAPSNET_CACHE, else XDG_CACHE_HOME/capsnet, else the platform's own place (~/.cache/capsnet on Linux).

    Without a home directory it is a place that nobody can write to: files are then made or unpacked anew each time.
    """
    if chosen := os.environ.get("CAPSNET_CACHE"):
        return expanded(chosen)
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return expanded(chosen) / "capsnet"
    if sys.platform == "win32" and (chosen := os.environ.get("LOCALAPPDATA")):
        return Path(chosen) / "capsnet" / "Cache"
    home = Path(os.path.expanduser("~"))  # unlike Path.home() it never raises
    if not home.is_absolute():  # no HOME and no such user: not a folder called ~ in the working directory
        home = Path("/nonexistent")
    return home / "Library" / "Caches" / "capsnet" if sys.platform == "darwin" else home / ".cache" / "capsnet"


def store(path: Path, data: bytes) -> bool:
    """Write ``data`` atomically into the cache; False on a full or read-only disk, which is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError:
        return False
    return True
