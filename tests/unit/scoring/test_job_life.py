"""A job from submission to ranking, driven by the same services that workers and the reconciler call."""

from __future__ import annotations

from typing import Any

import ir_measures
import numpy as np
import pytest
from ir_measures import AP, RR, R, nDCG

from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.export.formats import csv_lines, jsonl_lines
from scoring.export.results import stage_table, trec_lines
from scoring.models import Chunk, Job, QueryResult, Stage, Transition, Worker
from scoring.ranking import ScoreBlock
from scoring.selectors.evaluation import measures_parse, stage_evaluate
from scoring.selectors.jobs import job_progress, ranked_documents
from scoring.services.chunks import chunk_complete, chunk_give_back, chunk_lease
from scoring.services.finalize import jobs_advance, stage_finish
from scoring.services.job_control import job_cancel
from scoring.services.jobs import job_submit
from scoring.services.stage_plan import StagePlan
from scoring.services.transitions import MoveRefused, transition
from scoring.states import ITEM_STATUSES, ChunkCause, ItemStatus, JobState
from tests.unit.scoring.conftest import Upload

EMPTY = ITEM_STATUSES.index(ItemStatus.EMPTY)


def submit_again(job: Job, principal: Principal, **options: Any) -> tuple[Job, bool]:
    given: dict[str, Any] = {
        "stages": [StagePlan(model=job.last_stage.model, top_k=options.pop("top_k", None))],
        "document_set": job.document_set,
        "query_set": job.query_set,
        **options,
    }
    return job_submit(principal=principal, name="x", **given)


