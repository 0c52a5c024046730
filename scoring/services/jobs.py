"""What people do with jobs: submit and cancel. What workers do with their chunks is in ``chunks``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring import dispatch
from scoring.models import Chunk, DocumentSet, Job, QuerySet, Transition
from scoring.models.base import UploadedSet
from scoring.services.retention import texts_demand
from scoring.services.stages import CHUNK_BATCH, StagePlan, stage_open, stages_create
from scoring.services.transitions import transition, transition_record
from scoring.states import ChunkState, JobEnd, JobState, ModelState, SetState

MAX_PAIRS: Final = 100_000_000
STOPPABLE: Final = (JobState.SCHEDULED, JobState.QUEUED, JobState.RUNNING, JobState.PAUSED)
PRIORITIES: Final = range(-100, 101)


def job_submit(
    *,
    principal: Principal,
    name: str,
    document_set: DocumentSet,
    query_set: QuerySet,
    stages: Sequence[StagePlan],
    priority: int = 0,
    idempotency_key: str | None = None,
) -> tuple[Job, bool]:
    """Write the job and its first chunks in one transaction, then wake the workers. Returns the job and whether it is
    new.

    Raises AssayError 422 for a model that is not served, a set that is not ready, has no texts or nothing to rank, a
    ``top_k`` or ``priority`` out of range, too many pairs; 409 ``idempotency_conflict`` when the key was used for
    something else.
    """
    if idempotency_key and (job := _existing(principal, idempotency_key)):
        return _same_or_refused(job, stages, document_set, query_set), False
    _check(stages, document_set, query_set, priority)
    query_count, document_count = query_set.counts["kept"], document_set.counts["kept"]
    if query_count * document_count > MAX_PAIRS:
        raise _refusal(
            "too_many_pairs",
            f"{query_count:,} queries × {document_count:,} documents are {query_count * document_count:,} pairs; "
            f"the limit is {MAX_PAIRS:,}. Split one of the sets.",
            "document_set",
        )
    try:
        with transaction.atomic():
            texts_demand(document_set=document_set, query_set=query_set)
            job = Job.objects.create(
                team=principal.team,
                created_by=principal.user,
                name=name.strip() or f"{query_set.name} on {document_set.name} by {_by(stages)}",
                document_set=document_set,
                query_set=query_set,
                priority=priority,
                query_count=query_count,
                document_count=document_count,
                pair_count=0,
                idempotency_key=idempotency_key or None,
            )
            rows = stages_create(job=job, plans=stages)
            job.pair_count = sum(stage.pair_count for stage in rows)
            job.save(update_fields=["pair_count"])
            for stage in rows:
                if stage.source is None:
                    stage_open(stage=stage, actor=principal.label)
            transition_record(job, "", JobState.QUEUED, actor=principal.label, reason="submitted").save()
            audit_record(verb="job.submitted", principal=principal, target=job, detail={"pairs": job.pair_count})
            transaction.on_commit(dispatch.workers_wake)
    except IntegrityError:
        # The same key twice at once: the other request won, its job is the answer.
        if idempotency_key and (other := _existing(principal, idempotency_key)):
            return _same_or_refused(other, stages, document_set, query_set), False
        raise
    return job, True


def job_cancel(*, principal: Principal, job: Job) -> Job:
    """Stop the job. Chunks not begun are cancelled now, running ones within a micro-batch; what is done stays.

    Idempotent while cancelling and when cancelled. Raises AssayError 409 ``job_ended`` for a job that ended otherwise.
    """
    while job.state not in (JobState.CANCELLING, JobState.CANCELLED):
        if job.state not in STOPPABLE:
            raise AssayError(
                "job_ended",
                f"Job '{job.name}' is {job.get_state_display()}; there is nothing left to cancel.",
                status=409,
            )
        with transaction.atomic():
            if transition(
                job,
                JobState.CANCELLING,
                actor=principal.label,
                reason="cancelled",
                end_reason=JobEnd.CANCELLED,
                cancel_requested_at=Now(),
            ):
                chunks_cancel(job, actor=principal.label)
                audit_record(verb="job.cancelled", principal=principal, target=job)
                transaction.on_commit(dispatch.workers_wake)
        job.refresh_from_db()
    return job


def chunks_cancel(job: Job, *, actor: str) -> int:
    """Cancel the job's pending chunks. Leased ones are cancelled by their worker, or when their lease ends."""
    cancelled = 0
    pending = Chunk.objects.filter(job=job, state=ChunkState.PENDING).only("pk", "state")
    # In parts, and passing over what a worker leases at this moment: that worker sees the cancel itself.
    while part := list(pending.select_for_update(skip_locked=True)[:CHUNK_BATCH]):
        Chunk.objects.filter(pk__in=[chunk.pk for chunk in part]).update(state=ChunkState.CANCELLED, finished_at=Now())
        Transition.objects.bulk_create(
            transition_record(chunk, ChunkState.PENDING, ChunkState.CANCELLED, actor=actor, reason="cancelled")
            for chunk in part
        )
        cancelled += len(part)
    return cancelled


def _check(stages: Sequence[StagePlan], document_set: DocumentSet, query_set: QuerySet, priority: int) -> None:
    for plan in stages:
        if plan.model and plan.model.state != ModelState.AVAILABLE:
            raise _refusal(
                "model_not_served",
                f"Model '{plan.model.name}' is not served ({plan.model.get_state_display()}). "
                "Choose one that passed its self-test.",
                "model",
            )
        if plan.top_k is not None and plan.top_k < 1:
            message = f"top_k is {plan.top_k}; it must be at least 1, or absent for all documents."
            raise _refusal("bad_top_k", message, "top_k")
    for param, uploaded in (("document_set", document_set), ("query_set", query_set)):
        _check_set(param, uploaded)
    if priority not in PRIORITIES:
        raise _refusal("bad_priority", f"priority is {priority}; it must be between -100 and 100.", "priority")


def _check_set(param: str, uploaded: UploadedSet) -> None:
    noun = param.replace("_", " ")
    if uploaded.state != SetState.READY:
        message = f"The {noun} '{uploaded.name}' is {uploaded.state}; wait until it is ready."
        raise _refusal("set_not_ready", message, param)
    if uploaded.counts["kept"] == uploaded.counts["empty"]:
        message = f"Every row of the {noun} '{uploaded.name}' is empty; there is nothing to score."
        raise _refusal("empty_set", message, param)


def _existing(principal: Principal, key: str) -> Job | None:
    return Job.objects.for_team(principal.team).filter(idempotency_key=key).first()


def _same_or_refused(job: Job, stages: Sequence[StagePlan], document_set: DocumentSet, query_set: QuerySet) -> Job:
    asked = [(plan.method, plan.model and plan.model.pk, plan.source, plan.top_k) for plan in stages]
    stored = [
        (stage.method, stage.model_id, stage.source and stage.source.index, stage.top_k)
        for stage in job.stages.select_related("source")
    ]
    if (job.document_set_id, job.query_set_id, stored) != (document_set.pk, query_set.pk, asked):
        raise AssayError(
            "idempotency_conflict",
            f"This Idempotency-Key was used for job {job.pk} with other contents. Send a new key for a new job.",
            status=409,
            param="Idempotency-Key",
        )
    return job


def _by(stages: Sequence[StagePlan]) -> str:
    return ", ".join(plan.model.name if plan.model else plan.method.upper() for plan in stages)


def _refusal(code: str, message: str, param: str) -> AssayError:
    return AssayError(code, message, status=422, param=param)
