"""Segments: their files, their indexes, and the list of a log's segments."""
