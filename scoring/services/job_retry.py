"""A retry of what is unfinished: what was scored stays, what failed or was never begun goes back to the workers."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring import dispatch
from scoring.models import Chunk, Job, QueryResult, Stage
from scoring.services.job_control import CHUNKS_AT_ONCE, models_demand
from scoring.services.job_limits import pairs_check, quotas_check, running_check, usage_lock
from scoring.services.jobs import expiry, job_reread
from scoring.services.retention import texts_demand
from scoring.services.stages import changed_settings, model_snapshot, stage_open
from scoring.services.transitions import transition, transitions_record
from scoring.services.usage import usage_carry
from scoring.states import RETRIABLE_JOB_STATES, ChunkState, JobState, ModelState, StageState

UNFINISHED = (ChunkState.FAILED, ChunkState.CANCELLED)


def job_retry(*, principal: Principal, job: Job) -> Job:
    """Queue an ended job again, as its next attempt, with its failed and cancelled chunks only.

    Raises AssayError 409 ``job_not_retriable`` unless it ended with something missing, ``nothing_to_retry`` when every
    chunk was scored, ``scores_dropped`` when its scores are gone, ``model_changed`` when what is missing would be
    scored by another model than what is there; 422 ``texts_deleted``; 429 over one of the person's limits or a quota;
    PermissionDenied for a model that the token is not for.
    """
    with transaction.atomic():
        usage = usage_lock(team=job.team, user=job.created_by)
        job_reread(job)
        if job.state not in RETRIABLE_JOB_STATES:
            why, instead = "it has not ended", "Wait for its end, or cancel it first."
            if job.state == JobState.COMPLETED:
                why, instead = "everything was scored", "Clone it to score everything anew."
            state = job.get_state_display().lower()
            message = f"Job '{job.name}' is {state}; {why}, so there is nothing to retry. {instead}"
            raise AssayError("job_not_retriable", message, status=409)
        models_demand(principal, job)
        if (since := job.scores_drop_begun_at) is not None:
            raise AssayError(
                "scores_dropped",
                f"The scores that job '{job.name}' was ranked from were deleted on {since:%Y-%m-%d}, as "
                "KEEP_CHUNK_SCORES_DAYS says: what is missing could not be ranked together with them. Its rankings "
                "stay; clone it to score everything anew.",
                status=409,
            )
        running_check(usage)
        pairs_check(usage, job.pair_count)
        quotas_check(job)
        texts_demand(document_set=job.document_set, query_set=job.query_set)
        moved = transition(
            job,
            JobState.QUEUED,
            actor=principal.label,
            reason="retried",
            detail={"attempt": job.attempt + 1},
            where=Q(scores_drop_begun_at=None),
            attempt=job.attempt + 1,
            queued_at=Now(),
            expires_at=expiry(job.complete_within),
            started_at=None,
            finished_at=None,
            cancel_requested_at=None,
            end_reason="",
            failure="",
            statistics={},
        )
        if moved and not stages_reopen(job=job, actor=principal.label):
            raise AssayError(
                "nothing_to_retry",
                f"Every chunk of job '{job.name}' was scored; the pairs without a score would have none again. "
                "Clone the job to score everything anew.",
                status=409,
            )
        if moved:
            audit_record(verb="job.retried", principal=principal, target=job, detail={"attempt": job.attempt})
            transaction.on_commit(dispatch.workers_wake)
    return job_reread(job)


def stages_reopen(*, job: Job, actor: str) -> bool:
    """Every stage that has unfinished chunks runs again, those that take candidates from it wait to be cut anew.

    Returns whether there was any. Call it in the transaction that queues the job.
    """
    stale: set[int] = set()  # stages whose ranking will be another
    for stage in job.stages.select_related("job", "model", "source").order_by("index"):
        if stage.source_id in stale:
            _cut_anew(stage, actor)
        elif chunks_reset(stage, actor=actor):
            transition(stage, StageState.RUNNING, actor=actor, reason="retried", finished_at=None, statistics={})
        elif stage.state == StageState.SKIPPED and _has_candidates(stage):
            _cut_anew(stage, actor)
            stage_open(stage=stage, actor=actor)
        else:
            continue
        _check_model(stage)
        stale.add(stage.pk)
    return bool(stale)


def chunks_reset(stage: Stage, *, actor: str) -> int:
    """Give the stage's failed and cancelled chunks all their attempts back. Returns how many there were."""
    reset = 0
    for state in UNFINISHED:
        rows = Chunk.objects.filter(stage=stage, state=state).order_by()
        while ids := list(rows.values_list("pk", flat=True)[:CHUNKS_AT_ONCE]):
            transitions_record(Chunk, ids, state, ChunkState.PENDING, job=stage.job, actor=actor, reason="retried")
            Chunk.objects.filter(pk__in=ids).update(
                state=ChunkState.PENDING, attempts=0, cause="", error="", started_at=None, finished_at=None
            )
            reset += len(ids)
    return reset


def _cut_anew(stage: Stage, actor: str) -> None:
    chunks = Chunk.objects.filter(stage=stage)
    usage_carry(chunks=chunks)
    chunks.delete()
    QueryResult.objects.filter(stage=stage).delete()
    if stage.state != StageState.WAITING:
        transition(
            stage,
            StageState.WAITING,
            actor=actor,
            reason="retried",
            started_at=None,
            finished_at=None,
            statistics={},
        )


def _has_candidates(stage: Stage) -> bool:
    return QueryResult.objects.filter(stage=stage.source_id, scored__gt=0).exists()


def _check_model(stage: Stage) -> None:
    model = stage.model
    if model is None:
        return
    if model.state != ModelState.AVAILABLE:
        state = model.get_state_display().lower()
        message = f"Model '{model.name}' is not served ({state}). Retry the job when it is, or clone it."
        raise AssayError("model_not_served", message, status=409)
    if different := changed_settings(stage.settings, model_snapshot(model)):
        message = (
            f"Model '{model.name}' changed after the job was submitted ({', '.join(different)}); its scores could not "
            "be compared with those that are there. Clone the job to score everything by the model as it is now."
        )
        raise AssayError("model_changed", message, status=409)
