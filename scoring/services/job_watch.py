"""The reconciler's part in the life of jobs: starts that are due, time that is up, jobs that are hopeless, stops."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Case, Count, Exists, F, OuterRef, Q, Sum, When
from django.db.models.functions import Now

from accounts.models import Team
from audit.services import audit_record
from scoring import dispatch
from scoring.models import Chunk, Job
from scoring.models.chunk import BLOBS, IN_TROUBLE
from scoring.services.chunks import chunk_give_back, liveness
from scoring.services.job_control import chunks_cancel, job_stop
from scoring.services.job_limits import usage_lock
from scoring.services.jobs import expiry
from scoring.services.transitions import RECONCILER, transition
from scoring.states import TIMED_JOB_STATES, ChunkCause, ChunkState, JobEnd, JobState

FIRST_CHUNKS: Final = 5  # fewer say little about the rest
RECENTLY: Final = timedelta(minutes=1)  # only what fails now makes it worth counting a job's chunks


def jobs_start_due() -> int:
    """Let jobs join the queue whose time has come and whose owner has room. Returns how many did."""
    due = Job.objects.filter(Q(start_at=None) | Q(start_at__lte=Now()), state=JobState.SCHEDULED)
    started = 0
    for team_id, user_id in due.order_by().values_list("team", "created_by").distinct():
        user = User.objects.get(pk=user_id) if user_id else None
        with transaction.atomic():
            room = usage_lock(team=Team.objects.get(pk=team_id), user=user).room
            for job in due.filter(team=team_id, created_by=user_id).order_by("-priority", "queued_at")[:room]:
                until = expiry(job.complete_within)
                started += transition(
                    job, JobState.QUEUED, actor=RECONCILER, reason="due", queued_at=Now(), expires_at=until
                )
    if started:
        dispatch.workers_wake()
    return started


def jobs_expire() -> int:
    """Stop the jobs whose time is up: what is done stays and is ranked. Returns how many there were."""
    late = Job.objects.filter(state__in=TIMED_JOB_STATES, expires_at__lt=Now())
    return sum(_stop(job, JobEnd.EXPIRED, {"complete_within": job.complete_within}) for job in late)


def jobs_stop_hopeless() -> int:
    """Stop the jobs of which more than the allowed share fails, or nothing has a score. Returns how many there were."""
    failing = Chunk.objects.filter(IN_TROUBLE, job=OuterRef("pk"), finished_at__gt=Now() - RECENTLY)
    watched = Job.objects.filter(state=JobState.RUNNING, max_error_rate__lt=1).filter(Exists(failing))
    stopped = 0
    for job in watched:
        if figures := _hopeless_stage(job):
            stopped += _stop(job, JobEnd.TOO_MANY_ERRORS, figures, failure=_sentence(job, figures))
    return stopped


def jobs_stop_finish() -> None:
    """Take from the jobs being stopped what came back meanwhile, and what is held by workers that are gone."""
    gone = Q(lease_owner=None) | Q(lease_owner__heartbeat_at__lt=Now() - liveness()) | Q(lease_expires_at__lt=Now())
    for job in Job.objects.filter(state=JobState.CANCELLING):
        chunks_cancel(job, actor=RECONCILER)
        abandoned = Chunk.objects.filter(gone, job=job, state=ChunkState.LEASED)
        for chunk in abandoned.defer(*BLOBS):
            chunk_give_back(chunk=chunk, actor=RECONCILER, cause=ChunkCause.WORKER_LOST)


def _stop(job: Job, end: JobEnd, detail: dict[str, Any], **fields: Any) -> bool:
    with transaction.atomic():
        stopped = job_stop(job=job, end=end, actor=RECONCILER, detail=detail, **fields)
        if stopped:
            audit_record(verb="job.stopped", team=job.team, target=job, detail={"reason": end, **detail})
    return stopped


def _hopeless_stage(job: Job) -> dict[str, Any] | None:
    """Counts of the first stage that is hopeless, once some chunks of it have ended."""
    cells = When(state=ChunkState.FAILED, then=F("query_count") * F("document_count"))
    failed = Case(cells, default=F("failed_pairs"))
    ended = Chunk.objects.filter(job=job, stage__model__isnull=False, state__in=(ChunkState.DONE, ChunkState.FAILED))
    counted = ended.values("stage__index").annotate(
        chunks=Count("pk"),
        pairs=Sum(Case(cells, default=F("pair_count"))),
        failed=Sum(failed),
        scored=Sum("scored_pairs"),
    )
    for stage in counted.filter(chunks__gte=FIRST_CHUNKS).order_by("stage__index"):
        if stage["failed"] > job.max_error_rate * stage["pairs"] or stage["scored"] == 0:
            return {"stage": stage["stage__index"], **{name: stage[name] for name in ("chunks", "pairs", "failed")}}
    return None


def _sentence(job: Job, figures: dict[str, Any]) -> str:
    where = f"{figures['pairs']:,} pairs in the first {figures['chunks']:,} chunks of stage {figures['stage'] + 1}"
    if figures["failed"] > job.max_error_rate * figures["pairs"]:
        said = f"{figures['failed']:,} of {where} failed, more than the allowed {job.max_error_rate:.0%}"
    else:
        said = f"None of {where} got a score; is the text in the column that was imported?"
    return f"The job was stopped early: {said.rstrip('.')}" + ("" if said.endswith("?") else ".")
