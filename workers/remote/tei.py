"""The language of text-embeddings-inference, which serves one model and so names none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workers.engine.types import TextRole


class TeiShape:
    most_documents = 32  # its default limit of a client's batch
    most_texts = 32

    def rerank(self, model: str, query: str, documents: Sequence[str]) -> tuple[str, dict[str, Any]]:
        return "/rerank", {"query": query, "texts": list(documents), "truncate": True}

    def scores(self, answer: Any) -> list[tuple[int, float]]:
        return [(result["index"], result["score"]) for result in answer]

    def embed(self, model: str, texts: Sequence[str], role: TextRole) -> tuple[str, dict[str, Any]]:
        return "/embed", {"inputs": list(texts), "truncate": True}

    def vectors(self, answer: Any) -> list[list[float]]:
        return list(answer)
