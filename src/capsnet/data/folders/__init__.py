"""A user's own images: which files there are, what is on them, in which split they are."""
