"""Why single pairs have no score: not stored pair by pair, but with the chunk that they were in."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from django.db.models import F, Q

from scoring.models import Chunk, QueryResult
from scoring.ranking import POSITION
from scoring.states import ChunkState


def failure_codes(result: QueryResult, positions: Collection[int]) -> dict[int, str]:
    """For failed documents of one ranking, by position in their set: a code such as ``worker_crashed``."""
    places = candidate_places(result, positions)
    query = result.query_position
    chunks = Chunk.objects.filter(
        Q(state=ChunkState.FAILED) | Q(state=ChunkState.DONE, report__has_key="failures"),
        stage=result.stage_id,
        query_start__lte=query,
        query_start__gt=query - F("query_count"),
    )
    codes: dict[int, str] = {}
    for chunk in chunks.only("state", "cause", "report", "query_start", "document_start", "document_count"):
        inside = range(chunk.document_start, chunk.document_start + chunk.document_count)
        first = (query - chunk.query_start) * chunk.document_count
        for position, place in places.items():
            if place in inside and chunk.state == ChunkState.FAILED:
                codes[position] = chunk.cause
            elif place in inside and (code := _code(chunk, first + place - chunk.document_start)):
                codes[position] = code
    return codes


def _code(chunk: Chunk, pair: int) -> str | None:
    return next((code for code, pairs in chunk.report["failures"].items() if pair in pairs), None)


def candidate_places(result: QueryResult, positions: Collection[int]) -> dict[int, int]:
    """Where each document is among the stage's candidates for this query: chunks count by that."""
    source = result.stage.source_id
    if source is None:
        return {position: position for position in positions}
    packed = QueryResult.objects.values_list("positions", flat=True).get(
        stage=source, query_position=result.query_position
    )
    candidates = np.frombuffer(packed, POSITION)
    return {position: int(np.flatnonzero(candidates == position)[0]) for position in positions}
