"""What people do with jobs: submit and cancel. What workers do with their chunks is in ``chunks``."""

from __future__ import annotations

import itertools
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring import dispatch
from scoring.models import Chunk, DocumentSet, Job, QuerySet, ScoringModel, Transition
from scoring.models.base import UploadedSet
from scoring.services.chunk_plan import BLOCK_SIZES, blocks
from scoring.services.retention import texts_demand
from scoring.services.transitions import transition, transition_record
from scoring.states import ChunkState, JobState, ModelState, SetState

CHUNK_BATCH: Final = 2000
MAX_PAIRS: Final = 100_000_000
PRIORITIES: Final = range(-100, 101)


def job_submit(
    *,
    principal: Principal,
    name: str,
    model: ScoringModel,
    document_set: DocumentSet,
    query_set: QuerySet,
    top_k: int | None = None,
    priority: int = 0,
    idempotency_key: str | None = None,
) -> tuple[Job, bool]:
    """Write the job and its chunks in one transaction, then wake the workers. Returns the job and whether it is new.

    Raises AssayError 422 for a model that is not served, a set that is not ready, has no texts or nothing to rank, a
    ``top_k`` or ``priority`` out of range, too many pairs; 409 ``idempotency_conflict`` when the key was used for
    something else.
    """
    if idempotency_key and (job := _existing(principal, idempotency_key)):
        return _same_or_refused(job, model, document_set, query_set, top_k), False
    _check(model, document_set, query_set, top_k, priority)
    query_count, document_count = query_set.counts["kept"], document_set.counts["kept"]
    if query_count * document_count > MAX_PAIRS:
        raise _refusal(
            "too_many_pairs",
            f"{query_count:,} queries × {document_count:,} documents are {query_count * document_count:,} pairs; "
            f"the limit is {MAX_PAIRS:,}. Split one of the sets.",
            "document_set",
        )
    size = BLOCK_SIZES[model.kind]  # type: ignore[index]
    try:
        with transaction.atomic():
            texts_demand(document_set=document_set, query_set=query_set)
            job = Job.objects.create(
                team=principal.team,
                created_by=principal.user,
                name=name.strip() or f"{query_set.name} on {document_set.name} by {model.name}",
                model=model,
                model_revision=model.revision,
                document_set=document_set,
                query_set=query_set,
                top_k=top_k,
                priority=priority,
                settings=model_snapshot(model),
                query_count=query_count,
                document_count=document_count,
                pair_count=query_count * document_count,
                query_block=size.queries,
                document_block=size.documents,
                idempotency_key=idempotency_key or None,
            )
            grid = enumerate(blocks(query_count=query_count, document_count=document_count, size=size))
            while part := list(itertools.islice(grid, CHUNK_BATCH)):
                Chunk.objects.bulk_create(
                    Chunk(
                        job=job,
                        index=index,
                        query_start=block.query_start,
                        query_count=block.query_count,
                        document_start=block.document_start,
                        document_count=block.document_count,
                    )
                    for index, block in part
                )
            transition_record(job, "", JobState.QUEUED, actor=principal.label, reason="submitted").save()
            audit_record(verb="job.submitted", principal=principal, target=job, detail={"pairs": job.pair_count})
            transaction.on_commit(dispatch.workers_wake)
    except IntegrityError:
        # The same key twice at once: the other request won, its job is the answer.
        if idempotency_key and (other := _existing(principal, idempotency_key)):
            return _same_or_refused(other, model, document_set, query_set, top_k), False
        raise
    return job, True


def model_snapshot(model: ScoringModel) -> dict[str, Any]:
    """Everything about the model that a score depends on."""
    return {
        "model": model.name,
        "kind": model.kind,
        "source": model.source,
        "revision": model.revision,
        "dtype": model.dtype,
        "device": model.device,
        "gpu_maxsim": model.gpu_maxsim,
        "max_length": model.max_length or model.facts.get("max_length"),
        "template": model.template,
        "labels": model.labels,
        "positive_class": model.positive_class,
        "weights": model.weights,
        "scale": model.facts.get("scale", ""),
        "truncation": "document",
    }


def job_cancel(*, principal: Principal, job: Job) -> Job:
    """Stop the job. Chunks not begun are cancelled now, running ones within a micro-batch; what is done stays.

    Idempotent while cancelling and when cancelled. Raises AssayError 409 ``job_ended`` for a job that ended otherwise.
    """
    while job.state not in (JobState.CANCELLING, JobState.CANCELLED):
        if JobState(job.state) not in (JobState.QUEUED, JobState.RUNNING):
            raise AssayError(
                "job_ended",
                f"Job '{job.name}' is {job.get_state_display()}; there is nothing left to cancel.",
                status=409,
            )
        with transaction.atomic():
            if transition(
                job, JobState.CANCELLING, actor=principal.label, reason="cancelled", cancel_requested_at=Now()
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


def _check(
    model: ScoringModel, document_set: DocumentSet, query_set: QuerySet, top_k: int | None, priority: int
) -> None:
    if model.state != ModelState.AVAILABLE:
        raise _refusal(
            "model_not_served",
            f"Model '{model.name}' is not served ({model.get_state_display()}). Choose one that passed its self-test.",
            "model",
        )
    for param, uploaded in (("document_set", document_set), ("query_set", query_set)):
        _check_set(param, uploaded)
    if top_k is not None and top_k < 1:
        raise _refusal("bad_top_k", f"top_k is {top_k}; it must be at least 1, or absent for all documents.", "top_k")
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


def _same_or_refused(
    job: Job, model: ScoringModel, document_set: DocumentSet, query_set: QuerySet, top_k: int | None
) -> Job:
    if (job.model_id, job.document_set_id, job.query_set_id, job.top_k) != (
        model.pk,
        document_set.pk,
        query_set.pk,
        top_k,
    ):
        raise AssayError(
            "idempotency_conflict",
            f"This Idempotency-Key was used for job {job.pk} with other contents. Send a new key for a new job.",
            status=409,
            param="Idempotency-Key",
        )
    return job


def _refusal(code: str, message: str, param: str) -> AssayError:
    return AssayError(code, message, status=422, param=param)
