"""Where the judged documents of a query went: their rank in every stage of the job, or why they are not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.db.models import F

from scoring.models import Chunk, Document, Evaluation, Query, QueryResult, Stage, StageMethod
from scoring.ranking import FLOAT, ranked, status_name
from scoring.selectors.candidates import positions_of
from scoring.selectors.evaluation import judgement_grades_of
from scoring.selectors.jobs import Ranking
from scoring.selectors.packed import packed_part
from scoring.selectors.texts import texts_shown
from scoring.states import ChunkState, ItemStatus, StageState


@dataclass(frozen=True, slots=True)
class StagePlace:
    """A document in one stage. ``rank`` None: ``reason`` says why it is not there."""

    rank: int | None
    reason: str = ""
    status: ItemStatus = ItemStatus.OK


@dataclass(frozen=True, slots=True)
class JudgedDocument:
    """``document`` None: the set has none of that id. ``places`` in the order of the job's stages."""

    document_id: str
    document: Document | None
    grade: int
    is_relevant: bool
    places: list[StagePlace]


@dataclass(frozen=True, slots=True)
class _StageRanking:
    """What one stage ranked of the query. ``ranks`` by document position; None: the query was not ranked."""

    stage: Stage
    ranks: Mapping[int, int] | None
    statuses: Sequence[ItemStatus]
    scored: int


def judged_documents(evaluation: Evaluation, stages: Sequence[Stage], query: Query) -> list[JudgedDocument]:
    """The relevant ones first, those that the evaluated stage has not, or has low, before the others."""
    judgements = evaluation.judgement_set
    if judgements is None:
        return []
    grades = judgement_grades_of(judgements, {query.external_id}).get(query.external_id, {})
    job = evaluation.stage.job
    found = texts_shown(
        Document.objects.filter(document_set=job.document_set_id, external_id__in=grades), job.document_set
    )
    documents = {document.external_id: document for document in found}
    rankings = {stage.pk: _ranking(stage, query.position) for stage in stages}
    cuts: dict[int, Mapping[int, int]] = {}
    rows = []
    for name, grade in grades.items():
        document = documents.get(name)
        places = [_place(rankings, stage, document, query.position, cuts) for stage in stages]
        rows.append(JudgedDocument(name, document, grade, grade >= judgements.relevant_from, places))
    own = [stage.pk for stage in stages].index(evaluation.stage_id)
    return sorted(rows, key=lambda row: (not row.is_relevant, -(row.places[own].rank or 1 << 31), -row.grade))


def _ranking(stage: Stage, query: int) -> _StageRanking:
    result = QueryResult.objects.filter(stage=stage, query_position=query).first()
    if result is None:
        return _StageRanking(stage, None, [], 0)
    ranking = Ranking.of(result)
    ranks = {position: rank for rank, position in enumerate(ranking.positions.tolist(), start=1)}
    return _StageRanking(stage, ranks, [status_name(code) for code in ranking.block.statuses], result.scored)


def _place(
    rankings: Mapping[int, _StageRanking], stage: Stage, document: Document | None, query: int,
    cuts: dict[int, Mapping[int, int]],
) -> StagePlace:  # fmt: skip
    own = rankings[stage.pk]
    if document is None:
        return StagePlace(None, "not in the document set")
    if own.ranks is None:
        skipped = stage.state != StageState.DONE
        return StagePlace(None, f"the stage is {stage.get_state_display()}" if skipped else "the query was not ranked")
    rank = own.ranks.get(document.position)
    if rank is not None:
        return StagePlace(rank, status=own.statuses[rank - 1])
    if stage.source_id is not None and (why := _no_candidate(rankings.get(stage.source_id), document)):
        return StagePlace(None, why)
    kept = f"the first {len(own.ranks):,}"
    if stage.method == StageMethod.BM25:
        return StagePlace(None, f"not among {kept} that BM25 found")
    if stage.method == StageMethod.RUN:
        return StagePlace(None, f"not among {kept} of the run")
    if stage.pk not in cuts:
        cuts[stage.pk] = _all_ranks(stage, query)
    found = cuts[stage.pk].get(document.position)
    return StagePlace(None, f"cut at rank {found:,}, {kept} are kept" if found else f"cut, {kept} are kept")


def _no_candidate(source: _StageRanking | None, document: Document) -> str:
    """Why a later stage was not given the document; empty where it was."""
    if source is None or source.ranks is None:
        return "not a candidate: its source ranked nothing"
    rank = source.ranks.get(document.position)
    if rank is None:
        return f"not a candidate: {source.stage} did not keep it"
    return f"not a candidate: {source.statuses[rank - 1]} in {source.stage}" if rank > source.scored else ""


def _all_ranks(stage: Stage, query: int) -> dict[int, int]:
    """Ranks by document position of everything the stage scored for the query, also what it did not keep; nothing once
    the scores of its chunks have been dropped."""
    width = F("document_count")
    part = packed_part("raw_scores", FLOAT.itemsize, start=(query - F("query_start")) * width, count=width)
    chunks = Chunk.objects.filter(
        stage=stage, state=ChunkState.DONE, query_start__lte=query, query_start__gt=query - F("query_count")
    ).order_by("document_start")
    raw: list[Any] = []
    positions: list[Any] = []
    for start, count, packed in chunks.values_list("document_start", "document_count", part):
        if len(packed) == count * FLOAT.itemsize:
            raw.append(np.frombuffer(packed, FLOAT))
            positions.append(
                positions_of(stage, queries=range(query, query + 1), candidates=range(start, start + count))[0]
            )
    if not raw:
        return {}
    places, scores = np.concatenate(positions), np.concatenate(raw)
    order = np.argsort(places, kind="stable")
    order = order[places[order] >= 0]
    return {int(place): rank for rank, place in enumerate(places[order][ranked(scores[order])], start=1)}
