"""Jobs of several stages on the real engine: what finds candidates, what scores them, and what is left out."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from scoring.models import Chunk, Document, Job, Query, QueryResult, ScoringModel, Stage, StageMethod
from scoring.ranking import POSITION
from scoring.selectors.jobs import Ranking
from scoring.services.finalize import jobs_advance, stage_finish
from scoring.services.imports import set_import
from scoring.services.jobs import job_submit
from scoring.services.stage_plan import StagePlan
from scoring.states import JobState, StageState
from tests.engine.tiny import build
from tests.engine.tiny_pairs import build_cross_encoder
from tests.integration.rig import Rig, wait_for
from workers.engine.types import ScoringRequest

WORDS = ("river", "bees", "honey", "stone", "lamp", "garden", "winter", "bread")
DOCUMENTS = [f"{WORDS[n % 8]} {WORDS[n * 3 % 7]} {WORDS[n * 5 % 8]} number{n % 11}" for n in range(60)]
QUERIES = ("river honey", "garden bread in winter", "nothing of that", "lamp")

TEMPLATE = "{{ query }}\n{{ item }}\nAnswer:"

Submit = Callable[..., Job]


@pytest.fixture
def submit(rig: Rig) -> Submit:
    documents = "id,text\n" + "".join(f"d{n},{text}\n" for n, text in enumerate(DOCUMENTS))
    queries = "id,text\n" + "".join(f"q{n},{text}\n" for n, text in enumerate(QUERIES))
    sets = {
        "document_set": imported(rig, "documents", documents),
        "query_set": imported(rig, "queries", queries),
    }

    rig.batch.start()

    def run(*stages: StagePlan) -> Job:
        return job_submit(principal=rig.principal, name="", stages=stages, **sets)[0]

    return run


def imported(rig: Rig, kind: str, content: str, file_name: str = "file.csv") -> Any:
    file = io.BytesIO(content.encode())
    return set_import(principal=rig.principal, kind_name=kind, name=kind, file=file, file_name=file_name)[0]


def finished(rig: Rig, job: Job) -> Job:
    """The job after the worker's loops and the reconciler's steps."""
    rig.batch.wake()

    def ended() -> bool:
        jobs_advance()
        job.refresh_from_db()
        return JobState(job.state).is_final

    wait_for(ended, seconds=120, what="the end of the job")
    return job


def rankings(stage: Stage) -> list[tuple[list[int], np.ndarray]]:
    """Positions and raw scores of each query, best first."""
    results = QueryResult.objects.filter(stage=stage).order_by("query_position")
    found = [Ranking.of(result) for result in results]
    return [(ranking.positions.tolist(), ranking.block.raw) for ranking in found]


def by_hand(rig: Rig, name: str, query: str, positions: list[int], top_k: int) -> list[tuple[int, float]]:
    """The engine asked for one list alone: the best ``top_k``, ties by position."""
    texts = tuple(DOCUMENTS[position] for position in positions)
    raw = rig.engine.submit(ScoringRequest(name, (query,), texts)).result().raw_scores.tolist()
    return sorted(zip(positions, raw, strict=True), key=lambda pair: (-round(pair[1], 4), pair[0]))[:top_k]


def register_cross_encoder(rig: Rig) -> ScoringModel:
    source = str(build_cross_encoder("bert", rig.root / "cross"))
    return rig.register("cross", kind="cross-encoder", source=source)


def register_judge(rig: Rig) -> ScoringModel:
    source = str(build("llama", rig.root / "judge"))
    return rig.register("judge", kind="generative", source=source, labels=["yes", "no"], template=TEMPLATE)


def test_a_cascade_equals_its_stages_done_by_hand(rig: Rig, submit: Submit) -> None:
    late, cross, judge = rig.register("late"), register_cross_encoder(rig), register_judge(rig)
    job = submit(
        StagePlan(method=StageMethod.BM25, top_k=20),
        StagePlan(model=late, source=0, top_k=10),
        StagePlan(model=cross, source=1, top_k=6),
        StagePlan(model=judge, source=2, top_k=3),
    )
    assert finished(rig, job).state == JobState.COMPLETED
    stages = list(job.stages.all())
    lists = [rankings(stage) for stage in stages]
    assert [len(own) for own in lists] == [4, 4, 4, 4]
    assert lists[0][2][0] == lists[1][2][0] == lists[3][2][0] == []  # no word of that query is in any document
    for query, text in enumerate(QUERIES):
        positions = lists[0][query][0]
        for index, (model, kept) in enumerate(((late, 10), (cross, 6), (judge, 3)), start=1):
            expected = by_hand(rig, model.name, text, positions, kept) if positions else []
            own, raw = lists[index][query]
            np.testing.assert_allclose(raw, [score for _, score in expected], atol=1e-4)
            assert set(own) <= set(positions) and len(own) == min(kept, len(positions))
            positions = own
    found = [len(positions) for positions, _ in lists[0]]
    pairs = [sum(found), *(sum(min(kept, own) for own in found) for kept in (20, 10, 6))]
    assert [stage.pair_count for stage in stages] == pairs and job.pair_count == sum(pairs)
    assert job.statistics["not_scored"] == 0 and job.statistics["pairs"]["ok"] == sum(pairs)
    assert sum(Chunk.objects.filter(job=job).values_list("pair_count", flat=True)) == sum(pairs)


def test_several_models_score_the_same_candidates(rig: Rig, submit: Submit) -> None:
    late, cross = rig.register("late"), register_cross_encoder(rig)
    job = submit(
        StagePlan(method=StageMethod.BM25, top_k=8), StagePlan(model=late, source=0), StagePlan(model=cross, source=0)
    )
    assert finished(rig, job).state == JobState.COMPLETED
    bm25, one, other = (rankings(stage) for stage in job.stages.all())
    for query in range(len(QUERIES)):
        assert set(one[query][0]) == set(other[query][0]) == set(bm25[query][0])
    assert [positions for positions, _ in one] != [positions for positions, _ in other]


def test_a_run_is_a_stage_of_its_own(rig: Rig, submit: Submit) -> None:
    lines = ["q0 Q0 d5 1 9.5 mine", "q0 Q0 d3 2 9.5 mine", "q0 Q0 d59 3 1.25 mine", "q0 Q0 gone 4 1.0 mine"]
    lines += ["q3 Q0 d1 1 7 mine", "elsewhere Q0 d1 1 3 mine"]
    run = imported(rig, "runs", "\n".join(lines) + "\n", file_name="mine.run")
    job = submit(StagePlan(method=StageMethod.RUN, run_set=run), StagePlan(model=rig.register("late"), source=0))
    assert finished(rig, job).state == JobState.COMPLETED
    taken, scored = job.stages.all()
    assert [positions for positions, _ in rankings(taken)] == [[5, 3, 59], [], [], [1]]
    assert rankings(taken)[0][1].tolist() == [9.5, 9.5, 1.25]
    assert {position for position in rankings(scored)[0][0]} == {3, 5, 59}
    assert taken.statistics["run"] == {
        "entries": 6,
        "matched": 4,
        "unknown_queries": 1,
        "unknown_documents": 1,
        "first_unknown_queries": ["elsewhere"],
        "first_unknown_documents": ["gone"],
    }


def test_nothing_found_ends_the_job_in_words(rig: Rig, submit: Submit) -> None:
    Query.objects.update(text="zzz")
    late = rig.register("late")
    job = submit(
        StagePlan(method=StageMethod.BM25, top_k=5),
        StagePlan(model=late, source=0),
        StagePlan(model=late, source=1),
    )
    assert finished(rig, job).state == JobState.FAILED
    assert job.failure == "late had nothing to score: BM25 ranked no document for any query."
    assert [stage.state for stage in job.stages.all()] == [StageState.DONE, StageState.SKIPPED, StageState.SKIPPED]


def test_a_job_whose_documents_are_encoded_already_runs_maxsim_only(rig: Rig, submit: Submit) -> None:
    late = rig.register("late")
    finished(rig, submit(StagePlan(model=late)))
    again = finished(rig, submit(StagePlan(method=StageMethod.BM25, top_k=9), StagePlan(model=late, source=0)))
    report = Chunk.objects.get(stage=again.last_stage).report
    positions = {position for own, _ in rankings(again.last_stage) for position in own}
    assert report["cached_documents"] == len({DOCUMENTS[position] for position in positions})
    assert again.last_stage.statistics["cached_documents"] == report["cached_documents"]


def test_a_reconciler_that_died_halfway_is_followed_by_one_that_finishes(rig: Rig, submit: Submit) -> None:
    job = submit(StagePlan(method=StageMethod.BM25, top_k=8), StagePlan(model=rig.register("late"), source=0))
    rig.batch.wake()
    wait_for(lambda: not Chunk.objects.exclude(state="done").exists())
    first = job.stages.get(index=0)
    assert stage_finish(first)  # ranked, but what waits for it was not opened
    job.refresh_from_db()
    assert job.state == JobState.RUNNING
    before = rankings(first)
    assert finished(rig, job).state == JobState.COMPLETED
    last = job.last_stage
    ranked = [positions for positions, _ in rankings(last)]
    # Rankings half written, the stage not yet done: they are written again, and are the same.
    Stage.objects.filter(pk=last.pk).update(state=StageState.RUNNING)
    Job.objects.filter(pk=job.pk).update(state=JobState.FINALIZING)
    QueryResult.objects.filter(stage=last, query_position__lt=2).delete()
    QueryResult.objects.filter(stage=last).update(positions=np.zeros(1, POSITION).tobytes())
    assert finished(rig, job).state == JobState.COMPLETED
    assert [positions for positions, _ in rankings(last)] == ranked
    assert [positions for positions, _ in rankings(first)] == [positions for positions, _ in before]


def test_documents_that_are_gone_fail_only_their_chunk(rig: Rig, submit: Submit) -> None:
    cross = register_cross_encoder(rig)
    job = submit(StagePlan(method=StageMethod.BM25, top_k=5), StagePlan(model=cross, source=0))
    rig.batch.wake()
    wait_for(lambda: not Chunk.objects.exclude(state="done").exists())
    assert stage_finish(job.stages.get(index=0))
    [best, *_] = rankings(job.stages.get(index=0))[3][0]
    Document.objects.filter(position=best).delete()
    assert finished(rig, job).state == JobState.COMPLETED_WITH_ERRORS
    assert "needs 5 documents, but the set holds 4" in Chunk.objects.filter(stage__index=1, state="failed")[0].error
