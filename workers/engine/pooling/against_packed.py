"""A request against a list that was packed before: only its queries are read.

Shapes: N documents asked for, d different ones of them that hold a token; q distinct queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from workers.engine.caches.cached_encoding import CacheKey, packed_key
from workers.engine.caches.embedding_cache import PackedTier
from workers.engine.errors import EngineError
from workers.engine.pooling.encoding_ahead import distinct_documents
from workers.engine.pooling.packed_documents import PackedDocuments, packed
from workers.engine.role import Role
from workers.engine.sequence import EmbeddingResults, EncodingResults, Sequence, Work
from workers.engine.texts.distinct import DistinctTexts
from workers.engine.types import PackedList, ScoringRequest


@dataclass(frozen=True, slots=True)
class PackedLists:
    """Those of one encoder, whose ``key`` is that of its encodings but for the digest."""

    tier: PackedTier
    key: CacheKey
    device: torch.device

    def keep(self, work: Work) -> None:
        """Pack what an ``EncodingRequest`` encoded or found. Raises EngineError when it is over the budget."""
        request, done = work.encoding, work.results
        assert isinstance(done, EncodingResults)
        size = sum(sequence.encoding.bytes for sequence in done.sequences if sequence.encoding is not None)
        if size > self.tier.budget_bytes:
            raise EngineError(
                "packed_too_large",
                f"The encodings of these {len(request.documents):,} documents take {size / 2**20:,.0f} MiB, and "
                f"{self.tier.budget_bytes / 2**20:,.0f} MiB are set aside for packed lists. Ask for fewer documents, "
                "or raise that limit.",
            )
        whole = packed(request.documents, distinct_documents(request), done.sequences)
        self.tier.put(packed_key(self.key, request.pack_as), whole.to(self.device))

    def results(self, wanted: PackedList, request: ScoringRequest, texts: DistinctTexts) -> EmbeddingResults:
        """Where scores go; what is known of the documents is in already. Raises EngineError ``not_packed``."""
        whole = self.tier.get(packed_key(self.key, wanted.key))
        if whole is None:
            raise EngineError(
                "not_packed", f"There is no list '{wanted.key}' of the model '{request.model}'. Encode it first."
            )
        row_of = whole.row_of if wanted.chosen is None else whole.row_of[list(wanted.chosen)]  # [N]
        if len(row_of) != wanted.count:
            raise EngineError(
                "not_packed",
                f"The list '{wanted.key}' holds {len(row_of):,} documents, {wanted.count:,} were expected.",
            )
        rows = np.arange(len(whole.tokens))
        if wanted.chosen is not None:
            rows = np.unique(row_of[row_of >= 0])
            row_of = np.where(row_of >= 0, np.searchsorted(rows, row_of), -1)
        results = EmbeddingResults(
            texts.query_of, row_of.copy(), np.full((len(texts.queries), len(rows)), np.nan, dtype=np.float32), None
        )
        results.tokens = int(whole.tokens[rows].sum())
        results.cached_documents = len(rows)
        cut = whole.truncated[rows]
        results.truncated = {(Role.DOCUMENT, int(row)): int(cut[row]) for row in np.flatnonzero(cut)}
        results.packed = whole if wanted.chosen is None else whole.alone(rows)
        return results


def await_queries(work: Work, results: EmbeddingResults, queries: list[Sequence], count: int) -> None:
    """Put them into the queue, charged for their MaxSim too; ``count`` are there without the empty ones."""
    for index in set(range(count)) - {sequence.index for sequence in queries}:
        results.mark_empty(Role.QUERY, index)
    vectors = sum(results.packed.vectors) if isinstance(results.packed, PackedDocuments) else 0
    for sequence in queries:
        results.tokens += sequence.tokens
        results.query_tokens += sequence.tokens
        results.truncated[Role.QUERY, sequence.index] = sequence.truncated
        sequence.products = sequence.tokens * vectors
    if results.cached_documents:
        work.pending.extend(queries)
