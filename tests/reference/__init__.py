"""The papers' procedures, transcribed with plain Python loops: slow, obvious, and what the library is compared with."""
