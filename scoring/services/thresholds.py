"""Which cut-off for the scores of a model separates relevant documents, measured on a job; and advice that is kept.

Advice is never applied: a client reads it beside the model and decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any, Final

import numpy as np
from django.db import transaction

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring.models import JudgementSet, Query, ScoringModel, Stage, ThresholdAdvice
from scoring.models.scoring_model import ModelKind
from scoring.payloads import SyncOptions
from scoring.selectors.explanations import job_texts_gone
from scoring.selectors.thresholds import JudgedStage, advice_of, judged_stage
from scoring.services.explanations import Asked
from scoring.services.pooling import pooling_run
from scoring.services.stages import changed_settings, model_snapshot
from scoring.states import JobState
from scoring.thresholds import FEWEST_QUERIES, CutOff, JudgedScores, best, candidates, cut_offs

MAXSIM: Final = "maxsim"
UNBOUNDED: Final = (MAXSIM, "logit")  # scales whose height says as much about the query as about the document
QUERIES_AT_ONCE: Final = 100  # whose token vectors come back in one answer
MOST_QUERIES: Final = 2_000
LONGEST_NOTE: Final = 4_000  # characters


@dataclass(frozen=True, slots=True)
class ThresholdReport:
    """``cut_offs`` ascending; ``remarks``: what a reader must know before believing them."""

    stage: Stage
    judgement_set: JudgementSet
    relevant_from: int
    per_query_token: bool
    found: JudgedStage
    cut_offs: list[CutOff]
    remarks: list[str]

    @property
    def pairs(self) -> int:
        return len(self.found.judged.scores)

    @property
    def relevant(self) -> int:
        return self.found.judged.relevant_count

    @property
    def queries(self) -> int:
        return self.found.judged.query_count

    @property
    def base_rate(self) -> float:
        return self.relevant / self.pairs

    @property
    def best(self) -> CutOff:
        return best(self.cut_offs)

    @property
    def scale(self) -> str:
        return str(self.stage.settings.get("scale", ""))

    def at(self, score: float) -> CutOff:
        return cut_offs(self.found.judged, [score])[0]


def thresholds_measure(
    *,
    asked: Asked,
    stage: Stage,
    judgement_set: JudgementSet,
    relevant_from: int | None = None,
    per_query_token: bool = False,
) -> ThresholdReport:
    """``relevant_from``: None for the set's own. ``per_query_token``: cut-offs for MaxSim divided by the number of
    query token vectors that it sums over, which a worker is asked for.

    Raises AssayError as ``judged_stage`` does; with ``per_query_token`` also 422 ``not_per_query_token``, 409
    ``settings_changed`` and ``texts_deleted``, and as ``pooling_run`` does.
    """
    relevant_from = relevant_from or judgement_set.relevant_from
    found = judged_stage(stage, judgement_set, relevant_from=relevant_from)
    if per_query_token:
        found = replace(found, judged=_per_query_token(asked, stage, found.judged))
    measured = cut_offs(found.judged, candidates(found.judged))
    remarks = _remarks(stage, found, per_query_token)
    return ThresholdReport(stage, judgement_set, relevant_from, per_query_token, found, measured, remarks)


def advice_save(*, principal: Principal, report: ThresholdReport, score: float, note: str = "") -> ThresholdAdvice:
    """Keep ``score`` as the team's advice on the model, with what was measured at it.

    Raises AssayError 409 ``settings_changed`` if the model now scores otherwise than in that job, 422 for a score that
    is no finite number and ``note_too_long``.
    """
    model = report.stage.scorer
    check_settings(report.stage)
    if not isfinite(score) or abs(score) > 1e300:
        raise AssayError("invalid", f"'score' is {score}; give a finite number.", status=422, param="score")
    if len(note) > LONGEST_NOTE:
        message = f"The note has {len(note):,} characters; shorten it to {LONGEST_NOTE:,}."
        raise AssayError("note_too_long", message, status=422, param="note")
    with transaction.atomic():
        advice = ThresholdAdvice.objects.create(
            team=principal.team,
            created_by=principal.user,
            model=model,
            score=score,
            per_query_token=report.per_query_token,
            note=note.strip(),
            stage=report.stage,
            judgement_set=report.judgement_set,
            settings=report.stage.settings,
            evidence=evidence_of(report, score),
        )
        detail = {"advice": str(advice.pk), "score": score, "per_query_token": report.per_query_token}
        audit_record(verb="threshold.advised", principal=principal, target=model, detail=detail)
    return advice


def advice_delete(*, principal: Principal, advice: ThresholdAdvice) -> None:
    """Withdraw it; the one before it, if any, is in force again."""
    detail = {"advice": str(advice.pk), "score": advice.score, "per_query_token": advice.per_query_token}
    with transaction.atomic():
        audit_record(verb="threshold.withdrawn", principal=principal, target=advice.model, detail=detail)
        advice.delete()


def advice_changes(advice: ThresholdAdvice, model: ScoringModel) -> list[str]:
    """Which of the model's settings that decide a score are not what they were: the advice is then outdated."""
    return changed_settings(advice.settings, model_snapshot(model))


