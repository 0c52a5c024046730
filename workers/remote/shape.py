"""What a remote engine's language must be able to say; one file beside this one per language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from workers.engine.types import TextRole


class Shape(Protocol):
    """Readers raise KeyError, TypeError, IndexError or ValueError on what is no answer of this shape."""

    most_documents: int  # of one call
    most_texts: int

    def rerank(self, model: str, query: str, documents: Sequence[str]) -> tuple[str, dict[str, Any]]:
        """Path and body."""

    def scores(self, answer: Any) -> list[tuple[int, float]]:
        """(place of the document, relevance)"""

    def embed(self, model: str, texts: Sequence[str], role: TextRole) -> tuple[str, dict[str, Any]]:
        """Path and body."""

    def vectors(self, answer: Any) -> list[list[float]]:
        """In the order of the texts."""


def reported_model(answer: Any) -> str:
    """The name under which the server says it computed; empty where it does not say."""
    name = answer.get("model") if isinstance(answer, dict) else None
    return name if isinstance(name, str) and len(name) <= 200 and name.isprintable() else ""


def reported_tokens(answer: Any) -> int:
    usage = answer.get("usage") if isinstance(answer, dict) else None
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) and tokens >= 0 else 0
