"""Names that people type: find them, or say which ones there are."""

import difflib
from collections.abc import Iterable


def check_name(what: str, name: str, known: Iterable[str]) -> str:
    """Return ``name`` if it is known; else say which ones are, and which was probably meant."""
    options = list(known)
    if name in options:
        return name
    close = difflib.get_close_matches(str(name), options, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"unknown {what} {name!r}.{hint} Known: {', '.join(options) or 'none'}")
