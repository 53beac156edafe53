"""A cache folder for files that can be made again; a cache that cannot be written is no error."""

import os
import sys
from pathlib import Path

from capsnet._files import write_atomically


def cache_dir() -> Path:
    """CAPSNET_CACHE, else XDG_CACHE_HOME/capsnet, else the platform's own place (~/.cache/capsnet on Linux)."""
    if chosen := os.environ.get("CAPSNET_CACHE"):
        return Path(chosen).expanduser()
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen).expanduser() / "capsnet"
    if sys.platform == "win32" and (chosen := os.environ.get("LOCALAPPDATA")):
        return Path(chosen) / "capsnet" / "Cache"
    home = Path(os.path.expanduser("~"))  # unlike Path.home() it never raises
    return home / "Library" / "Caches" / "capsnet" if sys.platform == "darwin" else home / ".cache" / "capsnet"


def store(path: Path, data: bytes) -> bool:
    """Write ``data`` atomically; False on a full or read-only disk."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError:
        return False
    return True
