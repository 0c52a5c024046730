"""Chunks between workers that race, die and come back. The database's clock decides, so rows are aged, not slept on."""

from __future__ import annotations

import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest
from django.db import connection
from django.db.models.functions import Now

from accounts.models import Team
from assay.api.principal import Principal
from scoring.models import Chunk, ChunkReturn, Job, ScoringModel, Stage, StageMethod, Transition, Worker
from scoring.ranking import ScoreBlock
from scoring.services.chunks import (
    DatabaseStart,
    chunk_complete,
    chunk_give_back,
    chunk_lease,
    chunks_extend,
    chunks_reclaim_expired,
    chunks_reclaim_own,
    chunks_to_stop,
)
from scoring.services.job_control import job_cancel
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


def test_a_chunk_that_loses_its_worker_each_time_is_isolated(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker
) -> None:
    """Also where no worker ever comes back to say that it crashed."""
    make_job(model, chunks=1)
    attempts = []
    for n in range(4):
        worker = make_worker(f"worker-{n}")
        expire(lease(worker))
        Worker.objects.filter(pk=worker.pk).update(heartbeat_at=Now() - timedelta(hours=1))
        assert chunks_reclaim_expired() == 1
        sizes = Chunk.objects.values_list("attempts", "query_count", "document_count")
        attempts.append(sorted(sizes))
    halved = [(2, 2, 32), (2, 2, 32)]
    assert attempts == [[(0, 2, 64)], [(1, 2, 64)], halved, [(2, 2, 32), (3, 1, 32), (3, 1, 32)]]


def test_no_loss_is_put_down_to_a_chunk_while_nobody_could_tell(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker
) -> None:
    make_job(model, chunks=1)
    lost, again, third = (make_worker(f"worker-{n}") for n in range(3))
    expire(lease(lost))
    make_worker(lost.name, worker_id=lost.pk)
    assert chunks_reclaim_expired(blame=False) == 1  # the reconciler itself had a gap
    expire(lease(again))
    # The database was restarted while the chunk was leased.
    Chunk.objects.update(started_at=DatabaseStart() - timedelta(seconds=1))
    assert chunks_reclaim_own(worker=make_worker(again.name, worker_id=again.pk)) == 1
    chunk = Chunk.objects.get()
    assert (chunk.attempts, chunk.cause, chunk.document_count) == (0, ChunkCause.WORKER_LOST, 64)
    lease(third)
    assert chunks_reclaim_own(worker=make_worker(third.name, worker_id=third.pk)) == 1
    assert Chunk.objects.get().attempts == 1


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


def test_only_its_own_faults_count_against_a_chunk(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker
) -> None:
    make_job(model, chunks=1)
    worker = make_worker()
    uncounted = (ChunkCause.RELEASED, ChunkCause.LEASE_EXPIRED, ChunkCause.WORKER_LOST)
    for cause in (*uncounted, *uncounted, ChunkCause.WORKER_CRASHED):
        assert chunk_give_back(chunk=lease(worker), actor="test", cause=cause)
    assert Chunk.objects.get().attempts == 1
    assert chunk_give_back(chunk=lease(worker), actor="test", cause=ChunkCause.ITEM_ERROR, error="why", final=True)
    chunk = Chunk.objects.get()
    assert (chunk.state, chunk.attempts, chunk.error) == (ChunkState.FAILED, 2, "why")
    chunk.job.delete()
    counted = dict(ChunkReturn.objects.values_list("cause", "count"))
    assert counted == {**dict.fromkeys(uncounted, 2), ChunkCause.WORKER_CRASHED: 1, ChunkCause.ITEM_ERROR: 1}


def test_teams_of_one_priority_share_the_workers(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker, principal: Principal
) -> None:
    first, second, urgent = make_job(model, chunks=4), make_job(model, chunks=4), make_job(model, chunks=1)
    Job.objects.filter(pk=second.pk).update(team=Team.objects.create(name="others"))
    Job.objects.filter(pk=urgent.pk).update(priority=5)
    worker = make_worker()
    taken = [lease(worker).job_id for _ in range(6)]
    assert taken[0] == urgent.pk
    # The default team holds the urgent chunk already, so the other one comes first; then they take turns.
    assert taken[1:] == [second.pk, first.pk, second.pk, first.pk, second.pk]


def test_only_stages_that_the_worker_can_score_are_leased(
    model: ScoringModel, make_job: MakeJob, make_worker: MakeWorker
) -> None:
    make_job(model, chunks=1)
    worker = make_worker()
    assert chunk_lease(worker=worker, models=[uuid.uuid4()]) is None
    Stage.objects.update(method=StageMethod.BM25, model=None)
    assert chunk_lease(worker=worker, models=[model.pk], retrieval=False) is None
    assert chunk_lease(worker=worker, retrieval=False) is None
    assert chunk_lease(worker=worker, models=[]) is not None


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
