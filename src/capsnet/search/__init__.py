"""Search for better settings of a recipe with Optuna (extra ``capsnet[search]``), judged by the validation split only.

import capsnet
from capsnet.search import search

result = search("demo", "rate", trials=20, epochs=2, limit=10_000)
capsnet.train(result.best)
"""

from capsnet.search._search import SearchResult, search
from capsnet.search._verdict import Verdict
from capsnet.search.spaces import describe, list_spaces

__all__ = ["SearchResult", "Verdict", "describe", "list_spaces", "search"]
