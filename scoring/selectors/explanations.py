"""The stored score that an explanation is beside: one pair of a ranking, or one item of a kept request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from django.db.models import F

from assay.api.sentences import shortened
from assay.errors import AssayError
from scoring.models import Chunk, Document, Job, QueryResult, ScoreRequest, Stage
from scoring.ranking import POSITION
from scoring.selectors.failures import candidate_places
from scoring.selectors.jobs import RankedDocument, query_named, ranked_documents, results_of
from scoring.selectors.texts import texts_gone

OTHERS: Final = 20  # documents that are offered for comparison


@dataclass(frozen=True, slots=True)
class RankedPair:
    """``report``: how the score came about, empty where its chunk is gone."""

    result: QueryResult
    ranked: RankedDocument
    report: dict[str, Any]


def ranked_pair(stage: Stage, *, query: str, document: str) -> RankedPair:
    """By their ids in the uploaded files. Raises AssayError 404 ``no_such_query``, ``no_such_document`` and
    ``not_ranked``."""
    job = stage.job
    found = query_named(job, query)
    row = Document.objects.filter(document_set=job.document_set_id, external_id=document).only("position").first()
    if row is None:
        message = f"'{job.document_set.name}' has no document '{shortened(document)}'; give an id of the uploaded file."
        raise AssayError("no_such_document", message, status=404, param="document")
    result = results_of(stage).select_related("stage__job", "query").filter(query=found).first()
    rank = _rank(result, row.position) if result else None
    if result is None or rank is None:
        message = (
            f"Document '{shortened(document)}' is not in the ranking of query '{shortened(query)}' by {stage}: it was "
            "no candidate, or not among those that the stage kept."
        )
        raise AssayError("not_ranked", message, status=404, param="document")
    result.stage = stage
    ranked = ranked_documents(result, start=rank - 1, limit=1)[0]
    return RankedPair(result, ranked, _report(result, row.position))


def _rank(result: QueryResult, position: int) -> int | None:
    packed = QueryResult.objects.values_list("positions", flat=True).get(pk=result.pk)
    places = np.flatnonzero(np.frombuffer(packed, POSITION) == position)
    return int(places[0]) + 1 if len(places) else None


def _report(result: QueryResult, position: int) -> dict[str, Any]:
    place = candidate_places(result, [position])[position]
    chunks = Chunk.objects.filter(
        stage=result.stage_id,
        query_start__lte=result.query_position,
        query_start__gt=result.query_position - F("query_count"),
        document_start__lte=place,
        document_start__gt=place - F("document_count"),
    )
    return next(iter(chunks.values_list("report", flat=True)), None) or {}


def job_texts_gone(job: Job) -> bool:
    return texts_gone(job.document_set) or texts_gone(job.query_set)


@dataclass(frozen=True, slots=True)
class KeptItem:
    """One pair of a request; the texts are None where they are not kept, or no longer."""

    index: int
    score: float | None
    raw_score: float | None
    status: str
    query: str | None
    document: str | None


def kept_items(row: ScoreRequest) -> list[KeptItem]:
    """In the order submitted; a matrix is query-major."""
    matrix = row.report.get("pairing") == "matrix"
    items = []
    for result in row.results:
        index = result["index"]
        query, document = divmod(index, row.document_count) if matrix and row.document_count else (index, index)
        items.append(
            KeptItem(
                index=index,
                score=result["score"],
                raw_score=result["raw_score"],
                status=result["status"],
                query=_text(row.queries, query),
                document=_text(row.documents, document),
            )
        )
    return items


def _text(texts: list[str] | None, index: int) -> str | None:
    """One query for many documents is given once."""
    if not texts:
        return None
    return texts[index] if index < len(texts) else texts[0]


def neighbours(pair: RankedPair) -> list[RankedDocument]:
    """The best documents of the same query, to compare with."""
    return [row for row in ranked_documents(pair.result, limit=OTHERS) if row.rank != pair.ranked.rank]
