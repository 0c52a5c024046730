"""The language of Cohere, version 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workers.engine.types import PoolingTask, TextRole
from workers.remote.shape import Call, Pooled, Shape

INPUT_TYPES = {TextRole.QUERY: "search_query", TextRole.DOCUMENT: "search_document"}


class CohereShape(Shape):
    most_documents = 1000
    most_texts = 96

    def rerank(self, model: str, query: str, documents: Sequence[str]) -> Call:
        body = {"model": model, "query": query, "documents": list(documents), "top_n": len(documents)}
        return "/v2/rerank", body

    def scores(self, answer: Any) -> list[tuple[int, float]]:
        return [(result["index"], result["relevance_score"]) for result in answer["results"]]

    def pool(self, task: PoolingTask, model: str, texts: Sequence[str], role: TextRole, *, raw: bool = False) -> Call:
        body = {"model": model, "texts": list(texts), "input_type": INPUT_TYPES[role], "embedding_types": ["float"]}
        return "/v2/embed", {**body, "truncate": "END"}

    def pooled(self, task: PoolingTask, answer: Any) -> list[Pooled]:
        return list(answer["embeddings"]["float"])
