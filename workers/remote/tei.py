"""The language of text-embeddings-inference, which serves one model and so names none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workers.engine.types import PoolingTask, TextRole
from workers.remote.shape import Call, Pooled, Shape


class TeiShape(Shape):
    most_documents = 32  # its default limit of a client's batch
    most_texts = 32

    def rerank(self, model: str, query: str, documents: Sequence[str]) -> Call:
        return "/rerank", {"query": query, "texts": list(documents), "truncate": True}

    def scores(self, answer: Any) -> list[tuple[int, float]]:
        return [(result["index"], result["score"]) for result in answer]

    def pool(self, task: PoolingTask, model: str, texts: Sequence[str], role: TextRole, *, raw: bool = False) -> Call:
        if task is PoolingTask.CLASSIFY:
            # A bare list of texts would be read as one text in two parts.
            return "/predict", {"inputs": [[text] for text in texts], "raw_scores": raw, "truncate": True}
        return "/embed", {"inputs": list(texts), "truncate": True}

    def pooled(self, task: PoolingTask, answer: Any) -> list[Pooled]:
        if task is PoolingTask.CLASSIFY:
            return [{each["label"]: each["score"] for each in classes} for classes in answer]
        return list(answer)
