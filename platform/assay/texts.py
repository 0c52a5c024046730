"""What a reader can see of a text."""

from __future__ import annotations

import unicodedata


def has_visible(text: str) -> bool:
    """Whether anything of ``text`` shows: spaces, controls, direction marks and joiners alone do not."""
    return any(unicodedata.category(character)[0] not in "CZ" for character in text)
