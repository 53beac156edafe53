"""Search for better settings of a recipe, with Optuna (the extra ``capsnet[search]``), by the validation split alone.

import capsnet
from capsnet.search import search
found = search("demo", "rate", trials=20, epochs=2, limit=10_000)
capsnet.train(found.best)
"""

from capsnet.search._search import Found, search
from capsnet.search._verdict import Verdict
from capsnet.search.spaces import describe, list_spaces

__all__ = ["Found", "Verdict", "describe", "list_spaces", "search"]
