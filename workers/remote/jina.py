"""The language of Jina, which others speak too; embeddings as OpenAI has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workers.engine.types import PoolingTask, TextRole
from workers.remote.shape import Call, Pooled, Shape, by_index


class JinaShape(Shape):
    most_documents = 100
    most_texts = 64

    def rerank(self, model: str, query: str, documents: Sequence[str]) -> Call:
        return "/v1/rerank", {
            "model": model, "query": query, "documents": list(documents), "top_n": len(documents),
            "return_documents": False,
        }  # fmt: skip

    def scores(self, answer: Any) -> list[tuple[int, float]]:
        return [(result["index"], result["relevance_score"]) for result in answer["results"]]

    def pool(self, task: PoolingTask, model: str, texts: Sequence[str], role: TextRole, *, raw: bool = False) -> Call:
        return "/v1/embeddings", {"model": model, "input": list(texts), "encoding_format": "float"}

    def pooled(self, task: PoolingTask, answer: Any) -> list[Pooled]:
        return [item["embedding"] for item in by_index(answer["data"])]
