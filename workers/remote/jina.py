"""The language of Jina, which vLLM, infinity, LiteLLM and this platform speak too; embeddings as OpenAI has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workers.engine.types import TextRole


class JinaShape:
    most_documents = 100
    most_texts = 64

    def rerank(self, model: str, query: str, documents: Sequence[str]) -> tuple[str, dict[str, Any]]:
        return "/v1/rerank", {
            "model": model, "query": query, "documents": list(documents), "top_n": len(documents),
            "return_documents": False,
        }  # fmt: skip

    def scores(self, answer: Any) -> list[tuple[int, float]]:
        return [(result["index"], result["relevance_score"]) for result in answer["results"]]

    def embed(self, model: str, texts: Sequence[str], role: TextRole) -> tuple[str, dict[str, Any]]:
        return "/v1/embeddings", {"model": model, "input": list(texts), "encoding_format": "float"}

    def vectors(self, answer: Any) -> list[list[float]]:
        return [item["embedding"] for item in sorted(answer["data"], key=lambda item: item["index"])]
