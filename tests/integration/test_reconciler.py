"""What the reconciler puts right, also when two of them run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import redis
from django.db import connection
from django.db.models.functions import Now
from pytest_django import Settings

from assay.api.principal import Principal
from assay.database import only_one
from scoring import dispatch
from scoring.models import Chunk, Job, QueryResult, ScoringModel, Transition, Worker
from scoring.services.chunks import chunk_complete, chunk_lease
from scoring.services.jobs import job_cancel
from scoring.services.registry import self_test_claim, self_test_finish, self_tests_interrupted
from scoring.states import ChunkState, JobState, ModelState, WorkerState
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


def silence(*workers: Worker) -> None:
    Worker.objects.filter(pk__in=[worker.pk for worker in workers]).update(heartbeat_at=Now() - timedelta(minutes=5))


def watching() -> Reconciler:
    """One that has been listening for long enough to know who is silent."""
    reconciler = Reconciler()
    reconciler._watching_since -= 3600
    return reconciler


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
    expire(lease(workers[0]))
    silence(workers[0])
    Reconciler().tick()  # has just begun to listen: it cannot know
    assert not Worker.objects.filter(state=WorkerState.LOST).exists()
    watching().tick()
    states = dict(Worker.objects.values_list("name", "state"))
    assert states == {"worker-0": WorkerState.LOST, "worker-1": WorkerState.READY, "worker-2": WorkerState.READY}
    assert not Chunk.objects.filter(state=ChunkState.LEASED).exists()


def test_when_most_workers_fall_silent_at_once_it_waits(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker, settings: Settings
) -> None:
    make_job(model)
    workers = [make_worker(f"worker-{n}") for n in range(3)]
    expire(lease(workers[0]))
    silence(*workers[:2])
    reconciler = watching()
    reconciler.tick()
    assert not Worker.objects.filter(state=WorkerState.LOST).exists()
    assert Chunk.objects.filter(state=ChunkState.LEASED).exists()
    settings.LEASE_SECONDS = 0  # the lease time is over
    reconciler.tick()
    assert Worker.objects.filter(state=WorkerState.LOST).count() == 2
    assert not Chunk.objects.filter(state=ChunkState.LEASED).exists()


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
    Reconciler().tick()
    untested.refresh_from_db()
    assert untested.state == ModelState.TESTING
    silence(workers[0])
    Reconciler().tick()
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
