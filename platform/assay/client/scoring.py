"""The calls that score at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from assay.client.flows import Flow, Resource, S, given, operation, resource_path
from assay.client.shapes import Document, EmbedAnswer, ModelCard, RankAnswer, RerankAnswer, ScoreAnswer

GRACE_SECONDS: Final = 5.0  # the server says itself that a deadline has passed; the client only waits a little longer


class Scoring(Resource[S]):
    """``timeout`` is the deadline in seconds that the server is given; ``fields`` are further ones of the request, such
    as ``instruction`` or ``max_tokens_per_doc``."""

    @operation
    def rerank(
        self, query: str, documents: Sequence[Document], *, model: str | None = None, top_n: int | None = None,
        timeout: float | None = None, **fields: Any,
    ) -> Flow[RerankAnswer]:  # fmt: skip
        """The documents by their relevance to the query, the best first."""
        body = {"query": query, "documents": list(documents), **given(model=model, top_n=top_n), **fields}
        return self._score("/v1/rerank", body, timeout)

    @operation
    def rank(
        self, document_set: str, query: str, *, model: str | None = None, ids: Sequence[str] | None = None,
        bm25: int | None = None, top_n: int | None = None, timeout: float | None = None, **fields: Any,
    ) -> Flow[RankAnswer]:  # fmt: skip
        """The documents of a stored set by their relevance to the query, the best first: all, those with ``ids``, or
        the best ``bm25`` by BM25. While the set is encoded for the model the call is made again, see ``retries``."""
        candidates = given(ids=None if ids is None else list(ids), bm25=bm25) or None
        body = {"query": query, **given(model=model, candidates=candidates, top_n=top_n), **fields}
        return self._score(resource_path("document-sets", document_set, "rank"), body, timeout)

    @operation
    def score(
        self, queries: str | Sequence[str], documents: Sequence[Document], *, model: str | None = None,
        mode: str = "pairs", timeout: float | None = None, **fields: Any,
    ) -> Flow[ScoreAnswer]:  # fmt: skip
        """Scores in the order sent: one query with every document, query i with document i, or ``mode="matrix"``."""
        body = {"queries": queries, "documents": list(documents), "mode": mode, **given(model=model), **fields}
        return self._score("/v1/score", body, timeout)

    @operation
    def explain(
        self, query: str, document: str, *, model: str | None = None, timeout: float | None = None, **fields: Any
    ) -> Flow[dict[str, Any]]:
        """One pair's score and why it is that: the tokens that were read and what they gave."""
        body = {"query": query, "document": document, **given(model=model), **fields}
        return self._score("/v1/explain", body, timeout)

    @operation
    def embed(
        self, texts: str | Sequence[str], *, model: str | None = None, input_type: str | None = None,
        timeout: float | None = None, **fields: Any,
    ) -> Flow[EmbedAnswer]:  # fmt: skip
        """One vector per text; ``input_type`` is ``query`` or ``document``."""
        body = {"input": texts, **given(model=model, input_type=input_type), **fields}
        return self._score("/v1/embeddings", body, timeout)

    @operation
    def generative(
        self, query: str, items: Sequence[Document], *, labels: Sequence[str] | None = None, model: str | None = None,
        timeout: float | None = None, **fields: Any,
    ) -> Flow[ScoreAnswer]:  # fmt: skip
        """What a causal model answers about every item: ``score`` is the first label's probability."""
        body = {"query": query, "items": list(items), **given(model=model, labels=labels), **fields}
        return self._score("/generative_scoring", body, timeout)

    @operation
    def cards(self) -> Flow[list[ModelCard]]:
        """The models that answer requests, with their limits."""
        return self._cards()

    def _cards(self) -> Flow[list[ModelCard]]:
        answer = yield from self._ask("GET", "/v1/models")
        cards: list[ModelCard] = answer["data"]
        return cards

    def _score(self, path: str, body: dict[str, Any], timeout: float | None) -> Flow[Any]:
        """Scoring changes nothing, so it may be asked twice."""
        if timeout is None:
            return self._ask("POST", path, json=body)
        headers = {"X-Timeout-Ms": str(max(1, round(1000 * timeout)))}
        return self._ask("POST", path, json=body, headers=headers, timeout=timeout + GRACE_SECONDS)
