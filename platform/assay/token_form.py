"""How an API token looks, and how to show a text that may hold one: the prefix tells which, the rest is secret."""

from __future__ import annotations

import re
from typing import Final

PREFIX: Final = "assay_"
ID_LENGTH: Final = 12
SECRET_LENGTH: Final = 43  # letters of 62: 256 bits
WHOLE: Final = re.compile(rf"{PREFIX}([0-9a-zA-Z]{{{ID_LENGTH}}})_[0-9a-zA-Z]{{{SECRET_LENGTH}}}")
# Messages quote the beginnings of what was sent, so a single letter behind the prefix may be one of a secret.
_BEGUN: Final = re.compile(rf"({PREFIX}[0-9a-zA-Z]{{{ID_LENGTH}}}_)[0-9a-zA-Z]+")


def tokens_hidden(text: str) -> str:
    """``text`` with every API token in it cut to its prefix."""
    return _BEGUN.sub(r"\1***", text)


def holds_token(text: str) -> bool:
    return WHOLE.search(text) is not None
