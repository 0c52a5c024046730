"""What a sequence is to its request."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    QUERY = "query"
    DOCUMENT = "document"
    PROMPT = "prompt"
