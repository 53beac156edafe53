"""Generated data sets: each example is a pure function of the seed and its number."""
