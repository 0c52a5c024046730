"""What a cut-off for the scores of a model is judged by, and what was advised."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from django.db.models import Prefetch, QuerySet, Sum

from accounts.models import Team
from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.models import Document, Judgement, JudgementSet, QueryResult, ScoringModel, Stage, ThresholdAdvice
from scoring.ranking import decimals
from scoring.selectors.evaluation import EVALUATED
from scoring.selectors.jobs import Ranking
from scoring.thresholds import JudgedScores

MOST_JUDGED: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class JudgedStage:
    """Scored pairs of a stage that a judgement set judges. ``judged.queries`` are positions. ``ranked``: scored pairs
    in all; ``unscored_relevant``: relevant documents of the stage's queries that have no score in it."""

    judged: JudgedScores
    ranked: int
    unscored_relevant: int


def judged_stage(stage: Stage, judgements: JudgementSet, *, relevant_from: int) -> JudgedStage:
    """Raises AssayError 409 ``stage_without_model`` and ``job_not_ended``, 422 ``judgements_do_not_match`` without a
    judged pair, ``too_many_pairs``, and ``nothing_to_separate`` where all or none are relevant."""
    _check(stage)
    grades = _grades(stage, judgements)
    places = _places(stage, {document for own in grades.values() for document in own})
    found: list[tuple[float, bool, int]] = []
    relevant = sum(grade >= relevant_from for own in grades.values() for grade in own.values())
    results = QueryResult.objects.filter(stage=stage, scored__gt=0)
    ranked = results.aggregate(ranked=Sum("scored", default=0))["ranked"]
    for result in results.filter(query__external_id__in=list(grades)).select_related("query").iterator(chunk_size=50):
        own = {places[name]: grade for name, grade in grades[result.query.external_id].items() if name in places}
        found += _judged(result, own, relevant_from)
    if not found:
        raise AssayError(
            "judgements_do_not_match",
            f"Judgement set '{judgements.name}' judges none of the {ranked:,} pairs that '{stage}' scored. Both must "
            "use the ids of the uploaded files.",
            status=422,
            param="judgement_set",
        )
    scores, flags, queries = zip(*found, strict=True)
    judged = JudgedScores(np.array(scores), np.array(flags), np.array(queries))
    if judged.relevant_count in (0, len(found)):
        which = "none" if not judged.relevant_count else "every one"
        raise AssayError(
            "nothing_to_separate",
            f"Of the {len(found):,} judged pairs that '{stage}' scored, {which} has a grade of {relevant_from} or "
            "more, so that no cut-off can be told from another. Judge more, or give another grade from which a "
            "document is relevant.",
            status=422,
            param="relevant_from",
        )
    return JudgedStage(judged, ranked, relevant - judged.relevant_count)


def _check(stage: Stage) -> None:
    if stage.model is None:
        message = (
            f"Stage {stage.index} is {stage.get_method_display()}, not scored by a model, so there is no model to "
            "advise a cut-off for. Choose a stage with a model."
        )
        raise AssayError("stage_without_model", message, status=409, param="stage")
    if stage.job.state not in EVALUATED:
        message = f"Job '{stage.job.name}' is {stage.job.state}; cut-offs can be measured when it has ended."
        raise AssayError("job_not_ended", message, status=409)


def _grades(stage: Stage, judgements: JudgementSet) -> dict[str, dict[str, int]]:
    """Query id -> document id -> grade, of the job's queries. A negative grade means pooled but not judged."""
    queries = set(stage.job.query_set.queries.values_list("external_id", flat=True))
    grades: dict[str, dict[str, int]] = {}
    rows = Judgement.objects.filter(judgement_set=judgements, grade__gte=0)
    count = 0
    for query, document, grade in rows.values_list("query_id", "document_id", "grade").iterator():
        if query in queries:
            grades.setdefault(query, {})[document] = grade
            count += 1
    if count > MOST_JUDGED:
        message = f"{count:,} pairs of these queries are judged; cut-offs are measured on {MOST_JUDGED:,} at most."
        raise AssayError("too_many_pairs", message, status=422, param="judgement_set")
    return grades


def _places(stage: Stage, names: Collection[str]) -> dict[str, int]:
    """Position by id of those of ``names`` that the job's document set has."""
    documents = Document.objects.filter(document_set=stage.job.document_set_id, external_id__in=names)
    return dict(documents.values_list("external_id", "position"))


def _judged(result: QueryResult, grades: dict[int, int], relevant_from: int) -> list[tuple[float, bool, int]]:
    """(score as the API tells it, relevant, query position) of the documents with a score and a grade; ``grades`` by
    position."""
    ranking = Ranking.of(result)
    graded = np.isin(ranking.positions, list(grades))
    told = zip(ranking.positions[graded].tolist(), decimals(ranking.block.activated[graded]), strict=True)
    return [
        (score, grades[position] >= relevant_from, result.query_position)
        for position, score in told
        if score is not None
    ]


def advice_of(principal: Principal) -> QuerySet[ThresholdAdvice]:
    """The team's advice, the newest first."""
    rows = ThresholdAdvice.objects.for_team(principal.team)
    return rows.select_related("model", "stage__job", "judgement_set", "created_by")


def models_with_advice(models: QuerySet[ScoringModel], team: Team) -> QuerySet[ScoringModel]:
    """Each with ``team_advice``: what this team was advised, the newest first."""
    rows = ThresholdAdvice.objects.for_team(team).select_related("created_by", "stage", "judgement_set")
    return models.prefetch_related(Prefetch("threshold_advice", rows, to_attr="team_advice"))


def advice_in_force(model: Any) -> ThresholdAdvice | None:
    """The newest; ``model`` comes from ``models_with_advice``, one that was just registered has none."""
    return next(iter(getattr(model, "team_advice", ())), None)
