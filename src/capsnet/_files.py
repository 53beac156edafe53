"""Finding files, and writing them so that nobody ever sees half of one."""

import contextlib
import os
import tempfile
from pathlib import Path

TEMPORARY = ".*.tmp"  # what a killed process may leave behind


def expanded(path: str | Path) -> Path:
    """The path with its ``~`` or ``~user`` filled in; as it is if there is no such user: ``~x.jpg`` is a fine name."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def check_text(path: str | Path, what: str) -> None:
    """Refuse a name that no card, figure or terminal can show, before hours of training end in an error.

    File names are bytes, and those from old disks and archives need not be UTF-8; safetensors cannot open such files.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = str(path).encode(errors="backslashreplace").decode()
        raise ValueError(f"{shown}: the name of the {what} is not UTF-8: rename it") from None


def write_atomically(path: str | Path, content: bytes | str) -> Path:
    """Write a whole file or nothing: a temporary file beside it, flushed to the disk, then renamed over it.

    On any failure (a full disk, a signal, a missing folder) the old file stays as it was and nothing new is left.
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
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    return path
