"""Jobs that are stopped early because going on is hopeless, and those that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from accounts.models import Team
from assay.api.principal import Principal
from audit.models import AuditEvent
from scoring.models import Chunk, Job, QueryResult, ScoringModel, Worker
from scoring.ranking import ScoreBlock
from scoring.selectors.jobs import job_progress
from scoring.services.chunks import chunk_complete, chunk_give_back, chunk_lease
from scoring.services.claims import placement_claim, placement_move, placement_refuse
from scoring.services.finalize import jobs_advance
from scoring.services.job_control import job_pause
from scoring.services.job_watch import FIRST_CHUNKS, jobs_stop_finish, jobs_stop_hopeless
from scoring.services.jobs import job_submit
from scoring.services.placements import placement_want
from scoring.services.stages import StagePlan
from scoring.services.workers import worker_move
from scoring.states import (
    ITEM_STATUSES,
    ChunkCause,
    ChunkState,
    ItemStatus,
    JobState,
    MemorySource,
    ModelState,
    PlacementDemand,
    PlacementState,
    WorkerState,
)
from tests.unit.scoring.conftest import QUERIES, Upload

FAILED, EMPTY = (ITEM_STATUSES.index(status) for status in (ItemStatus.FAILED, ItemStatus.EMPTY))
CHUNKS = FIRST_CHUNKS + 2


@pytest.fixture
def long(principal: Principal, model: ScoringModel, upload: Upload) -> Job:
    return submit(principal, model, upload)


def submit(principal: Principal, model: ScoringModel, upload: Upload, **options: Any) -> Job:
    documents = b"id,text\n" + b"".join(b"d%d,text %d\n" % (i, i) for i in range(64 * CHUNKS))
    job, _ = job_submit(
        principal=principal, name="long", stages=[StagePlan(model=model)],
        document_set=upload("documents", documents, use_existing=True),
        query_set=upload("queries", QUERIES, use_existing=True), **options,
    )  # fmt: skip
    return job


def complete(worker: Worker, *, chunks: int, failed: float = 0.0, empty: float = 0.0) -> None:
    """Complete chunks of which the given shares of documents failed or were empty."""
    for _ in range(chunks):
        chunk = chunk_lease(worker=worker)
        assert chunk is not None
        raw = np.ones((chunk.query_count, chunk.document_count), np.float32)
        statuses = np.zeros(raw.shape, np.uint8)
        bad, blank = round(failed * chunk.document_count), round(empty * chunk.document_count)
        statuses[:, :bad], statuses[:, bad : bad + blank] = FAILED, EMPTY
        raw[:, : bad + blank] = np.nan
        assert chunk_complete(chunk=chunk, worker=worker, block=ScoreBlock(raw, raw, statuses), report={})


def test_a_job_most_of_which_fails_is_stopped_after_its_first_chunks(long: Job, worker: Worker) -> None:
    complete(worker, chunks=FIRST_CHUNKS - 1, failed=0.75)
    assert jobs_stop_hopeless() == 0
    complete(worker, chunks=1, failed=0.75)
    assert jobs_stop_hopeless() == 1
    jobs_stop_finish()
    assert jobs_advance() == 1
    long.refresh_from_db()
    assert (long.state, long.end_reason) == (JobState.FAILED, "too_many_errors")
    said = "480 of 640 pairs in the first 5 chunks of stage 1 failed, more than the allowed 50%."
    assert long.failure == f"The job was stopped early: {said}"
    assert QueryResult.objects.filter(stage__job=long).count() == 2  # what has a score is ranked
    assert Chunk.objects.filter(job=long, state=ChunkState.CANCELLED).count() == CHUNKS - FIRST_CHUNKS
    assert AuditEvent.objects.get(verb="job.stopped").detail["failed"] == 480


def test_whole_chunks_that_fail_count(long: Job, worker: Worker) -> None:
    for _ in range(FIRST_CHUNKS):
        chunk = chunk_lease(worker=worker)
        assert chunk is not None
        chunk_give_back(chunk=chunk, actor="w", cause=ChunkCause.ITEM_ERROR, error="No model.", final=True)
    assert jobs_stop_hopeless() == 1
    jobs_stop_finish()
    jobs_advance()
    long.refresh_from_db()
    assert long.state == JobState.FAILED and long.failure.endswith("No model.")


def test_a_wrong_column_shows(long: Job, worker: Worker) -> None:
    complete(worker, chunks=FIRST_CHUNKS, empty=1.0)
    assert jobs_stop_hopeless() == 1
    long.refresh_from_db()
    assert "None of 640 pairs" in long.failure and "is the text in the column that was imported?" in long.failure


@pytest.mark.parametrize(
    ("rate", "shares"),
    [(None, {"failed": 0.5}), (None, {"empty": 0.9}), (0.8, {"failed": 0.75}), (1.0, {"failed": 1.0})],
)
def test_a_job_within_its_share_goes_on(
    principal: Principal, model: ScoringModel, upload: Upload, worker: Worker, rate: float | None, shares: Any
) -> None:
    job = submit(principal, model, upload, max_error_rate=rate)
    complete(worker, chunks=FIRST_CHUNKS, **shares)
    assert jobs_stop_hopeless() == 0
    job.refresh_from_db()
    assert job.state == JobState.RUNNING


def test_what_comes_later_counts_too(long: Job, worker: Worker) -> None:
    complete(worker, chunks=3)
    complete(worker, chunks=4, failed=1.0)
    assert jobs_stop_hopeless() == 1


def test_the_rate_is_of_the_present_run(long: Job, worker: Worker, principal: Principal) -> None:
    complete(worker, chunks=2)
    running = Job.objects.get(pk=long.pk)
    assert (rate := job_progress(running).rate) is not None and rate > 0
    assert job_progress(job_pause(principal=principal, job=running)).rate is None


def test_a_job_says_why_it_waits(
    long: Job, worker: Worker, principal: Principal, model: ScoringModel, upload: Upload
) -> None:
    job = submit(principal, model, upload)

    def said() -> tuple[str, str]:
        waiting = job_progress(Job.objects.get(pk=job.pk)).waiting
        return waiting.code, waiting.sentence

    assert said() == ("no_worker", "no worker is running")
    worker_move(worker=worker, to=WorkerState.READY, reason="tests")
    assert said() == ("no_placement", "no worker has loaded model 'late' yet")
    placement = placement_want(model=model, worker=worker, demand=PlacementDemand.BATCH, actor="tests")
    placement_refuse(placement=placement, worker=worker, why="worker-1: needs 9.1 GiB, 3.2 GiB of 6.0 GiB are free.")
    room = "worker-1: needs 9.1 GiB, 3.2 GiB of 6.0 GiB are free"
    assert said() == ("no_placement", f"no worker has room for model 'late': {room}")
    assert placement_claim(placement=placement, worker=worker, claimed_bytes=1, source=MemorySource.ESTIMATED)
    assert said() == ("model_loading", "model 'late' is being loaded on worker-1")
    for state in (PlacementState.LOADING, PlacementState.WARMING, PlacementState.READY):
        placement_move(placement=placement, to=state, reason="tests")
    assert said() == ("behind", "waiting behind 'long'")
    foreign = submit(principal, model, upload, priority=5)
    Job.objects.filter(pk=foreign.pk).update(team=Team.objects.create(name="others"), name="secret")
    assert said() == ("behind", "waiting behind 'long' and 1 other job")
    Job.objects.filter(pk=long.pk).update(state=JobState.PAUSED)
    assert said() == ("behind", "waiting behind 1 other job")
    Job.objects.filter(pk=foreign.pk).update(state=JobState.PAUSED)
    assert said() == ("next", "a worker is about to take it")
    ScoringModel.objects.update(state=ModelState.DISABLED)
    assert said() == ("model_not_served", "model 'late' is not served: disabled")
