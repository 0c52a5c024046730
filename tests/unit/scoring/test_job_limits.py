"""What a person may have open, and what waits or is refused beyond that."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from accounts.services import principal_of_user
from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.models import Chunk, Job, JobLimit, Worker
from scoring.selectors.job_limits import job_usage
from scoring.selectors.jobs import job_progress
from scoring.services.finalize import jobs_advance
from scoring.services.job_control import job_cancel, job_clone, job_pause, job_resume
from scoring.services.job_retry import job_retry
from scoring.services.job_watch import jobs_start_due, jobs_stop_finish
from scoring.states import JobState
from tests.unit.scoring.test_job_life import run_all, submit_again


@pytest.fixture
def limits(settings: Settings) -> Settings:
    settings.JOBS_RUNNING_PER_USER = 1
    settings.JOBS_WAITING_PER_USER = 1
    return settings


def refused(act: Any, limit: str, **figures: int) -> None:
    jobs, chunks = Job.objects.count(), Chunk.objects.count()
    with pytest.raises(AssayError) as refusal:
        act()
    assert (refusal.value.status, refusal.value.code) == (429, f"{limit}_limit")
    assert refusal.value.extra == {"limit": limit, **figures}
    assert (Job.objects.count(), Chunk.objects.count()) == (jobs, chunks)  # nothing is left behind that counts


def test_beyond_the_running_jobs_one_waits_and_the_next_is_refused(
    job: Job, principal: Principal, worker: Worker, limits: Settings
) -> None:
    held, _ = submit_again(job, principal)
    assert held.state == JobState.SCHEDULED
    waiting = job_progress(held).waiting
    assert waiting.code == "quota" and "1 jobs of this team's tokens are queued or running" in waiting.sentence
    refused(lambda: submit_again(job, principal), "waiting_jobs", allowed=1, used=1, asked=1)
    refused(lambda: job_clone(principal=principal, job=job), "waiting_jobs", allowed=1, used=1, asked=1)
    assert jobs_start_due() == 0
    run_all(worker)
    jobs_advance()
    assert jobs_start_due() == 1
    held.refresh_from_db()
    assert held.state == JobState.QUEUED


def test_of_those_held_back_the_more_urgent_goes_first(
    job: Job, principal: Principal, worker: Worker, limits: Settings
) -> None:
    limits.JOBS_WAITING_PER_USER = 5
    first, second = submit_again(job, principal)[0], submit_again(job, principal, priority=3)[0]
    run_all(worker)
    jobs_advance()
    assert jobs_start_due() == 1
    states = [Job.objects.get(pk=each.pk).state for each in (first, second)]
    assert states == [JobState.SCHEDULED, JobState.QUEUED]


def test_resume_and_retry_count_too(job: Job, principal: Principal, limits: Settings) -> None:
    limits.JOBS_WAITING_PER_USER = 5
    job_pause(principal=principal, job=job)
    other, _ = submit_again(job, principal)
    assert other.state == JobState.QUEUED
    refused(lambda: job_resume(principal=principal, job=job), "running_jobs", allowed=1, used=1, asked=1)
    job_cancel(principal=principal, job=job)
    jobs_stop_finish()
    jobs_advance()
    refused(lambda: job_retry(principal=principal, job=job), "running_jobs", allowed=1, used=1, asked=1)
    job_pause(principal=principal, job=other)
    assert job_retry(principal=principal, job=job).state == JobState.QUEUED


def test_pairs_of_open_jobs_are_limited(job: Job, principal: Principal, worker: Worker, settings: Settings) -> None:
    settings.PAIRS_OPEN_PER_USER = 200
    refused(lambda: submit_again(job, principal), "open_pairs", allowed=200, used=140, asked=140)
    run_all(worker)
    jobs_advance()
    assert submit_again(job, principal)[0].state == JobState.QUEUED


def test_a_persons_own_limit_comes_before_the_teams(
    job: Job, analyst: User, principal: Principal, settings: Settings
) -> None:
    team = principal.team
    JobLimit.objects.create(team=team, running_jobs=2, open_pairs=500)
    JobLimit.objects.create(team=team, user=analyst, running_jobs=3)
    usage = job_usage(team=team, user=analyst)
    assert (usage.running_limit, usage.pairs_limit) == (3, 500)
    assert usage.waiting_limit == settings.JOBS_WAITING_PER_USER
    assert (usage.running_jobs, usage.open_pairs) == (0, 0)  # the job is of a token that nobody in particular made
    mine, _ = submit_again(job, principal_of_user(analyst))
    assert mine.created_by == analyst and job_usage(team=team, user=analyst).running_jobs == 1
    assert job_usage(team=team, user=None).running_limit == 2
