"""One chunk as the engine sees it: its texts going in, its block of scores coming out.

Shapes: Q queries and D candidates of the chunk; the pairs are its cells that hold a candidate.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db.models import QuerySet

from scoring.models import Chunk, Document, Query
from scoring.ranking import ScoreBlock
from scoring.selectors.candidates import positions_of
from workers.engine.types import Pairing, Priority, ScoringOutput, ScoringRequest


class ChunkFault(Exception):
    """The chunk cannot be scored, and the sentence says why."""


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """``cells`` bool [Q, D]: the pairs, in the order in which ``request`` has them."""

    request: ScoringRequest
    cells: npt.NDArray[np.bool_]


def chunk_task(chunk: Chunk, *, model_name: str, cancelled: threading.Event) -> ChunkTask:
    """What the engine is asked. Raises ChunkFault when a text is missing from the database.

    Queries that share one list are a matrix; queries with lists of their own are pairs, whose documents the engine
    encodes once each, however many lists they are in.
    """
    positions = positions_of(
        chunk.stage,
        queries=range(chunk.query_start, chunk.query_start + chunk.query_count),
        candidates=range(chunk.document_start, chunk.document_start + chunk.document_count),
    )
    cells = positions >= 0
    queries = chunk_queries(chunk)
    wanted, place = np.unique(positions[cells], return_inverse=True)
    rows = Document.objects.filter(document_set=chunk.job.document_set_id)
    documents = texts_at(rows, wanted)
    if len(documents) != len(wanted):
        raise ChunkFault(
            f"The chunk needs {len(wanted)} documents, but the set holds {len(documents)} of them; it was changed "
            "after the job was submitted."
        )
    pairing, query_of, document_of = Pairing.PAIRWISE, np.nonzero(cells)[0], place
    if (positions == positions[0]).all():
        pairing, query_of = Pairing.MATRIX, np.arange(len(queries))
        document_of = place[: np.count_nonzero(cells[0])]
    request = ScoringRequest(
        model=model_name,
        queries=tuple(queries[query] for query in query_of),
        documents=tuple(documents[document] for document in document_of),
        pairing=pairing,
        priority=Priority.BATCH,
        cache_salt=str(chunk.job.team_id),
        cancelled=cancelled,
    )
    return ChunkTask(request, cells)


def chunk_queries(chunk: Chunk) -> list[str]:
    """[Q]. Raises ChunkFault when one is missing from the database."""
    rows = Query.objects.filter(query_set=chunk.job.query_set_id)
    queries = texts_at(rows, np.arange(chunk.query_start, chunk.query_start + chunk.query_count))
    if len(queries) != chunk.query_count:
        raise ChunkFault(
            f"The chunk needs {chunk.query_count} queries, but the set holds {len(queries)} of them; it was changed "
            "after the job was submitted."
        )
    return queries


def score_block(task: ChunkTask, output: ScoringOutput) -> ScoreBlock:
    """[Q, D] of the chunk."""
    block = ScoreBlock.blank(task.cells.shape)
    block.raw[task.cells], block.activated[task.cells] = output.raw_scores, output.scores
    block.statuses[task.cells] = output.status
    return block


def score_report(task: ChunkTask, output: ScoringOutput, *, worker: str, seconds: float) -> dict[str, Any]:
    """How the scores came about; stays with the chunk."""
    return {
        "backend": output.backend,
        "fallback": output.fallback,
        "dtype": output.dtype,
        "revision": output.revision,
        "prompt_tokens": output.prompt_tokens,
        "cached_documents": output.cached_documents,
        "timings": asdict(output.timings),
        "seconds": round(seconds, 3),
        "worker": worker,
        **({"failures": failures_by_code(output.errors, task.cells)} if output.errors else {}),
    }


def failures_by_code(errors: Mapping[int, str], cells: npt.NDArray[np.bool_]) -> dict[str, list[int]]:
    """``errors``: code by pair of the request. Returns cells by code, counted through the chunk query by query."""
    cell_of = np.flatnonzero(cells)
    failures: dict[str, list[int]] = {}
    for pair, code in sorted(errors.items()):
        failures.setdefault(code, []).append(int(cell_of[pair]))
    return failures


def texts_at(rows: QuerySet[Any], positions: npt.NDArray[Any]) -> list[str]:
    """Of these positions, ascending; those that are gone are left out."""
    if not len(positions):
        return []
    inside = rows.filter(position__gte=int(positions[0]), position__lte=int(positions[-1]))
    if len(positions) <= int(positions[-1] - positions[0]):  # not one run of neighbours
        inside = inside.filter(position__in=positions.tolist())
    return list(inside.order_by("position").values_list("text", flat=True))
