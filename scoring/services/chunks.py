"""What workers do with chunks: lease, extend, complete, give back. Leases live on the database's clock."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from scoring.models import Chunk, Job, Worker
from scoring.ranking import ScoreBlock
from scoring.services.transitions import transition
from scoring.states import COUNTED_CAUSES, ChunkCause, ChunkState, JobState

MAX_ATTEMPTS: Final = 3
RUNNABLE: Final = (JobState.QUEUED, JobState.RUNNING)
LEASE_LOST: Final = (ChunkCause.LEASE_EXPIRED, ChunkCause.WORKER_LOST, ChunkCause.WORKER_CRASHED)
NO_LEASE: Final[dict[str, Any]] = {
    "lease_owner": None,
    "lease_boot": None,
    "lease_token": None,
    "lease_expires_at": None,
}


def _lease_end() -> Any:
    return Now() + timedelta(seconds=settings.LEASE_SECONDS)


def chunk_lease(*, worker: Worker, models: Collection[uuid.UUID] | None = None) -> Chunk | None:
    """Take the next pending chunk, of one of ``models`` if given: higher priority first, then the older job, in order.

    SKIP LOCKED lets any number of workers take different chunks at once. The first lease of a job starts it.
    """
    wanted = Q(state=ChunkState.PENDING, job__state__in=RUNNABLE)
    if models is not None:
        wanted &= Q(stage__model__in=models)
    with transaction.atomic():
        chunk = (
            Chunk.objects.select_for_update(skip_locked=True, of=("self",))
            .filter(wanted)
            .select_related("job", "stage__job", "stage__model", "stage__source")
            .defer("raw_scores", "scores", "statuses")
            .order_by("-job__priority", "job__queued_at", "index")
            .first()
        )
        if chunk is None:
            return None
        actor = worker_label(worker)
        leased = transition(
            chunk,
            ChunkState.LEASED,
            actor=actor,
            reason="leased",
            lease_owner=worker,
            lease_boot=worker.boot_id,
            lease_token=uuid.uuid4(),
            lease_expires_at=_lease_end(),
            started_at=Now(),
        )
        if not leased:
            return None
        if chunk.job.state == JobState.QUEUED:
            transition(chunk.job, JobState.RUNNING, actor=actor, reason="first lease", started_at=Now())
    return chunk


def chunks_extend(tokens: Sequence[uuid.UUID]) -> int:
    """Push the end of these leases out. Returns how many were still held."""
    return Chunk.objects.filter(lease_token__in=tokens, state=ChunkState.LEASED).update(lease_expires_at=_lease_end())


def chunks_to_stop(tokens: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Of these leases, those that are lost or whose job is no longer wanted."""
    wanted = Chunk.objects.filter(lease_token__in=tokens, state=ChunkState.LEASED, job__state__in=RUNNABLE)
    return set(tokens) - set(wanted.values_list("lease_token", flat=True))


def chunk_complete(*, chunk: Chunk, worker: Worker, block: ScoreBlock, report: dict[str, Any]) -> bool:
    """Store the scores and mark the chunk done, in one transaction, only if the lease is still ours.

    Returns False when it is not: the scores are dropped, another worker owns it. ``block`` is [Q, D] of the chunk.
    """
    expected = (chunk.query_count, chunk.document_count)
    if block.raw.shape != expected or block.statuses.shape != expected:
        raise ValueError(f"Chunk {chunk} needs scores of shape {expected}, got {block.raw.shape}.")
    return transition(
        chunk,
        ChunkState.DONE,
        actor=worker_label(worker),
        reason="scored",
        where=Q(lease_token=chunk.lease_token),
        finished_at=Now(),
        cause="",
        error="",
        report=report,
        **block.packed(),
        **NO_LEASE,
    )


def chunk_give_back(*, chunk: Chunk, actor: str, cause: ChunkCause, error: str = "") -> bool:
    """Give a leased chunk back with its cause: to pending, to failed after MAX_ATTEMPTS counted ones, or cancelled."""
    attempts = chunk.attempts + (cause in COUNTED_CAUSES)
    job_state = Job.objects.values_list("state", flat=True).get(pk=chunk.job_id)
    if job_state not in RUNNABLE:
        to, ended = ChunkState.CANCELLED, True
    elif attempts >= MAX_ATTEMPTS:
        to, ended = ChunkState.FAILED, True
        error = error or f"{cause.label}, {attempts} times"
    else:
        to, ended = ChunkState.PENDING, False
    return transition(
        chunk,
        to,
        actor=actor,
        reason=cause,
        detail={"attempts": attempts, "error": error[:500]},
        where=Q(lease_token=chunk.lease_token),
        attempts=attempts,
        cause=cause,
        error=error,
        **({"finished_at": Now()} if ended else {}),
        **NO_LEASE,
    )


def chunks_reclaim_own(*, worker: Worker) -> int:
    """At the start of a worker: what its previous process still held died with it."""
    lost = Chunk.objects.filter(state=ChunkState.LEASED, lease_owner=worker).exclude(lease_boot=worker.boot_id)
    return sum(
        chunk_give_back(chunk=chunk, actor=worker_label(worker), cause=ChunkCause.WORKER_CRASHED)
        for chunk in lost.defer("raw_scores", "scores", "statuses")
    )


def chunks_reclaim_expired() -> int:
    """The reconciler's part: leases past their end go back, with the reason that the owner's row tells."""
    expired = (
        Chunk.objects.filter(state=ChunkState.LEASED, lease_expires_at__lt=Now())
        .select_related("lease_owner")
        .defer("raw_scores", "scores", "statuses")
    )
    return sum(chunk_give_back(chunk=chunk, actor="reconciler", cause=_cause(chunk)) for chunk in expired)


def _cause(chunk: Chunk) -> ChunkCause:
    """One lost lease may be an accident; a chunk that loses one after another is not, and must come to an end."""
    owner = chunk.lease_owner
    if owner is None or owner.boot_id != chunk.lease_boot or chunk.cause in LEASE_LOST:
        return ChunkCause.WORKER_CRASHED
    return ChunkCause.LEASE_EXPIRED if owner_is_alive(owner) else ChunkCause.WORKER_LOST


def owner_is_alive(worker: Worker) -> bool:
    return Worker.objects.filter(pk=worker.pk, heartbeat_at__gt=Now() - liveness()).exists()


def liveness() -> timedelta:
    """A worker silent for longer than this is not counted on."""
    return timedelta(seconds=settings.HEARTBEAT_SECONDS * 3)


def worker_label(worker: Worker) -> str:
    return f"worker:{worker.name}"