def score(chunk: Chunk) -> ScoreBlock:
    """Scores with many ties: query 1 prefers multiples of 7, query 2 later documents; the empty document has none."""
    positions = np.arange(chunk.document_start, chunk.document_start + chunk.document_count)
    raw = np.stack([(positions % 7 == 0) * 2.5, positions // 10]).astype(np.float32)
    statuses = np.zeros(raw.shape, np.uint8)
    empty = positions == 69
    raw[:, empty], statuses[:, empty] = np.nan, EMPTY
    return ScoreBlock(raw, raw, statuses)


def run_all(worker: Worker) -> None:
    while chunk := chunk_lease(worker=worker):
        report = {"backend": "cpu", "dtype": "float32"}
        assert chunk_complete(chunk=chunk, worker=worker, block=score(chunk), report=report)


def test_a_job_ends_ranked(job: Job, worker: Worker) -> None:
    assert job.pair_count == 140 and job.chunks.count() == 2
    assert job_progress(job).waiting.sentence == "no worker is running"
    run_all(worker)
    job.refresh_from_db()
    assert job.state == JobState.RUNNING and job_progress(job).pairs_done == 140
    assert jobs_advance() == 1
    job.refresh_from_db()
    assert job.state == JobState.COMPLETED
    assert job.statistics["pairs"] == {"ok": 138, "truncated": 0, "empty": 2, "failed": 0}
    first, second = QueryResult.objects.filter(stage__job=job)
    ranks = ranked_documents(first, limit=None)
    assert [row.document.external_id for row in ranks[:11]] == [f"d{i}" for i in range(0, 69, 7)] + ["d1"]
    assert (ranks[0].score, ranks[10].score, first.kept) == (2.5, 0.0, 20)
    assert [row.document.position for row in ranked_documents(second, limit=3)] == [60, 61, 62]
    moves = Transition.objects.filter(entity="job", entity_id=str(job.pk)).values_list("to_state", flat=True)
    assert list(moves) == ["queued", "running", "finalizing", "completed"]
    assert jobs_advance() == 0


def test_finalising_twice_changes_nothing(job: Job, worker: Worker) -> None:
    run_all(worker)
    stale = Stage.objects.get(job=job)
    assert stage_finish(Stage.objects.get(job=job))
    before = list(QueryResult.objects.filter(stage__job=job).values_list("positions", flat=True))
    assert not stage_finish(stale)
    assert list(QueryResult.objects.filter(stage__job=job).values_list("positions", flat=True)) == before


def test_unscored_documents_rank_last_and_stay(job: Job, worker: Worker) -> None:
    Stage.objects.filter(job=job).update(top_k=None)
    run_all(worker)
    jobs_advance()
    last = ranked_documents(QueryResult.objects.filter(stage__job=job)[0], limit=None)[-1]
    assert (last.rank, last.document.external_id, last.score, last.status) == (70, "d69", None, "empty")


def test_a_stale_lease_cannot_complete(job: Job, worker: Worker) -> None:
    zombie = chunk_lease(worker=worker)
    assert zombie is not None
    assert chunk_give_back(chunk=Chunk.objects.get(pk=zombie.pk), actor="reconciler", cause=ChunkCause.LEASE_EXPIRED)
    again = chunk_lease(worker=worker)
    assert again is not None and again.pk == zombie.pk and again.lease_token != zombie.lease_token
    assert not chunk_complete(chunk=zombie, worker=worker, block=score(zombie), report={})
    assert not chunk_give_back(chunk=zombie, actor="worker", cause=ChunkCause.ITEM_ERROR)
    assert chunk_complete(chunk=again, worker=worker, block=score(again), report={})


def test_a_failed_chunk_leaves_failed_pairs(job: Job, worker: Worker) -> None:
    chunk = chunk_lease(worker=worker)
    assert chunk is not None and chunk.index == 0
    chunk_give_back(chunk=chunk, actor="worker", cause=ChunkCause.ITEM_ERROR, error="no such text", final=True)
    run_all(worker)
    jobs_advance()
    job.refresh_from_db()
    assert job.state == JobState.COMPLETED_WITH_ERRORS
    assert (job.statistics["not_scored"], job.statistics["failed_chunks"]) == (0, 1)
    assert job.statistics["pairs"] == {"ok": 10, "truncated": 0, "empty": 2, "failed": 128}
    ranks = ranked_documents(QueryResult.objects.filter(stage__job=job)[0], limit=None)
    assert len(ranks) == 20
    assert [row.document.position for row in ranks[:6]] == [64, 65, 66, 67, 68, 0]
    assert (ranks[5].status, ranks[5].score, ranks[5].failure) == ("failed", None, "item_error")
    assert [row.failure for row in ranks[:5]] == [""] * 5


def test_cancel_keeps_what_is_done(job: Job, worker: Worker, principal: Principal) -> None:
    first = chunk_lease(worker=worker)
    assert first is not None
    chunk_complete(chunk=first, worker=worker, block=score(first), report={})
    leased = chunk_lease(worker=worker)
    assert leased is not None
    assert job_cancel(principal=principal, job=Job.objects.get(pk=job.pk)).state == JobState.CANCELLING
    assert jobs_advance() == 0  # a chunk is still in hand
    chunk_give_back(chunk=leased, actor="worker", cause=ChunkCause.RELEASED)
    assert jobs_advance() == 1
    job.refresh_from_db()
    assert job.state == JobState.CANCELLED and job.statistics["not_scored"] == 12
    assert job_cancel(principal=principal, job=job).state == JobState.CANCELLED
    assert QueryResult.objects.filter(stage__job=job).count() == 2


def test_an_ended_job_cannot_be_cancelled(job: Job, worker: Worker, principal: Principal) -> None:
    run_all(worker)
    jobs_advance()
    with pytest.raises(AssayError, match="nothing left to cancel"):
        job_cancel(principal=principal, job=Job.objects.get(pk=job.pk))


def test_the_plan_of_states_is_enforced(job: Job) -> None:
    with pytest.raises(MoveRefused):
        transition(job, JobState.COMPLETED, actor="test")


def test_evaluation_equals_ir_measures_on_the_exported_run(job: Job, worker: Worker, upload: Upload) -> None:
    run_all(worker)
    jobs_advance()
    job.refresh_from_db()
    qrels = "q1 0 d7 2\nq1 0 d1 1\nq1 0 d68 1\nq2 0 d61 1\nq2 0 d0 3\nq9 0 d1 1\nq2 0 d3 -1\n"
    evaluation = stage_evaluate(
        job.last_stage, upload("judgements", qrels.encode()), measures=["nDCG@10", "AP", "RR@10", "R@20"]
    )
    run = list(ir_measures.read_trec_run("".join(trec_lines(job.last_stage))))
    judged = [q for q in ir_measures.read_trec_qrels(qrels) if q.query_id in ("q1", "q2") and q.relevance >= 0]
    by_hand = ir_measures.calc_aggregate([nDCG @ 10, AP, RR @ 10, R @ 20], judged, run)
    assert evaluation.means == {str(measure): value for measure, value in by_hand.items()}
    assert (evaluation.evaluated, evaluation.queries, evaluation.unjudged_queries) == (2, 2, [])


def test_exports(job: Job, worker: Worker) -> None:
    run_all(worker)
    jobs_advance()
    lines = list(csv_lines(stage_table(job.last_stage)))
    assert len(lines) == 41 and lines[0].startswith("\ufeff")
    assert lines[1] == '"q1","first",1,"d0","\'=SUM(0)",2.5,2.5,"ok","text 0","cpu"\r\n'
    assert '"title": "=SUM(0)"' in next(iter(jsonl_lines(stage_table(job.last_stage))))
    scores = [float(line.split()[4]) for line in trec_lines(job.last_stage)][:20]
    assert scores == sorted(set(scores), reverse=True)


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"top_k": 0}, "bad_top_k"), ({"priority": 101}, "bad_priority")],
)
def test_refused_jobs(job: Job, principal: Principal, changes: dict[str, int], code: str) -> None:
    with pytest.raises(AssayError) as refused:
        submit_again(job, principal, **changes)
    assert refused.value.code == code


def test_the_same_key_gives_the_same_job(job: Job, principal: Principal) -> None:
    first, created = submit_again(job, principal, idempotency_key="k")
    second, created_again = submit_again(job, principal, idempotency_key="k")
    assert created and not created_again and first == second
    with pytest.raises(AssayError, match="with other contents"):
        submit_again(job, principal, idempotency_key="k", top_k=3)


@pytest.mark.parametrize(
    "name",
    ["nDCG@0", "P@0", "R@-1", "ERR@10", "alpha_nDCG@10", "RBP(p=1)", "P(rel=0)@3", "nDCG(dcg='exp-log2')@10", "x@", ""],
)
def test_measures_that_are_not_computed_here(name: str) -> None:
    with pytest.raises(AssayError) as refused:
        measures_parse([name])
    assert refused.value.code == "unknown_measure" and "nDCG" in refused.value.message
