"""What a sequence is to its request."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    QUERY = "query"
    DOCUMENT = "document"
    PROMPT = "prompt"