def model_advice(principal: Principal, model: ScoringModel) -> list[tuple[ThresholdAdvice, list[str]]]:
    """What the team was advised on ``model``, the newest first, each with the settings that changed since."""
    return [(advice, advice_changes(advice, model)) for advice in advice_of(principal).filter(model=model)]


def evidence_of(report: ThresholdReport, score: float) -> dict[str, Any]:
    """Plain JSON that says by itself what was measured; it outlives the job and the judgements."""
    at = asdict(report.at(score))
    return {
        "judgement_set": report.judgement_set.name,
        "judgement_set_version": report.judgement_set.version,
        "job": report.stage.job.name,
        "stage": report.stage.index,
        "document_set": report.stage.job.document_set.name,
        "query_set": report.stage.job.query_set.name,
        "revision": report.stage.model_revision,
        "scale": report.scale,
        "relevant_from": report.relevant_from,
        "queries": report.queries,
        "pairs": report.pairs,
        "relevant": report.relevant,
        "base_rate": report.base_rate,
        "scored_pairs": report.found.ranked,
        **{name: at[name] for name in ("above", "precision", "recall", "f1")},
        "remarks": report.remarks,
    }


def check_settings(stage: Stage) -> None:
    """Raises AssayError 409 ``settings_changed`` where the model now gives other scores than in the stage."""
    if changed := changed_settings(stage.settings, model_snapshot(stage.scorer)):
        raise AssayError(
            "settings_changed",
            f"Since job '{stage.job.name}' model '{stage.scorer.name}' has another {', '.join(changed)}, so that what "
            "was measured there is not said of its scores now. Run the job again.",
            status=409,
            param="job",
        )


def _per_query_token(asked: Asked, stage: Stage, judged: JudgedScores) -> JudgedScores:
    if stage.settings.get("scale") != MAXSIM:
        message = (
            f"'{stage}' scores on the scale {stage.settings.get('scale') or 'of no name'}; only MaxSim is a sum over "
            "query tokens that can be divided by their number. Leave 'per_query_token' out."
        )
        raise AssayError("not_per_query_token", message, status=422, param="per_query_token")
    if job_texts_gone(stage.job):
        message = "The texts of this job were deleted, so that the tokens of its queries cannot be counted any more."
        raise AssayError("texts_deleted", message, status=409)
    check_settings(stage)
    positions = np.unique(judged.queries)
    if len(positions) > MOST_QUERIES:
        message = f"The tokens of {len(positions):,} queries would be counted; the limit is {MOST_QUERIES:,}."
        raise AssayError("too_many_queries", message, status=422, param="per_query_token")
    rows = Query.objects.filter(query_set=stage.job.query_set_id, position__in=positions.tolist())
    texts = dict(rows.order_by("position").values_list("position", "text"))
    counts = dict(zip(texts, _token_counts(asked, stage.scorer, list(texts.values())), strict=True))
    divisors = np.array([counts[position] for position in judged.queries.tolist()])
    return replace(judged, scores=judged.scores / divisors)


def _token_counts(asked: Asked, model: ScoringModel, texts: Sequence[str]) -> list[int]:
    """Of the vectors that MaxSim compares for each query, expansion and control tokens among them."""
    counts = []
    for start in range(0, len(texts), QUERIES_AT_ONCE):
        answer = pooling_run(
            principal=asked.principal,
            endpoint=asked.endpoint,
            model=model,
            inputs=texts[start : start + QUERIES_AT_ONCE],
            task="token_embed",
            options=SyncOptions(role="query"),
            whole=True,
            timeout_ms=asked.timeout_ms,
            request_id=asked.request_id,
            caller=asked.caller,
        )
        counts += [len(item.payload.token_ids) for item in answer.items]
    return counts


def _remarks(stage: Stage, found: JudgedStage, per_query_token: bool) -> list[str]:
    judged, scale = found.judged, stage.settings.get("scale", "")
    remarks = [
        f"Only the {len(judged.scores):,} judged pairs of {found.ranked:,} scored ones count. People mostly judge what "
        "stands at the top of some ranking, so the precision does not extend to documents that nobody judged, of which "
        "fewer are relevant."
    ]
    if found.unscored_relevant:
        remarks.append(
            f"{found.unscored_relevant:,} more relevant documents have no score in this stage; the recall is of those "
            "that have one."
        )
    if scale in UNBOUNDED and not per_query_token:
        what = "a sum over the tokens of the query" if scale == MAXSIM else "not held between two ends"
        instead = " Per query token it is more so." if scale == MAXSIM else ""
        remarks.append(
            f"A {scale} is {what}: the same height means different things for a short and a long query, so one cut-off "
            f"for all is not comparable between them.{instead}"
        )
    if stage.scorer.kind == ModelKind.LISTWISE:
        remarks.append("The model reads documents together: a document's score depends on those it is sent with.")
    if judged.query_count < FEWEST_QUERIES:
        remarks.append(
            f"{judged.query_count} queries are few: the intervals take each pair for one by itself and are too narrow, "
            "as pairs of one query are alike."
        )
    if stage.job.state != JobState.COMPLETED:
        remarks.append("The job did not score every pair; what is missing is not in these numbers.")
    return remarks
