"""Which documents a stage scores for which query: the one place that knows what the cells of a chunk stand for.

Shapes: Q queries and D candidates of a block, as in ``Chunk``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from django.db.models import Count, Max, QuerySet

from scoring.models import Job, QueryResult, RunEntry, RunSet, Stage
from scoring.ranking import POSITION, Positions
from scoring.selectors.packed import packed_part

SAMPLED_RANKS: Final = 1000


def positions_of(stage: Stage, *, queries: range, candidates: range) -> Positions:
    """int32 [Q, D]: the position in the document set of each candidate; -1 behind the end of a query's list.

    Without a source all queries have the same candidates, the documents themselves, and the rows share their memory.
    """
    shape = (len(queries), len(candidates))
    if stage.source_id is None:
        row = np.arange(candidates.start, candidates.stop, dtype=np.int32)
        return np.broadcast_to(row, shape)
    positions = np.full(shape, -1, np.int32)
    found = _source_rows(stage).filter(query_position__gte=queries.start, query_position__lt=queries.stop)
    part = packed_part("positions", POSITION.itemsize, start=candidates.start, count=shape[1])
    for query, scored, packed in found.values_list("query_position", "scored", part):
        own = np.frombuffer(packed, POSITION)[: max(scored - candidates.start, 0)]
        positions[query - queries.start, : len(own)] = own
    return positions


def candidate_counts(stage: Stage) -> np.ndarray[Any, np.dtype[np.int64]]:
    """int64 [Q] over all queries of the job: how many candidates each has. Of a source, what it kept with a score."""
    job: Job = stage.job
    if stage.source_id is None:
        return np.full(job.query_count, job.document_count, np.int64)
    counts = np.zeros(job.query_count, np.int64)
    for query, scored in _source_rows(stage).values_list("query_position", "scored"):
        counts[query] = scored
    return counts


def candidate_overlap(stage: Stage, *, sample: int = 256) -> float:
    """In how many lists a candidate is on average, 1: they share nothing; from the beginnings of up to ``sample``."""
    beginning = packed_part("positions", POSITION.itemsize, count=SAMPLED_RANKS)
    lists = list(_source_rows(stage).filter(scored__gt=0).values_list(beginning, "scored")[:sample])
    if not lists:
        return 1.0
    positions = np.concatenate([np.frombuffer(packed, POSITION)[:scored] for packed, scored in lists])
    return len(positions) / len(np.unique(positions))


def run_longest_list(run_set: RunSet) -> int:
    """The most documents that the run names for one query."""
    lengths = RunEntry.objects.filter(run_set=run_set).values("query_id").annotate(length=Count("pk")).order_by()
    return lengths.aggregate(longest=Max("length"))["longest"] or 0


def _source_rows(stage: Stage) -> QuerySet[QueryResult]:
    return QueryResult.objects.filter(stage=stage.source_id)
