"""A user's own images: files, labels and splits."""
