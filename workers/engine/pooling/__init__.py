"""Texts to encodings, and encodings to scores."""
