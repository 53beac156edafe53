"""Data sets that are made as they are needed: each example is a pure function of the seed and its number."""
