"""Chunks are cut: into halves to isolate what crashes workers, anew to fit the measured speed. No pair gets lost."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from django.db.models.functions import Now
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from assay.api.principal import Principal
from scoring.models import Chunk, Job, ScoringModel, Stage, Worker
from scoring.models.scoring_model import ModelKind
from scoring.ranking import ScoreBlock
from scoring.selectors.failures import failure_codes
from scoring.selectors.jobs import results_of
from scoring.services import isolation
from scoring.services.chunk_plan import (
    Block,
    BlockSize,
    block_size,
    blocks,
    cut_anew,
    halves_by_documents,
    halves_by_queries,
)
from scoring.services.chunk_sizes import block_size_measured, pending_cut_anew, stages_fit_chunks
from scoring.services.chunks import chunk_complete, chunk_give_back, chunk_lease
from scoring.services.finalize import jobs_advance
from scoring.services.jobs import job_submit
from scoring.services.stages import StagePlan
from scoring.services.workers import worker_register
from scoring.states import ChunkCause, ChunkState
from tests.unit.scoring.conftest import Upload

QUERIES, DOCUMENTS = 8, 192
Pair = tuple[int, int]
MakeJob = Callable[..., Job]


@pytest.fixture
def worker(db: None) -> Worker:
    return worker_register(
        worker_id=uuid.uuid4(), boot_id=uuid.uuid4(), name="worker-1", host="here", pid=1, device="cpu"
    )


@pytest.fixture
def make_job(principal: Principal, model: ScoringModel, upload: Upload) -> MakeJob:
    def make(kind: ModelKind = ModelKind.LATE_INTERACTION, **plan: Any) -> Job:
        ScoringModel.objects.filter(pk=model.pk).update(kind=kind)
        model.refresh_from_db()
        documents = "id,text\n" + "".join(f"d{n},text {n}\n" for n in range(DOCUMENTS))
        queries = "id,text\n" + "".join(f"q{n},query {n}\n" for n in range(QUERIES))
        job, _ = job_submit(
            principal=principal,
            name="",
            stages=[StagePlan(model=model, **plan)],
            document_set=upload("documents", documents.encode()),
            query_set=upload("queries", queries.encode()),
        )
        return job

    return make


def pairs_of(chunk: Any) -> set[Pair]:
    queries = range(chunk.query_start, chunk.query_start + chunk.query_count)
    documents = range(chunk.document_start, chunk.document_start + chunk.document_count)
    return {(query, document) for query in queries for document in documents}


def scores_of(chunk: Chunk) -> ScoreBlock:
    """A score tells which pair it belongs to."""
    queries = np.arange(chunk.query_start, chunk.query_start + chunk.query_count)
    documents = np.arange(chunk.document_start, chunk.document_start + chunk.document_count)
    raw = (queries[:, None] * DOCUMENTS + documents).astype(np.float32)
    return ScoreBlock(raw, raw, np.zeros(raw.shape, np.uint8))


def complete(chunk: Chunk, worker: Worker, seconds: float | None = None) -> None:
    report = {} if seconds is None else {"seconds": seconds}
    assert chunk_complete(chunk=chunk, worker=worker, block=scores_of(chunk), report=report)


def covered_once() -> bool:
    seen = np.zeros((QUERIES, DOCUMENTS), int)
    for chunk in Chunk.objects.all():
        for query, document in pairs_of(chunk):
            seen[query, document] += 1
    return bool((seen == 1).all())


def run_all(worker: Worker, poison: Callable[[Pair], bool]) -> int:
    """Every chunk that holds a poisoned pair kills its worker. Returns how many died."""
    crashes = 0
    while chunk := chunk_lease(worker=worker):
        if any(map(poison, pairs_of(chunk))):
            crashes += 1
            assert chunk_give_back(chunk=chunk, actor="reconciler", cause=ChunkCause.WORKER_CRASHED)
            assert covered_once()
        else:
            complete(chunk, worker)
    return crashes


def failed_pairs() -> set[Pair]:
    return {pair for chunk in Chunk.objects.filter(state=ChunkState.FAILED) for pair in pairs_of(chunk)}


def every(poison: Callable[[Pair], bool]) -> set[Pair]:
    return {(query, document) for query in range(QUERIES) for document in range(DOCUMENTS) if poison((query, document))}


LATE, CROSS = ModelKind.LATE_INTERACTION, ModelKind.CROSS_ENCODER


@pytest.mark.parametrize(
    ("kind", "poison", "crashes"),
    [
        (LATE, lambda pair: pair[1] == 70, 8),  # twice, then six cuts from 64 documents to one
        (LATE, lambda pair: pair[1] in (3, 60, 130), 24),
        (LATE, lambda pair: pair[0] == 5, 30),  # in each of the three chunks
        (CROSS, lambda pair: pair == (5, 70), 8),
        (CROSS, lambda pair: pair[1] == 70, 64),
    ],
    ids=["document", "three documents", "query", "pair", "document read with each query"],
)
def test_poison_fails_alone(
    make_job: MakeJob, worker: Worker, kind: ModelKind, poison: Callable[[Pair], bool], crashes: int
) -> None:
    job = make_job(kind)
    assert run_all(worker, poison) <= crashes
    assert failed_pairs() == every(poison)
    assert set(Chunk.objects.values_list("state", flat=True)) == {ChunkState.DONE, ChunkState.FAILED}
    jobs_advance()
    job.refresh_from_db()
    assert job.state == "completed_with_errors"
    assert job.statistics["pairs"] == {
        "ok": QUERIES * DOCUMENTS - len(every(poison)), "truncated": 0, "empty": 0, "failed": len(every(poison))
    }  # fmt: skip


def test_the_reason_is_found_by_pair(make_job: MakeJob, worker: Worker) -> None:
    job = make_job()
    first = chunk_lease(worker=worker)
    assert first is not None
    report = {"failures": {"non_finite_score": [64 + 7]}}  # query 1, document 7
    assert chunk_complete(chunk=first, worker=worker, block=scores_of(first), report=report)
    run_all(worker, lambda pair: pair[1] == 70)
    jobs_advance()
    results = results_of(job.last_stage).select_related("stage")
    assert failure_codes(results[1], [7, 8, 70]) == {7: "non_finite_score", 70: "worker_crashed"}
    assert failure_codes(results[0], [7, 8, 70]) == {70: "worker_crashed"}


def test_where_everything_crashes_the_cutting_ends(
    make_job: MakeJob, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "SUSPECTS", 10)
    make_job()
    assert run_all(worker, lambda pair: True) < 40
    assert failed_pairs() == every(lambda pair: True)


def test_suspects_come_last(make_job: MakeJob, worker: Worker) -> None:
    make_job()
    first = chunk_lease(worker=worker)
    assert first is not None
    chunk_give_back(chunk=first, actor="reconciler", cause=ChunkCause.WORKER_CRASHED)
    order = []
    while chunk := chunk_lease(worker=worker):
        order.append(chunk.index)
        complete(chunk, worker)
    assert order == [1, 2, 0]


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[Block], BlockSize]:
    """Blocks of a grid, some taken out and some cut in halves, and another size."""
    numbers = st.integers(1, 9)
    size, other = BlockSize(draw(numbers), draw(numbers)), BlockSize(draw(numbers), draw(numbers))
    rest: list[Block] = []
    counts = np.full(draw(st.integers(1, 24)), draw(st.integers(1, 24)))
    for block in blocks(counts=counts, size=size):
        choice = draw(st.sampled_from(["keep", "keep", "keep", "out", "documents", "queries"]))
        if choice == "documents" and block.document_count > 1:
            rest += halves_by_documents(block)
        elif choice == "queries" and block.query_count > 1:
            rest += halves_by_queries(block)
        elif choice != "out":
            rest.append(block)
    return rest, other


@given(grids())
def test_cut_anew_the_same_pairs_are_covered_once(grid: tuple[list[Block], BlockSize]) -> None:
    old, size = grid
    new = cut_anew(old, size)
    pairs = [pair for block in new for pair in pairs_of(block)]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {pair for block in old for pair in pairs_of(block)}
    assert all(block.query_count <= size.queries and block.document_count <= size.documents for block in new)
    assert new == sorted(new, key=lambda block: (block.query_start, block.document_start))


def test_a_whole_grid_becomes_the_grid_of_the_other_size() -> None:
    counts = np.full(20, 50)
    old = list(blocks(counts=counts, size=BlockSize(1, 8)))
    size = BlockSize(6, 50)
    assert cut_anew(old, size) == list(blocks(counts=counts, size=size))
    assert cut_anew(cut_anew(old, size), BlockSize(1, 8)) == old


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_every_pair_is_scored_once(make_job: MakeJob, worker: Worker, seed: int) -> None:
    job = make_job()
    stage, chance = job.last_stage, random.Random(seed)
    leased: list[Chunk] = []
    for _ in range(40):
        move = chance.choice(["lease", "lease", "complete", "release", "crash", "cut", "cut"])
        if move == "lease" and (chunk := chunk_lease(worker=worker)):
            leased.append(chunk)
        elif move == "cut":
            pending_cut_anew(stage=stage, size=BlockSize(chance.randint(1, 8), chance.choice([1, 3, 16, 64, 192])))
        elif leased:
            chunk = leased.pop(chance.randrange(len(leased)))
            if move == "complete":
                complete(chunk, worker)
            else:
                cause = ChunkCause.RELEASED if move == "release" else ChunkCause.WORKER_CRASHED
                assert chunk_give_back(chunk=chunk, actor="test", cause=cause)
        assert covered_once()
    for chunk in leased:
        complete(chunk, worker)
    run_all(worker, lambda pair: False)
    Stage.objects.filter(pk=stage.pk).update(top_k=DOCUMENTS)
    jobs_advance()
    job.refresh_from_db()
    assert job.statistics["not_scored"] == 0
    for result in stage.results.order_by("query_position"):
        positions = np.frombuffer(result.positions, "<i4")
        expected = result.query_position * DOCUMENTS + np.arange(DOCUMENTS, dtype=np.float32)[positions]
        known = np.frombuffer(result.raw_scores, "<f4")
        assert sorted(positions.tolist()) == list(range(DOCUMENTS))
        np.testing.assert_array_equal(known[~np.isnan(known)], expected[~np.isnan(known)])


def test_what_takes_too_long_is_cut_smaller(make_job: MakeJob, worker: Worker) -> None:
    """10 seconds for 48 pairs: in 5 there is time for 24."""
    job = make_job(CROSS)
    for _ in range(3):
        chunk = chunk_lease(worker=worker)
        assert chunk is not None
        complete(chunk, worker, seconds=10.0)
    held = chunk_lease(worker=worker)
    assert held is not None
    assert stages_fit_chunks() == 32 - 4
    waiting = Chunk.objects.filter(state=ChunkState.PENDING).order_by("index")
    assert {chunk.document_count for chunk in waiting} == {24}
    assert list(waiting.values_list("query_start", flat=True)) == sorted(waiting.values_list("query_start", flat=True))
    assert Chunk.objects.get(pk=held.pk).document_count == 48
    assert covered_once()
    assert stages_fit_chunks() == 0
    stage = Stage.objects.get(job=job)
    assert (stage.query_block, stage.document_block) == (1, 24)


def test_what_takes_too_little_is_put_together(make_job: MakeJob, worker: Worker) -> None:
    make_job(CROSS)
    for _ in range(4):
        chunk = chunk_lease(worker=worker)
        assert chunk is not None
        complete(chunk, worker, seconds=0.5)
    assert stages_fit_chunks() == 28  # 480 pairs in 5 seconds: all documents of two queries
    sizes = (
        Chunk.objects.filter(state=ChunkState.PENDING).order_by("index").values_list("query_count", "document_count")
    )
    assert list(sizes) == [(2, 192), (2, 192), (2, 192), (1, 192)]
    assert covered_once()


def test_encoders_keep_their_queries_together(make_job: MakeJob, worker: Worker, settings: Settings) -> None:
    job = make_job()
    model = job.last_stage.scorer
    sizes = {"query_count": QUERIES, "document_count": DOCUMENTS}
    assert block_size_measured(model=model, **sizes) == block_size(model, candidates=DOCUMENTS)
    Chunk.objects.update(
        state=ChunkState.DONE, report={"seconds": 16.0}, finished_at=Now()
    )  # a quarter of a second per document
    assert block_size_measured(model=model, **sizes) == BlockSize(queries=1024, documents=20)
    settings.CHUNK_SECONDS = 0
    assert block_size_measured(model=model, **sizes) == block_size(model, candidates=DOCUMENTS)
