"""Chunks between workers that race, die and come back. The database's clock decides, so rows are aged, not slept on."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest
from django.db import connection
from django.db.models.functions import Now

from assay.api.principal import Principal
from scoring.models import Chunk, ScoringModel, Transition, Worker
from scoring.ranking import ScoreBlock
from scoring.services.chunks import (
    MAX_ATTEMPTS,
    chunk_complete,
    chunk_give_back,
    chunk_lease,
    chunks_extend,
    chunks_reclaim_expired,
    chunks_reclaim_own,
    chunks_to_stop,
)
from scoring.services.jobs import job_cancel
from scoring.states import ChunkCause, ChunkState, JobState
from tests.integration.conftest import MakeJob, MakeWorker


def scores(chunk: Chunk) -> ScoreBlock:
    shape = (chunk.query_count, chunk.document_count)
    raw = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    return ScoreBlock(raw, raw, np.zeros(raw.shape, np.uint8))


def lease(worker: Worker) -> Chunk:
    chunk = chunk_lease(worker=worker)
    assert chunk is not None
    return chunk


def expire(chunk: Chunk) -> None:
    Chunk.objects.filter(pk=chunk.pk).update(lease_expires_at=Now() - timedelta(seconds=1))


def test_racing_workers_lease_each_chunk_once(model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker) -> None:
    make_job(model, chunks=24)
    workers = [make_worker(f"worker-{n}") for n in range(8)]

    def lease_all(worker: Worker) -> list[int]:
        taken = []
        while chunk := chunk_lease(worker=worker):
            taken.append(chunk.index)
        connection.close()
        return taken

    with ThreadPoolExecutor(len(workers)) as pool:
        taken = [index for indices in pool.map(lease_all, workers) for index in indices]
    assert sorted(taken) == list(range(24))
    assert Transition.objects.filter(entity="chunk", to_state=ChunkState.LEASED).count() == 24
    assert Transition.objects.filter(entity="job", to_state=JobState.RUNNING).count() == 1


def test_a_zombie_cannot_overwrite(model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker) -> None:
    make_job(model, chunks=1)
    zombie, heir = make_worker("zombie"), make_worker("heir")
    old = lease(zombie)
    expire(old)
    assert chunks_reclaim_expired() == 1
    new = lease(heir)
    assert (new.pk, new.lease_token != old.lease_token) == (old.pk, True)
    assert not chunk_complete(chunk=old, worker=zombie, block=scores(old), report={"worker": "zombie"})
    assert not chunk_give_back(chunk=old, actor="worker:zombie", cause=ChunkCause.ITEM_ERROR)
    assert chunk_complete(chunk=new, worker=heir, block=scores(new), report={"worker": "heir"})
    assert Chunk.objects.get().report == {"worker": "heir"}


def test_the_cause_is_told_by_the_owners_row(model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker) -> None:
    make_job(model, chunks=3)
    alive, silent, restarted = make_worker("alive"), make_worker("silent"), make_worker("restarted")
    for worker in (alive, silent, restarted):
        expire(lease(worker))
    Worker.objects.filter(pk=silent.pk).update(heartbeat_at=Now() - timedelta(hours=1))
    make_worker("restarted", worker_id=restarted.pk)
    assert chunks_reclaim_expired() == 3
    causes = {chunk.index: (chunk.cause, chunk.attempts, chunk.state) for chunk in Chunk.objects.all()}
    assert causes == {
        0: (ChunkCause.LEASE_EXPIRED, 0, ChunkState.PENDING),
        1: (ChunkCause.WORKER_LOST, 0, ChunkState.PENDING),
        2: (ChunkCause.WORKER_CRASHED, 1, ChunkState.PENDING),
    }


def test_a_chunk_that_loses_its_worker_each_time_comes_to_an_end(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker
) -> None:
    """Also where no worker ever comes back to say that it crashed."""
    make_job(model, chunks=1)
    attempts = []
    for n in range(MAX_ATTEMPTS + 1):
        worker = make_worker(f"worker-{n}")
        expire(lease(worker))
        Worker.objects.filter(pk=worker.pk).update(heartbeat_at=Now() - timedelta(hours=1))
        assert chunks_reclaim_expired() == 1
        attempts.append(Chunk.objects.get().attempts)
    assert attempts == [0, 1, 2, 3]
    assert Chunk.objects.get().state == ChunkState.FAILED


def test_a_restarted_worker_takes_back_what_it_held(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker
) -> None:
    make_job(model, chunks=2)
    worker, other = make_worker("worker-1"), make_worker("worker-2")
    lost, kept = lease(worker), lease(other)
    again = make_worker("worker-1", worker_id=worker.pk)
    assert chunks_reclaim_own(worker=again) == 1
    lost.refresh_from_db()
    kept.refresh_from_db()
    assert (lost.state, lost.cause, lost.attempts) == (ChunkState.PENDING, ChunkCause.WORKER_CRASHED, 1)
    assert kept.state == ChunkState.LEASED


def test_a_chunk_fails_after_its_attempts_and_not_before(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker
) -> None:
    make_job(model, chunks=1)
    worker = make_worker()
    uncounted = (ChunkCause.RELEASED, ChunkCause.LEASE_EXPIRED, ChunkCause.WORKER_LOST)
    for cause in (*uncounted, *uncounted, *[ChunkCause.WORKER_CRASHED] * (MAX_ATTEMPTS - 1)):
        assert chunk_give_back(chunk=lease(worker), actor="test", cause=cause)
    assert chunk_give_back(chunk=lease(worker), actor="test", cause=ChunkCause.WORKER_CRASHED)
    chunk = Chunk.objects.get()
    assert (chunk.state, chunk.attempts, chunk.error) == (ChunkState.FAILED, 3, "worker crashed, 3 times")


def test_only_held_leases_are_extended(model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker) -> None:
    make_job(model, chunks=2)
    worker = make_worker()
    held, lost = lease(worker), lease(worker)
    assert chunk_give_back(chunk=lost, actor="test", cause=ChunkCause.RELEASED)
    expire(held)
    tokens = [token for token in (held.lease_token, lost.lease_token) if token]
    assert chunks_extend(tokens) == 1
    assert chunks_reclaim_expired() == 0


def test_cancel_reaches_chunks_in_every_state(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker, principal: Principal
) -> None:
    job = make_job(model, chunks=4)
    worker = make_worker()
    done, running, abandoned = lease(worker), lease(worker), lease(worker)
    assert chunk_complete(chunk=done, worker=worker, block=scores(done), report={})
    assert running.lease_token is not None
    assert chunks_to_stop([running.lease_token]) == set()
    job_cancel(principal=principal, job=job)
    assert chunks_to_stop([running.lease_token]) == {running.lease_token}
    assert chunk_lease(worker=worker) is None
    assert chunk_give_back(chunk=running, actor="test", cause=ChunkCause.RELEASED)
    expire(abandoned)
    assert chunks_reclaim_expired() == 1
    states = Counter(Chunk.objects.values_list("state", flat=True))
    assert states == {ChunkState.DONE: 1, ChunkState.CANCELLED: 3}


@pytest.mark.parametrize("shape", [(1, 64), (2, 63)])
def test_scores_of_another_shape_are_refused(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker, shape: tuple[int, int]
) -> None:
    make_job(model, chunks=1)
    worker = make_worker()
    chunk = lease(worker)
    block = ScoreBlock(np.zeros(shape, np.float32), np.zeros(shape, np.float32), np.zeros(shape, np.uint8))
    with pytest.raises(ValueError, match=r"needs scores of shape \(2, 64\)"):
        chunk_complete(chunk=chunk, worker=worker, block=block, report={})
