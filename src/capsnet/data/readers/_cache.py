"""A folder for things that can be made again: found as each platform expects, written atomically, never required."""

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
    """Write ``data`` so that other processes see all of it or nothing. A full or read-only disk is no error here."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError:
        return False
    return True
