"""Chunks of stages that find documents instead of scoring them: by BM25, or in an uploaded run. No model takes part."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

import bm25s
import numpy as np
from django.db.models import OuterRef, Subquery

from scoring.models import Chunk, Document, Query, StageMethod
from scoring.ranking import Floats, Positions, ScoreBlock
from scoring.selectors.runs import run_entries
from scoring.states import ITEM_STATUSES, ItemStatus
from workers.bm25_indexes import Bm25Indexes
from workers.chunk_scoring import chunk_queries
from workers.engine.errors import RequestCancelled

OK: Final = ITEM_STATUSES.index(ItemStatus.OK)
LARGEST: Final = float(np.finfo(np.float32).max)
Found = tuple[Positions, Floats]  # of one query: positions [n] best first, and their scores


class Retriever:
    def __init__(self, indexes: Bm25Indexes) -> None:
        self._indexes = indexes

    def retrieve(self, chunk: Chunk, *, progressed: Callable[[], None], cancelled: threading.Event) -> ScoreBlock:
        """[Q, D] of the chunk, with positions. Raises RequestCancelled, or ChunkFault when queries are gone.

        ``progressed`` is called with every document read and every query answered.
        """

        def advance() -> None:
            progressed()
            if cancelled.is_set():
                raise RequestCancelled("cancelled", "The job was cancelled.")

        found = self._by_bm25(chunk, advance) if chunk.stage.method == StageMethod.BM25 else _in_run(chunk)
        shape = (chunk.query_count, chunk.document_count)
        blank = ScoreBlock.blank(shape)
        block = ScoreBlock(blank.raw, blank.raw, blank.statuses, np.full(shape, -1, np.int32))
        for query, (positions, scores) in found:
            count = len(positions)
            block.raw[query, :count], block.statuses[query, :count] = scores, OK
            assert block.positions is not None
            block.positions[query, :count] = positions
            advance()
        return block

    def _by_bm25(self, chunk: Chunk, advance: Any) -> Iterable[tuple[int, Found]]:
        queries = chunk_queries(chunk)
        index = self._indexes.of(chunk.job.document_set, chunk.stage.settings, progress=advance)
        return ((place, index.search(query, top_k=chunk.document_count)) for place, query in enumerate(queries))


def retrieval_report(chunk: Chunk, *, worker: str, seconds: float) -> dict[str, Any]:
    """How the list came about; stays with the chunk."""
    backend = f"bm25s {bm25s.__version__}" if chunk.stage.method == StageMethod.BM25 else "run"
    return {"backend": backend, "seconds": round(seconds, 3), "worker": worker}


def _in_run(chunk: Chunk) -> Iterable[tuple[int, Found]]:
    """The run's lists, without what is not in the sets. Where the run has no scores, 1 / rank stands for them."""
    assert chunk.stage.run_set is not None  # the database's own constraint
    job, start = chunk.job, chunk.query_start
    queries = Query.objects.filter(
        query_set=job.query_set_id, position__gte=start, position__lt=start + chunk.query_count
    )
    place = {query: position - start for query, position in queries.values_list("external_id", "position")}
    document = Document.objects.filter(document_set=job.document_set_id, external_id=OuterRef("document_id"))
    entries = run_entries(run_set=chunk.stage.run_set).filter(query_id__in=list(place))
    found = entries.annotate(found=Subquery(document.values("position")[:1])).filter(found__isnull=False)
    rows = found.values_list("query_id", "found", "score").iterator()
    for query_id, own in itertools.groupby(rows, key=lambda row: row[0]):
        listed = list(itertools.islice(own, chunk.document_count))
        scores = [1 / rank if score is None else score for rank, (_, _, score) in enumerate(listed, start=1)]
        positions = np.array([position for _, position, _ in listed], np.int32)
        yield place[query_id], (positions, np.clip(scores, -LARGEST, LARGEST).astype(np.float32))
