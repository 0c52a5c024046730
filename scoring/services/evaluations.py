"""Evaluations are made, once for what would be the same numbers, and deleted here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from django.db import transaction

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring.measures import DEFAULT_MEASURES, cutoff_of, measures_parse
from scoring.models import Evaluation, JudgementSet, Stage
from scoring.models.base import UploadedSet
from scoring.selectors.evaluation import StageMeasures, is_ranked, judgement_grades, mean_of, stage_evaluate
from scoring.selectors.evaluations import (
    SENSITIVE,
    EvaluationArrays,
    code_versions,
    evaluation_key,
    evaluations_of,
    number_or_none,
)


def evaluation_create(
    *,
    principal: Principal,
    stage: Stage,
    judgement_set: JudgementSet,
    measures: Sequence[str] = DEFAULT_MEASURES,
    only_relevant: bool = False,
) -> tuple[Evaluation, bool]:
    """Measure ``stage`` of the principal's team and keep the numbers; or find them, where they have been made before.

    Returns the evaluation and whether it is new. Raises AssayError as ``stage_evaluate`` does.
    """
    if not is_ranked(stage):
        message = f"'{stage}' of job '{stage.job.name}' has no rankings; measure it when its job has ended."
        raise AssayError("job_not_ended", message, status=409)
    parsed = measures_parse(measures, rel=judgement_set.relevant_from, grades=judgement_grades(judgement_set))
    names = [str(measure) for measure in parsed]
    key = evaluation_key(stage, judgement_set, measures=names, only_relevant=only_relevant)
    made = evaluations_of(principal).filter(key=key).first()
    if made is not None:
        return made, False
    found = stage_evaluate(stage, judgement_set, measures=names, only_relevant=only_relevant)
    arrays = EvaluationArrays.of(found)
    values: dict[str, Any] = {
        "team": principal.team,
        "created_by": principal.user,
        "stage": stage,
        "judgement_set": judgement_set,
        "ranked_at": stage.finished_at,
        "measures": names,
        "only_relevant": only_relevant,
        "figures": [
            _figure(name, cutoff_of(measure), place, found)
            for place, (name, measure) in enumerate(zip(names, parsed, strict=True))
        ],
        "pinned": _pinned(stage, judgement_set),
        "query_count": found.queries,
        "evaluated": found.evaluated,
        "unjudged": len(found.unjudged),
        "without_results": int(np.count_nonzero(found.kept == 0)),
        "without_relevant": len(arrays.lists()["without_relevant"]),
        "incomplete": not found.complete,
        "arrays": arrays.packed(),
    }
    with transaction.atomic():
        evaluation, is_new = Evaluation.objects.get_or_create(key=key, defaults=values)
        if is_new:
            detail = {"measures": names, "judgement_set": str(judgement_set.pk)}
            audit_record(verb="evaluation.created", principal=principal, target=evaluation, detail=detail)
    return evaluations_of(principal).get(pk=evaluation.pk), is_new


def evaluation_delete(*, principal: Principal, evaluation: Evaluation) -> None:
    with transaction.atomic():
        audit_record(verb="evaluation.deleted", principal=principal, target=evaluation)
        evaluation.delete()


def _figure(name: str, cutoff: int | None, place: int, found: StageMeasures) -> dict[str, Any]:
    worst, best = float(found.worst[place]), float(found.best[place])
    return {
        "measure": name,
        "mean": mean_of(found.values[place]),
        "judged": None if cutoff is None else mean_of(found.judged[found.cutoffs.index(cutoff)]),
        "worst": number_or_none(worst),
        "best": number_or_none(best),
        "tie_sensitive": abs(best - worst) > SENSITIVE,
    }


def _pinned(stage: Stage, judgements: JudgementSet) -> dict[str, Any]:
    job = stage.job
    return {
        "job": {"id": str(job.pk), "name": job.name, "attempt": job.attempt},
        "stage": {"index": stage.index, "name": str(stage), "revision": stage.model_revision},
        "query_set": _set(job.query_set),
        "document_set": _set(job.document_set),
        "judgement_set": {
            **_set(judgements),
            "version": judgements.version,
            "relevant_from": judgements.relevant_from,
            "models": judgements.judging_models,
        },
        "code": code_versions(),
    }


def _set(uploaded: UploadedSet) -> dict[str, Any]:
    return {"id": str(uploaded.pk), "name": uploaded.name, "checksum": uploaded.checksum}
