"""Every action on a job in every state it may be in; what a pause, a retry and a clone leave as it was."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.models import AuditEvent
from scoring.models import Chunk, Job, QueryResult, ScoringModel, Transition, Worker
from scoring.selectors.job_events import log_page
from scoring.selectors.jobs import job_progress
from scoring.services.chunks import chunk_complete, chunk_give_back, chunk_lease, chunks_to_stop
from scoring.services.finalize import jobs_advance
from scoring.services.job_control import job_cancel, job_clone, job_pause, job_resume
from scoring.services.job_retry import job_retry
from scoring.services.job_watch import jobs_expire, jobs_start_due, jobs_stop_finish
from scoring.services.jobs import job_change, job_delete, job_submit
from scoring.services.stages import StagePlan
from scoring.services.transitions import transition
from scoring.states import STOPPABLE_JOB_STATES, ChunkCause, ChunkState, JobState, ModelState, StageState
from tests.unit.scoring.test_job_life import run_all, score

S = JobState


def leased(worker: Worker) -> Chunk:
    chunk = chunk_lease(worker=worker)
    assert chunk is not None
    return chunk


def fail(worker: Worker, *, chunks: int) -> None:
    for _ in range(chunks):
        chunk = leased(worker)
        chunk_give_back(chunk=chunk, actor="w", cause=ChunkCause.ITEM_ERROR, error="bad text", final=True)


def bring(job: Job, to: JobState, principal: Principal, worker: Worker) -> Job:
    """The queued ``job`` in the state ``to``, by the moves that lead there in earnest."""
    match to:
        case S.SCHEDULED:
            tomorrow = timezone.now() + timedelta(days=1)
            job, _ = job_submit(
                principal=principal, name="later", document_set=job.document_set, query_set=job.query_set,
                stages=[StagePlan(model=job.last_stage.model)], start_at=tomorrow,
            )  # fmt: skip
        case S.RUNNING:
            leased(worker)
        case S.PAUSED:
            job_pause(principal=principal, job=job)
        case S.CANCELLING | S.CANCELLED:
            leased(worker)
            job_cancel(principal=principal, job=Job.objects.get(pk=job.pk))
        case S.FINALIZING | S.COMPLETED:
            run_all(worker)
        case S.COMPLETED_WITH_ERRORS | S.FAILED:
            fail(worker, chunks=2 if to == S.FAILED else 1)
            run_all(worker)
        case S.EXPIRED:
            Job.objects.update(expires_at=Now() - timedelta(seconds=1))
            jobs_expire()
            jobs_stop_finish()
    job.refresh_from_db()
    if to == S.FINALIZING:
        transition(job, S.FINALIZING, actor="test")
    if to == S.CANCELLED:
        chunk_give_back(chunk=Chunk.objects.get(state=ChunkState.LEASED), actor="w", cause=ChunkCause.RELEASED)
    if to.is_final:
        assert jobs_advance() == 1
        job.refresh_from_db()
    assert job.state == to
    return job


ACTIONS: dict[str, Callable[..., Any]] = {
    "pause": job_pause,
    "resume": job_resume,
    "cancel": job_cancel,
    "retry": job_retry,
    "delete": job_delete,
    "priority": lambda **given: job_change(priority=7, **given),
    "rename": lambda **given: job_change(name="another", **given),
}
ENDED = (S.COMPLETED, S.COMPLETED_WITH_ERRORS, S.CANCELLED, S.EXPIRED, S.FAILED)
# What each action leads to; a state that is not listed refuses it with the code beside the table.
LEADS: dict[str, tuple[str, Mapping[JobState, JobState | None]]] = {
    "pause": ("job_not_running", dict.fromkeys((S.SCHEDULED, S.QUEUED, S.RUNNING, S.PAUSED), S.PAUSED)),
    "resume": (
        "job_not_paused",
        {S.PAUSED: S.QUEUED, S.SCHEDULED: S.SCHEDULED, S.QUEUED: S.QUEUED, S.RUNNING: S.RUNNING},
    ),
    "cancel": (
        "job_ended",
        dict.fromkeys((S.SCHEDULED, S.QUEUED, S.RUNNING, S.PAUSED, S.CANCELLING), S.CANCELLING)
        | {S.CANCELLED: S.CANCELLED},
    ),
    "retry": (
        "job_not_retriable",
        dict.fromkeys((S.COMPLETED_WITH_ERRORS, S.CANCELLED, S.EXPIRED, S.FAILED), S.QUEUED),
    ),
    "delete": ("job_not_ended", dict.fromkeys(ENDED)),
    "priority": ("job_ended", dict(zip(STOPPABLE_JOB_STATES, STOPPABLE_JOB_STATES, strict=True))),
    "rename": ("", dict(zip(S, S, strict=True))),
}


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_in_every_state(
    job: Job, principal: Principal, worker: Worker, state: JobState, action: str
) -> None:
    job = bring(job, state, principal, worker)
    code, leads = LEADS[action]
    moves, deeds = Transition.objects.filter(job=job, entity="job"), AuditEvent.objects.filter(target_id=str(job.pk))
    before = moves.count(), deeds.count()
    if state in leads:
        ACTIONS[action](principal=principal, job=Job.objects.get(pk=job.pk))
        after = Job.objects.filter(pk=job.pk).first()
        assert (after and after.state) == leads[state]
        if action == "delete":
            assert not moves.exists() and deeds.count() == before[1] + 1
        else:
            changed = leads[state] != state or action in ("priority", "rename")
            assert (moves.count() - before[0], deeds.count() - before[1]) == (changed, changed)
    else:
        with pytest.raises(AssayError) as refused:
            ACTIONS[action](principal=principal, job=Job.objects.get(pk=job.pk))
        assert (refused.value.status, refused.value.code) == (409, code) and job.name in refused.value.message
        assert re.search("[Ww]ait|[Cc]lone|[Cc]ancel|[Rr]etry|only its name", refused.value.message), (
            "what to do instead"
        )
        assert Job.objects.get(pk=job.pk).state == state and (moves.count(), deeds.count()) == before


@pytest.mark.parametrize("state", S)
def test_a_clone_is_a_new_job_whatever_became_of_the_first(
    job: Job, principal: Principal, worker: Worker, state: JobState
) -> None:
    job = bring(job, state, principal, worker)
    clone, is_new = job_clone(principal=principal, job=job)
    assert is_new and (clone.state, clone.cloned_from, clone.attempt) == (S.QUEUED, job, 1)
    first, second = job.last_stage, clone.last_stage
    assert (second.model, second.top_k, second.settings) == (first.model, first.top_k, first.settings)
    assert clone.pair_count == job.pair_count and clone.name == job.name


def test_a_pause_gives_chunks_back_and_a_resume_finishes_the_job(
    job: Job, principal: Principal, worker: Worker
) -> None:
    chunk = leased(worker)
    job = job_pause(principal=principal, job=Job.objects.get(pk=job.pk))
    assert chunk.lease_token and chunks_to_stop([chunk.lease_token]) == {chunk.lease_token}
    assert job_progress(job).waiting.code == "pausing" and chunk_lease(worker=worker) is None
    assert chunk_give_back(chunk=chunk, actor="worker:worker-1", cause=ChunkCause.RELEASED)
    chunk.refresh_from_db()
    assert (chunk.state, chunk.attempts) == (ChunkState.PENDING, 0)
    assert job_progress(job).waiting.sentence == "it was paused by system"
    assert jobs_advance() == 0
    job_resume(principal=principal, job=job)
    run_all(worker)
    assert jobs_advance() == 1
    job.refresh_from_db()
    assert job.state == S.COMPLETED and job.statistics["not_scored"] == 0


def test_a_job_paused_after_its_last_chunk_ends_when_it_is_resumed(
    job: Job, principal: Principal, worker: Worker
) -> None:
    run_all(worker)
    job = job_pause(principal=principal, job=Job.objects.get(pk=job.pk))
    assert jobs_advance() == 0
    assert job_resume(principal=principal, job=job).state == S.RUNNING
    assert jobs_advance() == 1


def test_a_retry_scores_only_what_is_unfinished(job: Job, principal: Principal, worker: Worker) -> None:
    fail(worker, chunks=1)
    run_all(worker)
    jobs_advance()
    done = Chunk.objects.get(job=job, state=ChunkState.DONE)
    job = job_retry(principal=principal, job=Job.objects.get(pk=job.pk))
    assert (job.attempt, job.statistics, job.finished_at, job.started_at) == (2, {}, None, None)
    again = Chunk.objects.get(job=job, state=ChunkState.PENDING)
    assert (again.attempts, again.error, again.cause) == (0, "", "")
    assert QueryResult.objects.filter(stage__job=job).count() == 2  # readable until the new ones are there
    run_all(worker)
    assert jobs_advance() == 1
    job.refresh_from_db()
    assert job.state == S.COMPLETED and Chunk.objects.get(pk=done.pk).finished_at == done.finished_at
    log = [(event.what, event.to_state, event.attempt) for event in log_page(job, kind="main", limit=100).events]
    assert ("job", "queued", 2) in log and ("stage 1, chunk 0", "failed", 1) in log  # the old attempt's too


def test_a_retry_opens_a_stage_that_was_skipped(
    job: Job, principal: Principal, worker: Worker, model: ScoringModel
) -> None:
    cascade, _ = job_submit(
        principal=principal, name="cascade", document_set=job.document_set, query_set=job.query_set,
        stages=[StagePlan(model=model, top_k=70), StagePlan(model=model, source=0)], priority=9,
    )  # fmt: skip
    first = leased(worker)
    chunk_complete(chunk=first, worker=worker, block=score(first), report={})
    job_cancel(principal=principal, job=Job.objects.get(pk=cascade.pk))
    assert jobs_advance() == 1
    states = list(cascade.stages.values_list("state", flat=True))
    assert states == [StageState.DONE, StageState.SKIPPED]

    job_retry(principal=principal, job=Job.objects.get(pk=cascade.pk))
    states = list(cascade.stages.values_list("state", flat=True))
    assert states == [StageState.RUNNING, StageState.WAITING]
    run_all(worker)
    jobs_advance()
    run_all(worker)
    jobs_advance()
    cascade.refresh_from_db()
    assert cascade.state == S.COMPLETED and cascade.last_stage.state == StageState.DONE


def test_a_retry_of_a_source_cuts_its_branches_anew(
    job: Job, principal: Principal, worker: Worker, model: ScoringModel
) -> None:
    cascade, _ = job_submit(
        principal=principal, name="cascade", document_set=job.document_set, query_set=job.query_set,
        stages=[StagePlan(model=model, top_k=70), StagePlan(model=model, source=0)], priority=9,
    )  # fmt: skip
    fail(worker, chunks=1)
    run_all(worker)
    jobs_advance()
    run_all(worker)
    jobs_advance()
    cascade.refresh_from_db()
    assert cascade.state == S.COMPLETED_WITH_ERRORS
    source, branch = cascade.stages.order_by("index")
    assert branch.state == StageState.DONE and branch.chunks.exists()

    job_retry(principal=principal, job=cascade)
    branch.refresh_from_db()
    assert branch.state == StageState.WAITING and not branch.chunks.exists()
    assert not QueryResult.objects.filter(stage=branch).exists()
    assert source.chunks.filter(state=ChunkState.DONE).exists()
    run_all(worker)
    jobs_advance()
    run_all(worker)
    jobs_advance()
    cascade.refresh_from_db()
    assert cascade.state == S.COMPLETED


def test_a_retry_with_nothing_left_to_score_is_refused(job: Job, principal: Principal, worker: Worker) -> None:
    run_all(worker)
    jobs_advance()
    Job.objects.filter(pk=job.pk).update(state=S.COMPLETED_WITH_ERRORS)  # as after pairs that failed one by one
    with pytest.raises(AssayError) as refused:
        job_retry(principal=principal, job=Job.objects.get(pk=job.pk))
    assert refused.value.code == "nothing_to_retry"
    assert Job.objects.get(pk=job.pk).state == S.COMPLETED_WITH_ERRORS


@pytest.mark.parametrize(
    ("changed", "code"),
    [({"max_length": 9}, "model_changed"), ({"state": ModelState.DISABLED}, "model_not_served")],
)
def test_a_retry_mixes_no_scores_of_two_models(
    job: Job, principal: Principal, worker: Worker, changed: dict[str, Any], code: str
) -> None:
    bring(job, S.CANCELLED, principal, worker)
    ScoringModel.objects.update(**changed)
    with pytest.raises(AssayError) as refused:
        job_retry(principal=principal, job=Job.objects.get(pk=job.pk))
    assert refused.value.code == code and Job.objects.get(pk=job.pk).state == S.CANCELLED


def test_an_expired_job_keeps_what_is_done(job: Job, principal: Principal, worker: Worker) -> None:
    first = leased(worker)
    chunk_complete(chunk=first, worker=worker, block=score(first), report={})
    Job.objects.update(expires_at=Now() - timedelta(seconds=1))
    assert jobs_expire() == 1
    jobs_stop_finish()
    assert jobs_advance() == 1
    job.refresh_from_db()
    assert (job.state, job.end_reason, job.cancel_requested_at) == (S.EXPIRED, "expired", None)
    assert QueryResult.objects.filter(stage__job=job).count() == 2 and job.statistics["not_scored"] == 12
    assert Chunk.objects.get(job=job, state=ChunkState.CANCELLED).error == "expired"


def test_the_time_to_be_done_in_begins_in_the_queue(job: Job, principal: Principal) -> None:
    job = job_change(principal=principal, job=job, complete_within=3600)
    assert job.expires_at is not None and job.expires_at - job.queued_at == timedelta(hours=1)
    Job.objects.update(queued_at=Now() - timedelta(hours=2))
    job.refresh_from_db()
    with pytest.raises(AssayError, match="longer ago than that"):
        job_change(principal=principal, job=job, complete_within=60)
    assert job_change(principal=principal, job=job, complete_within=None).expires_at is None


def test_a_scheduled_job_joins_the_queue_when_it_is_due(job: Job, principal: Principal, worker: Worker) -> None:
    later, _ = job_submit(
        principal=principal, name="later", document_set=job.document_set, query_set=job.query_set, priority=50,
        stages=[StagePlan(model=job.last_stage.model)], start_at=timezone.now() + timedelta(days=1), complete_within=60,
    )  # fmt: skip
    assert later.expires_at is None and "it is scheduled for" in job_progress(later).waiting.sentence
    assert jobs_start_due() == 0 and leased(worker).job == job
    Job.objects.filter(pk=later.pk).update(start_at=Now() - timedelta(seconds=1))
    assert jobs_start_due() == 1
    due = Job.objects.get(pk=later.pk)
    assert due.state == S.QUEUED and due.expires_at and due.expires_at > due.queued_at
    assert leased(worker).job == later


def test_a_job_paused_before_its_time_is_scheduled_again(job: Job, principal: Principal, worker: Worker) -> None:
    later = job_change(
        principal=principal, job=job_pause(principal=principal, job=bring(job, S.SCHEDULED, principal, worker)),
        complete_within=60,
    )  # fmt: skip
    assert later.state == S.PAUSED and later.expires_at is None
    Job.objects.filter(pk=later.pk).update(start_at=Now() - timedelta(seconds=1))
    assert jobs_start_due() == 0 and jobs_expire() == 0
    later = job_resume(principal=principal, job=later)
    assert later.state == S.SCHEDULED
    assert jobs_start_due() == 1
    due = Job.objects.get(pk=later.pk)
    assert due.state == S.QUEUED and due.expires_at and due.expires_at > due.queued_at


def test_a_start_that_is_past_is_now(job: Job, principal: Principal) -> None:
    now, _ = job_submit(
        principal=principal, name="now", document_set=job.document_set, query_set=job.query_set,
        stages=[StagePlan(model=job.last_stage.model)], start_at=timezone.now() - timedelta(days=1),
    )  # fmt: skip
    assert now.state == S.QUEUED


def test_a_deleted_job_leaves_nothing(job: Job, principal: Principal, worker: Worker) -> None:
    run_all(worker)
    jobs_advance()
    job_delete(principal=principal, job=Job.objects.get(pk=job.pk))
    assert not Chunk.objects.exists() and not QueryResult.objects.exists()
    assert not Transition.objects.filter(entity__in=("job", "stage", "chunk")).exists()
    with pytest.raises(AssayError) as gone:
        job_pause(principal=principal, job=Job(pk=job.pk, name="x", state=S.QUEUED))
    assert gone.value.status == 404


def test_a_cancel_without_a_live_worker_is_completed(job: Job, principal: Principal, worker: Worker) -> None:
    leased(worker)
    job_cancel(principal=principal, job=Job.objects.get(pk=job.pk))
    jobs_stop_finish()
    assert jobs_advance() == 0  # the worker is alive: it will give its chunk back
    Worker.objects.update(heartbeat_at=Now() - timedelta(minutes=5))
    jobs_stop_finish()
    assert jobs_advance() == 1
    job.refresh_from_db()
    assert job.state == S.CANCELLED
