"""Weights on the Hugging Face hub: ``hf:user/name``, or ``hf:user/name@revision``.

One file of a repository is read: its weights, which are checked like any other file of weights. huggingface_hub (extra
``hub``) fetches and caches it, and obeys HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE. It is imported when such a
name is used.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from capsnet._version import __version__
from capsnet.weights._format import read_metadata

SCHEME = "hf:"
WEIGHTS = "model.safetensors"  # the only file of a repository that is read
MOST_BYTES = 4 * 2**30  # of weights; the paper's network has 33 MB
_PART = r"[A-Za-z0-9](?:[\w.-]{0,94}[A-Za-z0-9_])?"
_REPOSITORY = re.compile(rf"{_PART}/{_PART}", re.ASCII)
_LOG_IN = "log in with `hf auth login` or set HF_TOKEN"


class Address(NamedTuple):
    """A repository, and a branch, tag or commit of it; None is the main branch."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{SCHEME}{self.repository}" + (f"@{self.revision}" if self.revision else "")


def is_address(name: str | Path) -> bool:
    """Whether a name is one of the hub. A file that is called so needs ``./`` before its name."""
    return str(name).startswith(SCHEME)


def parse(name: str | Path) -> Address:
    """The parts of ``hf:user/name@revision``; the scheme may be missing."""
    repository, at, revision = str(name).removeprefix(SCHEME).partition("@")
    wrong = not _REPOSITORY.fullmatch(repository) or "--" in repository or ".." in repository
    if wrong or (at and not re.fullmatch(r"[\w.+/-]{1,200}", revision, re.ASCII)) or ".." in revision:
        raise ValueError(
            f"{str(name)[:200]!r} names no repository of the hub: write hf:user/name, or hf:user/name@revision"
        )
    return Address(repository, revision or None)


def fetch(name: str | Path, *, download: bool = True) -> Path:
    """The file of weights of a repository, in huggingface_hub's cache.

    Without ``download`` only the cache is searched, as with HF_HUB_OFFLINE.
    """
    address, hub = parse(name), library()
    with sentences(str(address), asked=download):
        if download and (size := _size(hub, address)) is not None and size > MOST_BYTES:
            raise ValueError(
                f"{WEIGHTS} of {address} has {size / 2**30:.1f} GB, at most {MOST_BYTES / 2**30:g} are fetched: "
                "if you trust it, download it and give the file"
            )
        path = hub.hf_hub_download(
            address.repository,
            WEIGHTS,
            revision=address.revision,
            local_files_only=not download,
            library_name="capsnet",
            library_version=__version__,
        )
    try:
        read_metadata(path)
    except ValueError as error:
        raise ValueError(f"{address} has no weights of capsnet: {error}") from None
    return Path(path)


def _size(hub: Any, address: Address) -> int | None:
    """How large the weights are; None if the hub cannot be asked: fetching then finds the cached file, or says why."""
    try:
        url = hub.hf_hub_url(address.repository, WEIGHTS, revision=address.revision)
        return hub.get_hf_file_metadata(url, token=hub.get_token()).size
    except Exception:  # of one of three HTTP libraries, by version; offline, not found, no permission, ...
        return None


def library() -> Any:
    """huggingface_hub, or one sentence if it is not installed."""
    try:
        return import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        raise ValueError(
            f"models of the hub ({SCHEME}user/name) need {error.name}: pip install 'capsnet[hub]'"
        ) from None


@contextmanager
def sentences(name: str, asked: bool = True) -> Iterator[None]:
    """Turn what huggingface_hub raises into one sentence about ``name``. ``asked``: not only the cache."""
    errors, settings = (import_module(f"huggingface_hub.{part}") for part in ("errors", "constants"))
    endpoint = settings.ENDPOINT
    try:
        yield
    except errors.LocalEntryNotFoundError:
        why = f"{endpoint} cannot be reached" if asked else "nothing is downloaded here"
        why = "HF_HUB_OFFLINE is set" if settings.HF_HUB_OFFLINE else why
        raise FileNotFoundError(f"{name} is not in the cache ({settings.HF_HUB_CACHE}), and {why}") from None
    except errors.OfflineModeIsEnabled:
        raise ConnectionError(f"{name}: HF_HUB_OFFLINE is set, so the hub is not asked") from None
    except errors.GatedRepoError:
        raise PermissionError(f"{name} is gated: ask for access on its page at {endpoint}, and {_LOG_IN}") from None
    except errors.RepositoryNotFoundError:
        raise FileNotFoundError(
            f"there is no model {name} at {endpoint}, or it is private: check the name, and {_LOG_IN}"
        ) from None
    except errors.RevisionNotFoundError:
        raise FileNotFoundError(f"{name}: the repository has no such branch, tag or commit") from None
    except errors.EntryNotFoundError:
        raise FileNotFoundError(
            f"{name} has no weights of capsnet: there is no {WEIGHTS} in it, as `capsnet push` writes it"
        ) from None
    except errors.HFValidationError as error:
        raise ValueError(f"{name}: {error}") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else None
        if status in (401, 403):
            raise PermissionError(
                f"{name}: {endpoint} refuses ({status}): {_LOG_IN}, with the right to write"
            ) from None
        raise ConnectionError(f"{name}: {endpoint} answered {status}: {_first_line(error)}") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2", "requests"):
            raise
        raise ConnectionError(f"{name}: {endpoint} cannot be reached: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:300]
