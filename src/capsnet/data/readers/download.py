"""Find the original files of a data set, or download them.

If the user names a folder, only that is searched, and its files are trusted. All other files (on this machine, in the
cache, from the network) must have the published hash; where none was published, an archive must at least be one.
"""

import contextlib
import logging
import os
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from capsnet._files import cache_dir, expanded

TIMEOUT = 20  # seconds without an answer
CHUNK = 1 << 16

_log = logging.getLogger("capsnet")


@dataclass(frozen=True)
class Remote:
    """Where a file is published, and its hash."""

    urls: tuple[str, ...]  # mirrors, tried in this order
    hash: str | None  # "md5:..." or "sha256:..."; None where none was published


def named_folder(path: str | Path | None, variable: str | None) -> Path | None:
    """The folder (or file) that the caller or the environment variable names, if either does."""
    chosen = path if path is not None else os.environ.get(variable or "") or None
    return None if chosen is None else expanded(chosen)


def contents_of(path: Path) -> str:
    """What is at a path, for an error that says what was found."""
    if not path.is_dir():
        return "a file" if path.exists() else "nothing"
    names = sorted(entry.name for entry in path.iterdir())
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more if names else "an empty folder"


def find_or_fetch(
    data_set: str, files: Mapping[str, Remote], folder: Path | None, places: Sequence[Path] = ()
) -> dict[str, Path]:
    """Return the path of every file in ``files`` (name -> Remote).

    With a ``folder`` only that is searched, and a file NAME.gz may also be there unpacked, as NAME. Otherwise the first
    of ``places`` that has all of them is taken, then the cache folder, file by file, and what is missing is downloaded.
    """
    for place in places if folder is None else (folder,):
        paths = {name: path for name in files if (path := _present(place, name)) is not None}
        if len(paths) == len(files):
            return paths
        if folder is not None:
            missing = [name for name in files if name not in paths]
            raise FileNotFoundError(f"{folder}: expected {_listed(missing)}, found {contents_of(folder)}")
    cache = cache_dir() / data_set
    return {name: _from_cache(data_set, name, remote, cache, list(files)) for name, remote in files.items()}


def _present(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / name.removesuffix(".gz")) if path.is_file()), None)


def _from_cache(data_set: str, name: str, remote: Remote, cache: Path, files: list[str]) -> Path:
    """The file in the cache if it is intact, else a copy from the first mirror that delivers the right bytes."""
    import pooch

    path = cache / name
    if path.is_file() and _is_right(path, remote):
        return path
    wrong = "with the wrong hash" if remote.hash else "but is no zip archive"
    state = f"is in {cache} {wrong}" if path.is_file() else "is not on this machine"
    if remote.hash is None:
        path.unlink(missing_ok=True)  # pooch would use the existing file
    failures, damaged = [], False
    for url in remote.urls:
        try:
            with _quiet(pooch.get_logger()):
                _log.info("fetching %s into %s", url, cache)
                pooch.retrieve(url, remote.hash, fname=name, path=cache, downloader=cast(Any, _download))
            if _is_right(path, remote):
                return path
            path.unlink()  # a login page, for example
            raise ValueError
        except OSError as error:  # every error of the network, and a disk that cannot be written
            failures.append(f"{url}: {_deepest(error)}")
        except ValueError:
            damaged = True
            problem = f"does not have the hash {remote.hash}" if remote.hash else "is no zip archive"
            failures.append(f"{url}: the file {problem}")
    reasons = "; ".join(failures)
    if damaged:
        raise ValueError(
            f"{data_set}: {name} was downloaded but is not what was published, so it was not kept ({reasons})"
        )
    raise FileNotFoundError(
        f"{data_set}: {name} {state} and could not be downloaded ({reasons}): put {_listed(files)} into {cache}, "
        f"or into a folder of your own and write {data_set}:FOLDER"
    )


def _is_right(path: Path, remote: Remote) -> bool:
    """Whether a file is what was published: by its hash, or at least a zip archive."""
    if remote.hash is None:
        return path.suffix != ".zip" or zipfile.is_zipfile(path)
    import pooch

    algorithm, _, digest = remote.hash.partition(":")
    return pooch.file_hash(str(path), algorithm) == digest.lower()


def _download(url: str, output_file: Any, pooch: Any) -> None:
    """Write the bytes as the server stores them: the published hash is that of the packed file.

    pooch's own downloader would unpack a .gz that a server labels "Content-Encoding: gzip".
    """
    import requests
    import urllib3
    from tqdm import tqdm

    with requests.get(url, stream=True, timeout=TIMEOUT, headers={"Accept-Encoding": "identity"}) as response:
        response.raise_for_status()
        total = int(response.headers.get("Content-Length", 0)) or None
        bar = tqdm(total=total, desc=url.rpartition("/")[2], unit="B", unit_scale=True, disable=not sys.stderr.isatty())
        try:
            with bar, open(output_file, "wb") as file:
                for chunk in response.raw.stream(CHUNK, decode_content=False):
                    file.write(chunk)
                    bar.update(len(chunk))
        except urllib3.exceptions.HTTPError as error:  # cut off or silent in the middle
            raise OSError(f"the connection broke off ({error})") from error


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Silence pooch, which logs every download to stderr."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _deepest(error: BaseException) -> str:
    """The first cause, such as "Connection refused"."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return str(error)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
