"""Streaming readers: bytes in, numbered rows out, a named problem for every row that cannot be kept."""
