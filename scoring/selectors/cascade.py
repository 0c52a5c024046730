"""What each stage of a job let through: the share of the relevant documents, and what was still possible with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scoring.measures import measure_values, measures_parse
from scoring.models import Document, Evaluation, Query, QueryResult, Stage
from scoring.ranking import POSITION
from scoring.selectors.evaluation import judgement_grades_of
from scoring.selectors.evaluations import EvaluationArrays

Judged = Mapping[str, Sequence[str]]  # query id -> its judged documents, as a stage has them


@dataclass(frozen=True, slots=True)
class StageCut:
    """Means over the evaluated queries. ``recall``: of the relevant documents those that the stage kept, over queries
    that have any. ``ceiling``: the first measure of the best order of what the stage was given; ``value``: of its own.
    """

    stage: Stage
    kept: float
    recall: float | None
    ceiling: float
    value: float


def stage_cuts(evaluation: Evaluation, arrays: EvaluationArrays, stages: Sequence[Stage]) -> list[StageCut]:
    """In the order of ``stages``; nothing once the judgements have been deleted."""
    judgements, job = evaluation.judgement_set, evaluation.stage.job
    if judgements is None:
        return []
    queries = Query.objects.filter(query_set=job.query_set_id, position__in=arrays.positions.tolist())
    query_ids = dict(queries.values_list("position", "external_id"))
    grades = judgement_grades_of(judgements, set(query_ids.values()))
    wanted = {document for own in grades.values() for document in own}
    documents = Document.objects.filter(document_set=job.document_set_id, external_id__in=wanted)
    names = dict(documents.values_list("position", "external_id"))
    measure = measures_parse([evaluation.measures[0]])
    rel = judgements.relevant_from
    relevant = {query: {one for one, grade in own.items() if grade >= rel} for query, own in grades.items()}
    there = set(names.values())
    every = {query: [one for one in own if one in there] for query, own in grades.items()}
    kept: dict[int, Judged] = {}
    cuts = []
    for stage in stages:
        lists, mean_length = _kept(stage, query_ids, names)
        kept[stage.pk] = {query: [one for one, _ in ranked] for query, ranked in lists.items()}
        given = every if stage.source_id is None else kept.get(stage.source_id, {})
        best = {query: _best_order(given.get(query, ()), own) for query, own in grades.items()}
        full = {query: _with_gaps(ranked) for query, ranked in lists.items()}
        (ceiling,) = measure_values(measure, grades, best).values()
        (value,) = measure_values(measure, grades, full).values()
        shares = [len(own & set(kept[stage.pk].get(query, ()))) / len(own) for query, own in relevant.items() if own]
        cuts.append(
            StageCut(
                stage=stage,
                kept=mean_length,
                recall=float(np.mean(shares)) if shares else None,
                ceiling=float(np.mean(list(ceiling.values()))),
                value=float(np.mean(list(value.values()))),
            )
        )
    return cuts


def _best_order(documents: Sequence[str], grades: Mapping[str, int]) -> list[str]:
    return sorted(documents, key=lambda one: -grades.get(one, 0))


def _kept(
    stage: Stage, query_ids: Mapping[int, str], names: Mapping[int, str]
) -> tuple[dict[str, list[tuple[str, int]]], float]:
    """The judged documents of each query that the stage kept, with their ranks; and how many it kept in the mean."""
    known = np.fromiter(names, np.int64, len(names))
    lists, total = {}, 0
    rows = QueryResult.objects.filter(stage=stage, query_position__in=list(query_ids))
    for position, packed in rows.values_list("query_position", "positions").iterator(chunk_size=50):
        places = np.frombuffer(packed, POSITION)
        total += len(places)
        at = np.flatnonzero(np.isin(places, known))
        lists[query_ids[position]] = [(names[int(places[i])], int(i) + 1) for i in at]
    return lists, total / max(len(query_ids), 1)


def _with_gaps(ranked: Sequence[tuple[str, int]]) -> list[str]:
    """The ranking with a stand-in, which nobody judged, for every document that nobody judged for any query."""
    full: list[str] = []
    for document, rank in ranked:
        full += [f"\0{place}" for place in range(len(full) + 1, rank)]
        full.append(document)
    return full
