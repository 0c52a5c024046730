"""What the reconciler puts right, also when two of them run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import redis
from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.database import only_one
from scoring import dispatch
from scoring.models import Chunk, Job, QueryResult, ScoringModel, Transition, Worker
from scoring.services.chunks import chunk_complete, chunk_give_back, chunk_lease
from scoring.services.job_control import job_cancel
from scoring.services.registry import self_test_claim, self_test_finish, self_tests_interrupted
from scoring.states import ChunkCause, ChunkState, JobState, ModelState, WorkerState
from tests.integration.conftest import MakeJob, MakeWorker
from tests.integration.test_leases import expire, lease, scores
from workers.reconcile import ADVISORY_LOCK, Reconciler


@pytest.fixture(autouse=True)
def no_messages(redis_client: redis.Redis) -> Iterator[None]:
    redis_client.delete(dispatch.BATCH_QUEUE)
    yield
    redis_client.delete(dispatch.BATCH_QUEUE)


def complete_all(worker: Worker) -> None:
    while chunk := chunk_lease(worker=worker):
        assert chunk_complete(chunk=chunk, worker=worker, block=scores(chunk), report={"backend": "cpu"})


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


STEP = 5.0  # seconds between ticks: shorter than a gap


def watchful() -> tuple[Reconciler, Clock]:
    """A reconciler that has been here without a gap for long enough to judge others."""
    clock = Clock()
    reconciler = Reconciler(clock)
    tick_on(reconciler, clock)
    return reconciler, clock


def tick_on(reconciler: Reconciler, clock: Clock) -> None:
    """For one lease time."""
    for _ in range(int(settings.LEASE_SECONDS / STEP) + 1):
        reconciler.tick()
        clock.now += STEP


def silence(*workers: Worker) -> None:
    """These have not been heard of lately, all others have, however long the test takes."""
    silent = [worker.pk for worker in workers]
    Worker.objects.filter(pk__in=silent).update(heartbeat_at=Now() - timedelta(minutes=5))
    Worker.objects.exclude(pk__in=silent).update(heartbeat_at=Now() + timedelta(hours=1))


def test_two_reconcilers_end_a_job_once(model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker) -> None:
    job = make_job(model)
    complete_all(make_worker())

    def tick(_: int) -> None:
        Reconciler().tick()
        connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(tick, range(12)))
    job.refresh_from_db()
    assert job.state == JobState.COMPLETED
    assert QueryResult.objects.filter(stage__job=job).count() == 2
    moves = Transition.objects.filter(entity="job", entity_id=str(job.pk)).values_list("to_state", flat=True)
    assert list(moves) == [JobState.QUEUED, JobState.RUNNING, JobState.FINALIZING, JobState.COMPLETED]


def test_only_one_ticks_at_a_time(transactional_db: None) -> None:
    def other() -> bool:
        with only_one(ADVISORY_LOCK, wait=False) as ours:
            result = ours
        connection.close()
        return result

    with ThreadPoolExecutor(1) as pool:
        with only_one(ADVISORY_LOCK, wait=False) as first:
            assert (first, pool.submit(other).result()) == (True, False)
        assert pool.submit(other).result() is True


def test_a_cancelled_job_ends_without_any_worker(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker, principal: Principal
) -> None:
    job = make_job(model)
    abandoned = lease(make_worker())
    job_cancel(principal=principal, job=job)
    # Given back in the moment of the cancel: pending, in a job from which nobody leases.
    Chunk.objects.filter(index=1).update(state=ChunkState.PENDING, finished_at=None)
    expire(abandoned)
    Worker.objects.all().delete()
    Reconciler().tick()
    job.refresh_from_db()
    assert job.state == JobState.CANCELLED
    assert set(Chunk.objects.values_list("state", flat=True)) == {ChunkState.CANCELLED}


def test_one_silent_worker_of_three_is_lost(model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker) -> None:
    make_job(model)
    workers = [make_worker(f"worker-{n}") for n in range(3)]
    reconciler, _ = watchful()
    expire(lease(workers[0]))
    silence(workers[0])
    reconciler.tick()
    states = dict(Worker.objects.values_list("name", "state"))
    assert states == {"worker-0": WorkerState.LOST, "worker-1": WorkerState.READY, "worker-2": WorkerState.READY}
    assert not Chunk.objects.filter(state=ChunkState.LEASED).exists()


def test_after_a_gap_of_its_own_it_judges_nobody(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker
) -> None:
    make_job(model)
    workers = [make_worker(f"worker-{n}") for n in range(3)]
    reconciler, clock = watchful()
    expire(lease(workers[0]))
    make_worker(workers[0].name, worker_id=workers[0].pk)
    silence(workers[1])
    clock.now += settings.LEASE_SECONDS  # away, or without the database
    reconciler.tick()
    assert not Worker.objects.filter(state=WorkerState.LOST).exists()
    assert list(Chunk.objects.exclude(cause="").values_list("attempts", "cause")) == [(0, ChunkCause.WORKER_LOST)]
    tick_on(reconciler, clock)
    assert Worker.objects.get(state=WorkerState.LOST) == workers[1]


def test_when_most_workers_fall_silent_at_once_it_waits(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker
) -> None:
    make_job(model)
    workers = [make_worker(f"worker-{n}") for n in range(3)]
    reconciler, clock = watchful()
    expire(lease(workers[0]))
    silence(*workers[:2])
    reconciler.tick()
    assert not Worker.objects.filter(state=WorkerState.LOST).exists()
    assert Chunk.objects.filter(state=ChunkState.LEASED).exists()
    clock.now += STEP
    tick_on(reconciler, clock)
    assert Worker.objects.filter(state=WorkerState.LOST).count() == 2
    assert not Chunk.objects.filter(state=ChunkState.LEASED).exists()


def test_a_cancel_is_told_to_who_holds_chunks_and_to_the_reconciler(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker, principal: Principal, redis_client: redis.Redis
) -> None:
    holder, idle = make_worker("worker-1"), make_worker("worker-2")
    job = make_job(model)
    chunk = lease(holder)
    redis_client.delete(dispatch.RECONCILER_WAKE)
    job_cancel(principal=principal, job=Job.objects.get(pk=job.pk))
    assert [redis_client.llen(dispatch.worker_queue(worker.pk)) for worker in (holder, idle)] == [1, 0]
    assert dispatch.reconciler_woken()
    assert chunk_give_back(chunk=chunk, actor="test", cause=ChunkCause.RELEASED)
    dispatch.reconciler_wake()
    assert redis_client.llen(dispatch.RECONCILER_WAKE) == 1, "however many wake it"
    Reconciler().tick()
    job.refresh_from_db()
    assert job.state == JobState.CANCELLED


def test_waiting_work_is_announced_once(
    model: ScoringModel, make_job: MakeJob, redis_client: redis.Redis, make_worker: MakeWorker
) -> None:
    make_job(model)
    redis_client.delete(dispatch.BATCH_QUEUE)  # the wake-up got lost
    for _ in range(3):
        Reconciler().tick()
    assert redis_client.llen(dispatch.BATCH_QUEUE) == 1
    complete_all(make_worker())
    redis_client.delete(dispatch.BATCH_QUEUE)
    Reconciler().tick()
    assert redis_client.llen(dispatch.BATCH_QUEUE) == 0
    assert Job.objects.get().state == JobState.COMPLETED


@pytest.fixture
def untested(model: ScoringModel) -> ScoringModel:
    ScoringModel.objects.update(state=ModelState.REGISTERED)
    model.refresh_from_db()
    return model


def claim(worker: Worker) -> ScoringModel:
    model = self_test_claim(worker=worker)
    assert model is not None
    return model


def test_a_self_test_is_claimed_once_and_survives_its_workers_silence(
    untested: ScoringModel, make_worker: MakeWorker
) -> None:
    workers = [make_worker(f"worker-{n}") for n in range(3)]
    claim(workers[0])
    assert self_test_claim(worker=workers[1]) is None
    reconciler, _ = watchful()
    untested.refresh_from_db()
    assert untested.state == ModelState.TESTING
    silence(workers[0])
    reconciler.tick()
    claim(workers[1])


def test_a_model_that_kills_its_worker_is_rejected(untested: ScoringModel, make_worker: MakeWorker) -> None:
    worker = make_worker()
    for state in (ModelState.REGISTERED, ModelState.REJECTED):
        claim(worker)
        worker = make_worker(worker_id=worker.pk)
        assert self_tests_interrupted(worker=worker) == 1
        untested.refresh_from_db()
        assert untested.state == state
    assert untested.self_test_report is not None
    assert "2 times in a row" in untested.self_test_report["checks"][0]["detail"]


def test_a_model_changed_during_its_test_is_tested_again(untested: ScoringModel, make_worker: MakeWorker) -> None:
    worker = make_worker()
    tested = claim(worker)
    ScoringModel.objects.update(generation=untested.generation + 1, dtype="bfloat16")
    report = {"passed": True, "checks": [], "golden_scores": []}
    stored = self_test_finish(model=tested, worker=worker, passed=True, report=report, revision="r2", facts={})
    untested.refresh_from_db()
    assert (stored, untested.state, untested.revision) == (False, ModelState.REGISTERED, "r1")
