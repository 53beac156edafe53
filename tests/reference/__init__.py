"""The papers' procedures in plain Python loops, which the library is compared with."""
