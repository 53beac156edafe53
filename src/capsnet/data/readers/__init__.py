"""Readers of published data sets in their original file formats, and the download of their files."""
