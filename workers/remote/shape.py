"""What a remote engine's language must be able to say; one file beside this one per language."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from workers.engine.types import PoolingTask, TextRole

Call = tuple[str, dict[str, Any]]  # path and body
# A vector, a row per token, or a share per class: in the classes' order, or by their names.
Pooled = Sequence[float] | Sequence[Sequence[float]] | Mapping[str, float]


class Shape(ABC):
    """Readers raise KeyError, TypeError, IndexError, ValueError or AttributeError on what is no such answer."""

    most_documents: ClassVar[int]  # of one call
    most_texts: ClassVar[int]

    @abstractmethod
    def rerank(self, model: str, query: str, documents: Sequence[str]) -> Call: ...

    @abstractmethod
    def scores(self, answer: Any) -> list[tuple[int, float]]:
        """(place of the document, relevance)"""

    @abstractmethod
    def pool(self, task: PoolingTask, model: str, texts: Sequence[str], role: TextRole, *, raw: bool = False) -> Call:
        """A task that the language has for the model's kind; ``raw``: logits of classes in place of shares."""

    @abstractmethod
    def pooled(self, task: PoolingTask, answer: Any) -> list[Pooled]:
        """In the order of the texts."""


def reported_model(answer: Any) -> str:
    """The name under which the server says it computed; empty where it does not say."""
    name = answer.get("model") if isinstance(answer, dict) else None
    return name if isinstance(name, str) and len(name) <= 200 and name.isprintable() else ""


def reported_tokens(answer: Any) -> int:
    usage = answer.get("usage") if isinstance(answer, dict) else None
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) and tokens >= 0 else 0


def by_index(items: Sequence[Any]) -> list[Any]:
    return sorted(items, key=lambda item: item["index"])
