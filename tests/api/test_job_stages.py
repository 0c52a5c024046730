"""Jobs of several stages through the API."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rest_framework.test import APIClient

from scoring.models import Chunk, Job, ScoringModel, Worker
from scoring.ranking import ScoreBlock
from scoring.selectors.candidates import positions_of
from scoring.services.chunks import chunk_complete, chunk_lease
from scoring.services.finalize import jobs_advance
from tests.api.conftest import DOCUMENTS, QUERIES, SubmitJob, Upload

RUN = b"q1 Q0 d5 1 3.5 mine\nq1 Q0 d7 2 3.0 mine\nq2 Q0 d9 1 1.0 mine\n"


@pytest.fixture
def sets(upload: Upload) -> dict[str, str]:
    return {
        "document_set": upload("document-sets", DOCUMENTS, use_existing="true")["id"],
        "query_set": upload("query-sets", QUERIES, use_existing="true")["id"],
    }


@pytest.fixture
def run_set(upload: Upload) -> str:
    return str(upload("runs", RUN, file_name="mine.run")["id"])


def finish(worker: Worker) -> None:
    """What retrieves finds the first documents; what scores prefers later ones."""
    while True:
        while chunk := chunk_lease(worker=worker):
            assert chunk_complete(chunk=chunk, worker=worker, block=block_of(chunk), report={"backend": "cpu"})
        if jobs_advance():
            return


def block_of(chunk: Chunk) -> ScoreBlock:
    shape = (chunk.query_count, chunk.document_count)
    if chunk.stage.model is None:
        positions = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
        raw = (1000 - positions).astype(np.float32)
        return ScoreBlock(raw, raw, np.zeros(shape, np.uint8), positions)
    queries = range(chunk.query_start, chunk.query_start + shape[0])
    candidates = range(chunk.document_start, chunk.document_start + shape[1])
    raw = positions_of(chunk.stage, queries=queries, candidates=candidates).astype(np.float32)
    return ScoreBlock(raw, raw, np.zeros(shape, np.uint8))


def test_a_cascade_from_request_to_results(api: APIClient, submit: SubmitJob, worker: Worker) -> None:
    stages: list[dict[str, Any]] = [
        {"method": "bm25", "top_k": 20},
        {"model": "late", "source": 0, "top_n": 10},
        {"model": "late", "source": 1, "top_k": 5},
    ]
    body = submit(stages=stages, model=None)
    told = [(s["index"], s["name"], s["method"], s["source"], s["top_k"], s["pair_count"]) for s in body["stages"]]
    assert told == [(0, "BM25", "bm25", None, 20, 40), (1, "late", "model", 0, 10, 40), (2, "late", "model", 1, 5, 20)]
    assert body["model"] == "late" and body["top_k"] == 5 and body["pair_count"] == 100
    finish(worker)
    url = f"/api/v1/jobs/{body['id']}"
    job = api.get(url).json()
    assert job["state"] == "completed" and [stage["state"] for stage in job["stages"]] == ["done"] * 3

    def ranks(**stage: int) -> list[tuple[int, int | None]]:
        parameters: dict[str, str | float] = {"query_id": "q1", "top_n": 3, **stage}
        answer = api.get(f"{url}/results", parameters).json()
        return [(row["index"], row["previous_rank"]) for row in answer["results"][0]["documents"]]

    assert ranks(stage=0) == [(0, None), (1, None), (2, None)]
    assert ranks(stage=1) == [(19, 20), (18, 19), (17, 18)]
    assert ranks() == ranks(stage=2) == [(19, 1), (18, 2), (17, 3)]
    missing = api.get(f"{url}/results", {"stage": 3})
    assert missing.status_code == 404 and "it has stages 0 to 2" in missing.json()["error"]["message"]
    exported = api.get(f"{url}/export", {"format": "trec", "stage": "1"})
    assert len(b"".join(exported.streaming_content).splitlines()) == 20  # type: ignore[attr-defined]
    assert "-stage-1.run" in exported["Content-Disposition"]


@pytest.mark.parametrize("as_run", [False, True])
def test_candidates_are_the_short_form_of_a_first_stage(submit: SubmitJob, run_set: str, as_run: bool) -> None:
    body = submit(candidates={"run_set": run_set} if as_run else {"bm25": 30}, top_k=7)
    first, second = body["stages"]
    assert (first["method"], first["run_set"]) == (("run", run_set) if as_run else ("bm25", None))
    assert (second["model"], second["source"], second["top_k"]) == ("late", 0, 7)
    assert first["pair_count"] == (4 if as_run else 60)


@pytest.mark.parametrize(
    ("stages", "param", "said"),
    [
        ([], "stages", "between 1 and 8"),
        ([{"model": "late"}] * 9, "stages", "between 1 and 8"),
        ([{"model": "late", "source": 0}], "stages[0].source", "must be an earlier stage"),
        ([{"model": "late"}, {"model": "late", "source": 1}], "stages[1].source", "give a number from 0 to 0"),
        ([{"method": "bm25"}], "stages[0].top_k", "1 to 10,000"),
        ([{"method": "bm25", "top_k": 10_001}], "stages[0].top_k", "is 10,001"),
        ([{"method": "bm25", "top_k": 5, "model": "late"}], "stages[0].model", "takes no model"),
        ([{"model": "late"}, {"method": "bm25", "top_k": 5, "source": 0}], "stages[1].source", "finds its documents"),
        ([{"method": "run"}], "stages[0].run_set", "needs a run_set"),
        ([{"model": "late"}, {"model": "nobody"}], "stages[1].model", "is not registered"),
        ([{"model": "late", "top_k": 5}, {"model": "late", "source": 0, "top_k": 6}], "stages[1].top_k", "at most 5"),
        ([{"model": "late", "topk": 5}], "stages[0].topk", "Unknown field"),
        ([{"run_set": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a11"}], "stages[0].run_set", "There is no run"),
    ],
)
def test_stages_that_cannot_be_are_refused_in_words(
    api: APIClient, model: ScoringModel, sets: dict[str, str], stages: list[dict[str, Any]], param: str, said: str
) -> None:
    response = api.post("/api/v1/jobs", {**sets, "stages": stages})
    error = response.json()["error"]
    assert response.status_code in (404, 422) and error["param"] == param, error
    assert said in error["message"]
    assert not Job.objects.exists()


def test_both_forms_at_once_are_refused(api: APIClient, model: ScoringModel, sets: dict[str, str]) -> None:
    for short in ({"model": "late"}, {"top_k": 3}, {"candidates": {"bm25": 3}}):
        response = api.post("/api/v1/jobs", {**sets, "stages": [{"model": "late"}], **short})
        assert response.status_code == 422 and response.json()["error"]["param"] in short
    either = api.post("/api/v1/jobs", {**sets, "candidates": {}})
    assert either.status_code == 422 and "either bm25 or run_set" in either.json()["error"]["message"]


def test_a_run_of_other_ids_is_refused_with_examples(
    api: APIClient, model: ScoringModel, sets: dict[str, str], upload: Upload
) -> None:
    run = upload("runs", b"topic-1 Q0 doc-1 1 1 x\n", file_name="other.run")
    response = api.post("/api/v1/jobs", {**sets, "candidates": {"run_set": run["id"]}})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (422, "run_does_not_match")
    assert all(f"'{name}'" in error["message"] for name in ("topic-1", "doc-1", "q1", "d0"))


def test_a_run_of_another_team_is_not_found(
    stranger: APIClient, model: ScoringModel, upload: Upload, run_set: str
) -> None:
    sets = {
        "document_set": upload("document-sets", DOCUMENTS, client=stranger)["id"],
        "query_set": upload("query-sets", QUERIES, client=stranger)["id"],
    }
    response = stranger.post("/api/v1/jobs", {**sets, "candidates": {"run_set": run_set}})
    assert response.status_code == 404 and response.json()["error"]["param"] == "candidates.run_set"


def test_a_run_that_a_job_uses_stays(api: APIClient, submit: SubmitJob, run_set: str) -> None:
    submit(candidates={"run_set": run_set})
    refused = api.delete(f"/api/v1/runs/{run_set}")
    assert refused.status_code == 409 and refused.json()["error"]["code"] == "set_in_use"


def test_the_same_key_tells_stages_apart(api: APIClient, model: ScoringModel, sets: dict[str, str]) -> None:
    def post(**fields: Any) -> int:
        return int(api.post("/api/v1/jobs", {**sets, **fields}, headers={"Idempotency-Key": "k"}).status_code)

    assert post(candidates={"bm25": 5}) == 201
    assert post(stages=[{"method": "bm25", "top_k": 5}, {"source": 0}]) == 200
    assert post(candidates={"bm25": 6}) == 409
