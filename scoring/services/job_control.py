"""What people do with a job under way: pause, resume, cancel, clone. Each can be asked twice without harm."""

from __future__ import annotations

from typing import Any, Final

from django.db import transaction
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring import dispatch
from scoring.models import Chunk, Job
from scoring.selectors.job_waiting import paused_before_start
from scoring.services.job_limits import running_check, usage_lock
from scoring.services.jobs import job_reread, job_submit
from scoring.services.stages import stage_plan
from scoring.services.transitions import transition, transitions_record
from scoring.states import STOPPABLE_JOB_STATES, ChunkState, JobEnd, JobState

PAUSABLE: Final = (JobState.SCHEDULED, JobState.QUEUED, JobState.RUNNING)
INSTEAD: Final[dict[str, str]] = {
    JobState.CANCELLING: "Wait until it has ended; then it can be retried or cloned.",
    JobState.FINALIZING: "Wait for its end, which is seconds away: everything is scored.",
    JobState.COMPLETED: "Clone it to score everything anew.",
}
RETRY: Final = "Retry it to score what is unfinished, or clone it to score everything anew."
CHUNKS_AT_ONCE: Final = 20_000


def job_pause(*, principal: Principal, job: Job) -> Job:
    """Give no more of the job to workers; what they hold comes back within a micro-batch, to be done after a resume.
    A scheduled job does not join the queue before that.

    Raises AssayError 409 ``job_not_running`` for a job that has ended or is about to.
    """
    while job.state != JobState.PAUSED:
        if job.state not in PAUSABLE:
            raise _refusal("job_not_running", job, "only a job that is scheduled, queued or running can be paused")
        with transaction.atomic():
            if transition(job, JobState.PAUSED, actor=principal.label, reason="paused"):
                audit_record(verb="job.paused", principal=principal, target=job)
                transaction.on_commit(lambda: holders_wake(job))
        job_reread(job)
    return job


def job_resume(*, principal: Principal, job: Job) -> Job:
    """Give the job to workers again, at its old place in the queue; one that was paused before its time is scheduled
    again. Nothing happens to one that is not paused but runs or is to run.

    Raises AssayError 409 ``job_not_paused`` for a job that neither is paused nor runs, 429 over the person's limit;
    PermissionDenied for a model that the token is not for.
    """
    models_demand(principal, job)
    while job.state not in PAUSABLE:
        if job.state != JobState.PAUSED:
            raise _refusal("job_not_paused", job, "only a paused job can be resumed")
        with transaction.atomic():
            if transition(job, _resumed_state(job), actor=principal.label, reason="resumed"):
                audit_record(verb="job.resumed", principal=principal, target=job)
                transaction.on_commit(dispatch.workers_wake)
        job_reread(job)
    return job


def job_cancel(*, principal: Principal, job: Job) -> Job:
    """Stop the job. Chunks not begun are cancelled now, running ones within a micro-batch; what is done stays.

    Idempotent while it is being stopped and when cancelled. Raises AssayError 409 ``job_ended`` for any other end.
    """
    while job.state not in (JobState.CANCELLING, JobState.CANCELLED):
        if job.state not in STOPPABLE_JOB_STATES:
            raise _refusal("job_ended", job, "there is nothing left to cancel")
        with transaction.atomic():
            if job_stop(job=job, end=JobEnd.CANCELLED, actor=principal.label, cancel_requested_at=Now()):
                audit_record(verb="job.cancelled", principal=principal, target=job)
        # Not in that transaction: workers see the stop at once, however many chunks there are.
        chunks_cancel(job, actor=principal.label)
        dispatch.reconciler_wake()
        job_reread(job)
    return job


def job_clone(*, principal: Principal, job: Job, idempotency_key: str | None = None) -> tuple[Job, bool]:
    """Submit the same sets, stages and settings again, with the models as they are now. As ``job_submit`` otherwise."""
    stages = job.stages.select_related("model", "source", "run_set").order_by("index")
    return job_submit(
        principal=principal,
        name=job.name,
        document_set=job.document_set,
        query_set=job.query_set,
        stages=[stage_plan(stage) for stage in stages],
        priority=job.priority,
        complete_within=job.complete_within,
        max_error_rate=job.max_error_rate,
        cloned_from=job,
        idempotency_key=idempotency_key,
    )


def models_demand(principal: Principal, job: Job) -> None:
    """Raises PermissionDenied unless the principal's token is for every model that the job is scored by."""
    for stage in job.stages.select_related("model").exclude(model=None):
        principal.require_model(stage.scorer.name)


def job_stop(*, job: Job, end: JobEnd, actor: str, **fields: Any) -> bool:
    """Begin to stop the job for the reason ``end``, and tell who holds chunks of it. Returns False when it was moved
    meanwhile."""
    with transaction.atomic():
        stopped = transition(job, JobState.CANCELLING, actor=actor, reason=end, end_reason=end, **fields)
        if stopped:
            transaction.on_commit(lambda: holders_wake(job))
    return stopped


def holders_wake(job: Job) -> None:
    """Tell the workers that hold chunks of the job to look whether these are still wanted."""
    leased = Chunk.objects.filter(job=job, state=ChunkState.LEASED, lease_owner__isnull=False).order_by()
    dispatch.workers_wake(set(leased.values_list("lease_owner", flat=True)))


def chunks_cancel(job: Job, *, actor: str) -> int:
    """Cancel the pending chunks of a job that is being stopped. Leased ones are cancelled by their worker, or when
    their lease ends."""
    cancelled = 0
    pending = Chunk.objects.filter(job=job, job__state=JobState.CANCELLING, state=ChunkState.PENDING)
    while True:
        # In parts, and passing over what a worker leases at this moment: that worker sees the stop itself.
        with transaction.atomic():
            free = pending.select_for_update(skip_locked=True, of=("self",)).order_by()
            ids = list(free.values_list("pk", flat=True)[:CHUNKS_AT_ONCE])
            if not ids:
                return cancelled
            rows = Chunk.objects.filter(pk__in=ids)
            rows.update(state=ChunkState.CANCELLED, finished_at=Now(), error=job.end_reason)
            transitions_record(
                Chunk, ids, ChunkState.PENDING, ChunkState.CANCELLED, job=job, actor=actor, reason=job.end_reason
            )
        cancelled += len(ids)


def _resumed_state(job: Job) -> JobState:
    """Where a paused job goes on; one that joins the queue must have room there. Call it in a transaction."""
    if paused_before_start(job):
        return JobState.SCHEDULED  # the reconciler lets it into the queue when it is due
    running_check(usage_lock(team=job.team, user=job.created_by))
    # The next lease makes it run; with nothing left to lease, it has only to be ranked.
    waits = Chunk.objects.filter(job=job, state=ChunkState.PENDING).exists()
    return JobState.QUEUED if waits else JobState.RUNNING


def _refusal(code: str, job: Job, why: str) -> AssayError:
    """Of a job in a state that has ended or leads to the end."""
    instead = INSTEAD.get(job.state, RETRY)
    return AssayError(code, f"Job '{job.name}' is {job.get_state_display().lower()}; {why}. {instead}", status=409)
