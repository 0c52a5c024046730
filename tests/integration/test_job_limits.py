"""Limits and keys when several requests come at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from django.db import connection
from pytest_django import Settings

from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.models import Chunk, Job, ScoringModel
from scoring.services.job_control import job_cancel, job_pause, job_resume
from scoring.services.job_watch import jobs_start_due
from scoring.services.jobs import job_submit
from scoring.services.stages import StagePlan
from scoring.states import JobState
from tests.integration.conftest import MakeJob

AT_ONCE = 4


def at_once(act: Callable[[], Any]) -> list[Any]:
    """What each of several simultaneous calls came to: its result, or the code of its refusal."""
    start = Barrier(AT_ONCE)

    def call(_: int) -> Any:
        start.wait(timeout=30)
        try:
            return act()
        except AssayError as refusal:
            return refusal.code
        finally:
            connection.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(call, range(AT_ONCE)))


def submit(job: Job, principal: Principal, model: ScoringModel, key: str | None = None) -> tuple[Job, bool]:
    return job_submit(
        principal=principal, name="again", document_set=job.document_set, query_set=job.query_set,
        stages=[StagePlan(model=model)], idempotency_key=key,
    )  # fmt: skip


def test_two_at_once_cannot_both_pass(
    model: ScoringModel, make_job: MakeJob, principal: Principal, settings: Settings
) -> None:
    job = make_job(model, chunks=1)
    settings.JOBS_RUNNING_PER_USER, settings.JOBS_WAITING_PER_USER = 2, 1
    came = at_once(lambda: submit(job, principal, model)[0].state)
    assert sorted(came) == ["queued", "scheduled", "waiting_jobs_limit", "waiting_jobs_limit"]
    assert Job.objects.count() == 3 and Chunk.objects.count() == 3


def test_one_key_at_once_is_one_job(model: ScoringModel, make_job: MakeJob, principal: Principal) -> None:
    job = make_job(model, chunks=1)
    came = at_once(lambda: submit(job, principal, model, key="k"))
    assert sorted(is_new for _, is_new in came) == [False, False, False, True]
    assert len({made.pk for made, _ in came}) == 1 and Job.objects.count() == 2


def test_starts_and_resumes_at_once_keep_to_the_limit(
    model: ScoringModel, make_job: MakeJob, principal: Principal, settings: Settings
) -> None:
    paused = job_pause(principal=principal, job=make_job(model, chunks=1))
    settings.JOBS_RUNNING_PER_USER = 1
    running, held = (submit(paused, principal, model)[0] for _ in range(2))
    assert (running.state, held.state) == (JobState.QUEUED, JobState.SCHEDULED)
    Job.objects.filter(pk=running.pk).delete()

    def either() -> Any:
        return jobs_start_due() or job_resume(principal=principal, job=Job.objects.get(pk=paused.pk)).state

    at_once(either)
    assert Job.objects.filter(state=JobState.QUEUED).count() == 1


def test_a_cancel_and_a_pause_at_once_end_in_the_cancel(
    model: ScoringModel, make_job: MakeJob, principal: Principal
) -> None:
    job = make_job(model, chunks=2)
    actions = iter((job_cancel, job_pause, job_cancel, job_pause))
    came = at_once(lambda: next(actions)(principal=principal, job=Job.objects.get(pk=job.pk)).state)
    job.refresh_from_db()
    assert job.state == JobState.CANCELLING and "cancelling" in came
    assert not Chunk.objects.filter(job=job).exclude(state="cancelled").exists()
