"""What workers do with chunks: lease, extend, complete, give back. Leases live on the database's clock."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import Count, DateTimeField, F, Func, Q, QuerySet
from django.db.models.functions import Now

from scoring import dispatch
from scoring.models import Chunk, ChunkReturn, Job, Stage, Worker
from scoring.models.chunk import BLOBS
from scoring.ranking import ScoreBlock
from scoring.services.chunk_plan import Block, chunk_of
from scoring.services.isolation import ATTEMPTS, halves
from scoring.services.transitions import RECONCILER, transition, transition_record
from scoring.states import COUNTED_CAUSES, ChunkCause, ChunkState, JobState, StageState

RUNNABLE: Final = (JobState.QUEUED, JobState.RUNNING)
WANTED: Final = (*RUNNABLE, JobState.PAUSED)  # what a paused job gives back is wanted again later
LEASE_LOST: Final = (ChunkCause.LEASE_EXPIRED, ChunkCause.WORKER_LOST, ChunkCause.WORKER_CRASHED)
NO_LEASE: Final[dict[str, Any]] = {
    "lease_owner": None,
    "lease_boot": None,
    "lease_token": None,
    "lease_expires_at": None,
}


def _lease_end() -> Any:
    return Now() + timedelta(seconds=settings.LEASE_SECONDS)


def chunk_lease(*, worker: Worker, models: Collection[uuid.UUID] | None = None, retrieval: bool = True) -> Chunk | None:
    """Take the next pending chunk, of one of ``models`` if given; ``retrieval``: also of stages without a model.

    The stage comes first, by priority and fairness, then its next chunk: however many chunks wait, only the first few
    of an index are looked at. SKIP LOCKED lets any number of workers take different chunks at once. The first lease of
    a job starts it.
    """
    with transaction.atomic():
        chunk = next(filter(None, map(_first_pending, _stages_in_turn(models, retrieval))), None)
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


def _stages_in_turn(models: Collection[uuid.UUID] | None, retrieval: bool) -> list[int]:
    """Higher priority first; among equals the team for which the fewest chunks are running; then the older job."""
    stages = Stage.objects.filter(state=StageState.RUNNING, job__state__in=RUNNABLE)
    if models is not None:
        stages = stages.filter(Q(model__in=models) | Q(model=None) if retrieval else Q(model__in=models))
    elif not retrieval:
        stages = stages.exclude(model=None)
    order = "-job__priority", "job__queued_at", "job", "index"
    waiting = list(stages.order_by(*order).values_list("pk", "job__priority", "job__team"))
    if len({team for _, _, team in waiting}) > 1:
        leased = Chunk.objects.filter(state=ChunkState.LEASED).values_list("job__team").order_by("job__team")
        running = dict(leased.annotate(Count("pk")))
        waiting.sort(key=lambda row: (-row[1], running.get(row[2], 0)))  # stable: the older job stays first
    return [pk for pk, _, _ in waiting]


def _first_pending(stage: int) -> Chunk | None:
    """Locked; its stage is read apart, because joins would cost more to plan than the chunk costs to find."""
    pending = Chunk.objects.filter(stage=stage, state=ChunkState.PENDING).order_by("attempts", "index")
    chunk = pending.select_for_update(skip_locked=True).defer(*BLOBS).first()
    if chunk is not None:
        chunk.stage = Stage.objects.select_related("job", "model", "source", "run_set").get(pk=stage)
        chunk.job = chunk.stage.job
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
        **block.counts(),
        **block.packed(),
        **NO_LEASE,
    )


def chunk_give_back(*, chunk: Chunk, actor: str, cause: ChunkCause, error: str = "", final: bool = False) -> bool:
    """Give a leased chunk back with its cause: to pending, in halves when it failed ATTEMPTS times, cancelled with its
    job, or to failed, when it cannot be cut or ``final`` says that no part of it can be scored.
    """
    attempts = chunk.attempts + (cause in COUNTED_CAUSES)
    job_state = Job.objects.values_list("state", flat=True).get(pk=chunk.job_id)
    fields: dict[str, Any] = {"attempts": attempts, "cause": cause, "error": error}
    detail: dict[str, Any] = {"attempts": attempts, "error": error[:500]}
    parts = None
    if job_state not in WANTED:
        to, fields["finished_at"] = ChunkState.CANCELLED, Now()
    elif final or (cause in COUNTED_CAUSES and attempts >= ATTEMPTS and not (parts := halves(chunk))):
        to, fields["finished_at"] = ChunkState.FAILED, Now()
        fields["error"] = error or f"{cause.label}, {attempts} times"
    else:
        to = ChunkState.PENDING
    if parts:
        detail["cut"] = [asdict(part) for part in parts]
        fields |= asdict(parts[0])
    with transaction.atomic():
        where = Q(lease_token=chunk.lease_token)
        if not transition(chunk, to, actor=actor, reason=cause, detail=detail, where=where, **fields, **NO_LEASE):
            return False
        _count_return(cause)
        if parts:
            _add_half(chunk, parts[1], actor=actor)
        if to == ChunkState.CANCELLED:  # it may have been the last that its job waited for
            transaction.on_commit(dispatch.reconciler_wake)
    return True


def _count_return(cause: ChunkCause) -> None:
    counter = ChunkReturn.objects.filter(cause=cause)
    if not counter.update(count=F("count") + 1):
        ChunkReturn.objects.get_or_create(cause=cause)
        counter.update(count=F("count") + 1)


def _add_half(chunk: Chunk, block: Block, *, actor: str) -> None:
    """The other half of a chunk just cut, with the same history: both run alone and after all that is not suspect."""
    history = {"attempts": chunk.attempts, "cause": chunk.cause, "error": chunk.error}
    half = chunk_of(chunk.stage, block, index=chunk.index, **history)
    half.save()
    detail = {"cut_from": chunk.pk, "attempts": chunk.attempts}
    transition_record(half, "", ChunkState.PENDING, actor=actor, reason="cut in two", detail=detail).save()


def chunks_reclaim_own(*, worker: Worker) -> int:
    """At the start of a worker: what its previous process still held died with it."""
    lost = Chunk.objects.filter(state=ChunkState.LEASED, lease_owner=worker).exclude(lease_boot=worker.boot_id)
    return _reclaim(lost, actor=worker_label(worker), blame=True)


def chunks_reclaim_expired(*, blame: bool = True) -> int:
    """The reconciler's part: leases past their end go back, with the reason that the owner's row tells.

    ``blame`` False: whoever watches was not there all the time, so no loss is put down to a chunk.
    """
    expired = Chunk.objects.filter(state=ChunkState.LEASED, lease_expires_at__lt=Now())
    return _reclaim(expired, actor=RECONCILER, blame=blame)


def _reclaim(lost: QuerySet[Chunk], *, actor: str, blame: bool) -> int:
    """Nor is a loss put down to a chunk if the database itself was restarted within the lease."""
    chunks = lost.annotate(steady=Q(started_at__gt=DatabaseStart())).select_related("lease_owner").defer(*BLOBS)
    return sum(
        chunk_give_back(chunk=chunk, actor=actor, cause=_cause(chunk, blame=blame and chunk.steady))
        for chunk in chunks.order_by("pk")
    )


def _cause(chunk: Chunk, *, blame: bool) -> ChunkCause:
    """One lost lease may be an accident; a chunk that loses one after another is not, and must come to an end."""
    owner = chunk.lease_owner
    restarted = owner is None or owner.boot_id != chunk.lease_boot
    if blame and (restarted or chunk.cause in LEASE_LOST):
        return ChunkCause.WORKER_CRASHED
    return ChunkCause.LEASE_EXPIRED if owner and not restarted and owner_is_alive(owner) else ChunkCause.WORKER_LOST


class DatabaseStart(Func):
    """When PostgreSQL started, on its own clock."""

    function = "pg_postmaster_start_time"
    output_field = DateTimeField()


def owner_is_alive(worker: Worker) -> bool:
    return Worker.objects.filter(pk=worker.pk, heartbeat_at__gt=Now() - liveness()).exists()


def liveness() -> timedelta:
    """A worker silent for longer than this is not counted on."""
    return timedelta(seconds=settings.HEARTBEAT_SECONDS * 3)


def worker_label(worker: Worker) -> str:
    return f"worker:{worker.name}"
