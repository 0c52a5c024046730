"""What a cut-off for the scores of a model is judged by, and what was advised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from django.db.models import Prefetch, QuerySet

from accounts.models import Team
from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.models import Judgement, JudgementSet, QueryResult, ScoringModel, Stage, ThresholdAdvice
from scoring.ranking import number
from scoring.selectors.evaluation import EVALUATED, document_names
from scoring.selectors.jobs import Ranking
from scoring.thresholds import JudgedScores


@dataclass(frozen=True, slots=True)
class JudgedStage:
    """Scored pairs of a stage that a judgement set judges. ``judged.queries`` are positions. ``ranked``: scored pairs
    in all; ``unscored_relevant``: relevant documents of the stage's queries that have no score in it."""

    judged: JudgedScores
    ranked: int
    unscored_relevant: int


def judged_stage(stage: Stage, judgements: JudgementSet, *, relevant_from: int) -> JudgedStage:
    """Raises AssayError 409 ``stage_without_model`` and ``job_not_ended``, 422 ``judgements_do_not_match`` without a
    judged pair, and ``nothing_to_separate`` where all or none are relevant."""
    _check(stage)
    grades = _grades(stage, judgements)
    names = document_names(stage.job)
    found: list[tuple[float, bool, int]] = []
    ranked, relevant = 0, sum(grade >= relevant_from for own in grades.values() for grade in own.values())
    results = QueryResult.objects.filter(stage=stage, scored__gt=0).select_related("query")
    for result in results.iterator(chunk_size=50):
        ranked += result.scored
        if own := grades.get(result.query.external_id):
            found += _judged(result, own, names, relevant_from)
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
    for query, document, grade in rows.values_list("query_id", "document_id", "grade").iterator():
        if query in queries:
            grades.setdefault(query, {})[document] = grade
    return grades


def _judged(
    result: QueryResult, grades: dict[str, int], names: list[str], relevant_from: int
) -> list[tuple[float, bool, int]]:
    """(score as the API tells it, relevant, query position) of the judged documents with a score."""
    ranking = Ranking.of(result)
    rows = []
    for place, position in enumerate(ranking.positions.tolist()):
        grade = grades.get(names[position])
        if grade is None or (score := number(ranking.block.activated[place])) is None:
            continue
        rows.append((score, grade >= relevant_from, result.query_position))
    return rows


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
