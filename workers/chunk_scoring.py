"""One chunk as the engine sees it: its texts going in, its block of scores coming out."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from django.db.models import QuerySet

from scoring.models import Chunk, Document, Query
from scoring.ranking import ScoreBlock
from workers.engine.types import Pairing, Priority, ScoringOutput, ScoringRequest


class ChunkFault(Exception):
    """The chunk cannot be scored, and the sentence says why."""


def chunk_request(chunk: Chunk, *, model_name: str, cancelled: threading.Event) -> ScoringRequest:
    """Every query of the chunk × every document of it. Raises ChunkFault when a text is missing from the database."""
    job = chunk.job
    queries = _texts(Query.objects.filter(query_set=job.query_set_id), chunk.query_start, chunk.query_count)
    documents = _texts(
        Document.objects.filter(document_set=job.document_set_id), chunk.document_start, chunk.document_count
    )
    if (len(queries), len(documents)) != (chunk.query_count, chunk.document_count):
        raise ChunkFault(
            f"The chunk needs {chunk.query_count} queries and {chunk.document_count} documents, but the sets hold "
            f"{len(queries)} and {len(documents)} of them; they were changed after the job was submitted."
        )
    return ScoringRequest(
        model=model_name,
        queries=queries,
        documents=documents,
        pairing=Pairing.MATRIX,
        priority=Priority.BATCH,
        cache_salt=str(job.team_id),
        cancelled=cancelled,
    )


def score_block(chunk: Chunk, output: ScoringOutput) -> ScoreBlock:
    """[Q, D] of the chunk."""
    shape = (chunk.query_count, chunk.document_count)
    return ScoreBlock(output.raw_scores.reshape(shape), output.scores.reshape(shape), output.status.reshape(shape))


def score_report(output: ScoringOutput, *, worker: str, seconds: float) -> dict[str, Any]:
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
        **({"failures": failures_by_code(output.errors)} if output.errors else {}),
    }


def failures_by_code(errors: Mapping[int, str]) -> dict[str, list[int]]:
    """``errors``: code by pair index, counted through the chunk query by query."""
    failures: dict[str, list[int]] = {}
    for pair, code in sorted(errors.items()):
        failures.setdefault(code, []).append(pair)
    return failures


def _texts(rows: QuerySet[Any], start: int, count: int) -> tuple[str, ...]:
    inside = rows.filter(position__gte=start, position__lt=start + count)
    return tuple(inside.order_by("position").values_list("text", flat=True))
