"""A registered model judges a pool: a job scores its pairs, and stated cut-offs make grades of the scores.

Its verdicts are a model's: they never count beside people's unless whoever publishes says so."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import isfinite
from typing import Final

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring.models import (
    Judge,
    ModelJudging,
    Pool,
    PoolPair,
    QueryResult,
    RunEntry,
    RunSet,
    ScoringModel,
    StageMethod,
    Verdict,
    VerdictSource,
)
from scoring.models.scoring_model import ModelKind
from scoring.ranking import decimals
from scoring.selectors.evaluation import document_names
from scoring.selectors.jobs import Ranking
from scoring.services.jobs import job_submit
from scoring.services.stage_plan import StagePlan
from scoring.services.transitions import transition_record
from scoring.states import FINAL_JOB_STATES, SetState

JUDGES: Final = (ModelKind.GENERATIVE, ModelKind.CROSS_ENCODER)  # read a query and a document together
POOL: Final = "pool"  # as the format of a run that came from no file
BATCH: Final = 2_000


def model_judge_ask(
    *, principal: Principal, pool: Pool, model: ScoringModel, cut_offs: Sequence[float]
) -> ModelJudging:
    """Submit the job. ``cut_offs``: ascending, the lowest scores of the grades 1, 2, … of the pool's scale.

    Raises AssayError 422 ``wrong_model_kind``, ``bad_cut_offs``; 409 ``already_judging``; and as ``job_submit`` does.
    """
    if model.kind not in JUDGES:
        raise AssayError(
            "wrong_model_kind",
            f"Model '{model.name}' is a {model.kind} model; one that judges reads a query and a document together: "
            f"give a {' or a '.join(JUDGES)} model.",
            status=422,
            param="model",
        )
    _check_cut_offs(pool, cut_offs)
    if ModelJudging.objects.filter(pool=pool, judge__model=model, stored_at=None).exists():
        message = f"Model '{model.name}' judges '{pool.name}' now; wait until its job has ended, or cancel it."
        raise AssayError("already_judging", message, status=409)
    with transaction.atomic():
        run = _pairs_as_run(principal, pool, model)
        stages = [StagePlan(method=StageMethod.RUN, run_set=run), StagePlan(model=model, source=0)]
        job, _ = job_submit(
            principal=principal,
            name=f"{model.name} judges {pool.name}"[:200],
            document_set=pool.document_set,
            query_set=pool.query_set,
            stages=stages,
        )
        settings = job.last_stage.settings
        judge, _ = Judge.objects.get_or_create(
            pool=pool,
            model=model,
            model_revision=settings.get("revision", ""),
            prompt=settings.get("template", ""),
            defaults={"name": f"{model.name} {model.revision[:8]}".strip()},
        )
        asked = ModelJudging.objects.create(
            pool=pool, judge=judge, job=job, cut_offs=list(cut_offs), created_by=principal.user
        )
        detail = {"model": model.name, "job": str(job.pk), "cut_offs": list(cut_offs)}
        audit_record(verb="pool.model_asked", principal=principal, target=pool, detail=detail)
    return asked


def model_judgings_store() -> int:
    """Make verdicts of what ended jobs scored. Returns how many jobs; the reconciler calls it again and again."""
    ended = Q(job=None) | Q(job__state__in=FINAL_JOB_STATES)
    count = 0
    for pk in ModelJudging.objects.filter(ended, stored_at=None).values_list("pk", flat=True):
        with transaction.atomic():
            rows = ModelJudging.objects.select_for_update(of=("self",), skip_locked=True)
            judging = rows.select_related("pool", "judge").filter(pk=pk, stored_at=None).first()
            if judging is None:
                continue
            stored = _store(judging)
            ModelJudging.objects.filter(pk=pk).update(verdicts=stored, stored_at=Now())
            count += 1
    return count


def grade_of(score: float, cut_offs: Sequence[float]) -> int:
    """How many of the ascending ``cut_offs`` the score reaches."""
    return bisect_right(cut_offs, score)


def _store(judging: ModelJudging) -> int:
    """Instead of what the same judge said before."""
    pairs = {
        (query, document): pk
        for pk, query, document in judging.pool.pairs.values_list("pk", "query_id", "document_id").iterator()
    }
    verdicts = [
        Verdict(
            pair_id=pairs[query, document],
            judge=judging.judge,
            grade=grade_of(score, judging.cut_offs),
            source=VerdictSource.MODEL,
        )
        for query, document, score in _scores(judging)
        if (query, document) in pairs
    ]
    if verdicts:
        Verdict.objects.filter(judge=judging.judge).delete()
        Verdict.objects.bulk_create(verdicts, batch_size=BATCH)
    return len(verdicts)


def _scores(judging: ModelJudging) -> Iterator[tuple[str, str, float]]:
    """(query id, document id, score) of every pair that has one."""
    if judging.job is None:
        return
    names = document_names(judging.job)
    results = QueryResult.objects.filter(stage=judging.job.last_stage).select_related("query")
    for result in results.iterator(chunk_size=50):
        ranking = Ranking.of(result)
        for position, score in zip(ranking.positions.tolist(), decimals(ranking.block.activated), strict=True):
            if score is not None:
                yield result.query.external_id, names[position], score


def _pairs_as_run(principal: Principal, pool: Pool, model: ScoringModel) -> RunSet:
    """The pool's pairs as the candidates of a job."""
    pairs = PoolPair.objects.filter(pool=pool).order_by("place").values_list("query_id", "document_id")
    run = RunSet.objects.create(
        team=principal.team,
        created_by=principal.user,
        name=f"Pairs of {pool.name} for {model.name}"[:200],
        file_format=POOL,
    )
    entries = (
        RunEntry(run_set=run, position=place, query_id=query, document_id=document, rank=None, score=None)
        for place, (query, document) in enumerate(pairs.iterator())
    )
    kept = len(RunEntry.objects.bulk_create(entries, batch_size=BATCH))
    run.counts = {"read": kept, "kept": kept, "bad": 0, "duplicate": 0, "empty": 0}
    run.state = SetState.READY
    run.save(update_fields=["counts", "state"])
    detail = {"pool": str(pool.pk)}
    transition_record(
        run, SetState.RECEIVING, SetState.READY, actor=principal.label, reason="pairs of a pool", detail=detail
    ).save()
    return run


def _check_cut_offs(pool: Pool, cut_offs: Sequence[float]) -> None:
    wanted = len(pool.scale) - 1
    ascending = all(isfinite(each) for each in cut_offs) and all(low < high for low, high in pairwise(cut_offs))
    if len(cut_offs) != wanted or not ascending:
        given = ", ".join(f"{each:g}" for each in cut_offs) or "none"
        raise AssayError(
            "bad_cut_offs",
            f"The cut-offs are {given}; the scale has {len(pool.scale)} grades, so give {wanted} ascending numbers, "
            f"the lowest scores of '{pool.scale[1]}' and the better grades.",
            status=422,
            param="cut_offs",
        )
