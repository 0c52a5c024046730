"""The life of a job as a client sees it; the scores come from the services that workers call."""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import ir_measures
import pytest
from django.utils import timezone
from ir_measures import RR, nDCG
from pyarrow import parquet
from pytest_django import Settings
from rest_framework.test import APIClient

from audit.models import AuditEvent
from scoring.models import Chunk, Job, ScoringModel, Worker
from scoring.services.chunks import chunk_give_back, chunk_lease
from scoring.services.finalize import jobs_advance
from scoring.states import ChunkCause, ChunkState, JobState, ModelState
from tests.api.conftest import JUDGEMENTS, SubmitJob, Upload, run_chunks
from tests.api.schema import check


def get(api: APIClient, job: Any, part: str = "", **query: Any) -> Any:
    return api.get(f"/api/v1/jobs/{job['id'] if isinstance(job, dict) else job.pk}{part}", query)


def refused(response: Any, status: int, code: str, param: str | None = None) -> None:
    assert response.status_code == status, response.content
    error = response.json()["error"]
    assert (error["code"], error["param"]) == (code, param)


def test_a_job_is_submitted_and_read(api: APIClient, submit: SubmitJob) -> None:
    job = submit(top_k=20, priority=5, name="first")
    assert (job["state"], job["model"], job["model_revision"], job["top_k"]) == ("queued", "late", "r1", 20)
    assert (job["query_count"], job["document_count"], job["pair_count"]) == (2, 70, 140)
    assert job["progress"]["pairs_done"] == 0 and job["progress"]["reason"] == "no worker is running"
    assert check(get(api, job)) == job
    assert [row["id"] for row in check(api.get("/api/v1/jobs"))["results"]] == [job["id"]]


def test_progress_is_counted_from_rows(api: APIClient, submit: SubmitJob, worker: Worker) -> None:
    job = submit()
    run_chunks(worker)
    progress = check(get(api, job))["progress"]
    assert (progress["pairs_done"], progress["percent"], progress["chunks"]["done"]) == (140, 100.0, 2)
    assert jobs_advance() == 1
    body = check(get(api, job))
    assert body["state"] == "completed" and body["statistics"]["pairs"]["empty"] == 2
    assert body["finished_at"] and body["progress"]["eta_seconds"] is None


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"top_k": 0}, 422, "min_value", "top_k"),
        ({"top_k": -1}, 422, "min_value", "top_k"),
        ({"top_k": "3"}, 422, "invalid", "top_k"),
        ({"top_k": 2.5}, 422, "invalid", "top_k"),
        ({"top_k": True}, 422, "invalid", "top_k"),
        ({"top_k": 10**20}, 422, "max_value", "top_k"),
        ({"top_n": 0}, 422, "min_value", "top_k"),
        ({"top_n": 1, "top_k": 1}, 422, "given_twice", "top_k"),
        ({"topk": 1}, 422, "unknown_field", "topk"),
        ({"priority": 101}, 422, "max_value", "priority"),
        ({"model": "nosuch"}, 404, "model_not_found", "model"),
        ({"name": "x" * 201}, 422, "max_length", "name"),
        ({"document_set": "nosuch"}, 422, "invalid", "document_set"),
        ({"document_set": str(uuid.uuid4())}, 404, "not_found", "document_set"),
        ({"query_set": None}, 422, "null", "query_set"),
    ],
)
def test_a_job_that_cannot_be_is_refused(
    api: APIClient, submit: SubmitJob, fields: dict[str, Any], status: int, code: str, param: str
) -> None:
    good = submit()
    body = {"document_set": good["document_set"]["id"], "query_set": good["query_set"]["id"], **fields}
    refused(api.post("/api/v1/jobs", body), status, code, param)
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    ("fields", "top_k"),
    [({"top_n": 3}, 3), ({"top_k": None}, None), ({"top_k": 10**6}, 10**6), ({"model": None}, None)],
)
def test_a_job_takes_aliases_and_defaults(submit: SubmitJob, fields: dict[str, Any], top_k: int | None) -> None:
    job = submit(**fields)
    assert (job["top_k"], job["model"]) == (top_k, "late")


def test_queries_without_documents_are_refused(api: APIClient, model: ScoringModel, upload: Upload) -> None:
    """A job names both sets; documents that are all empty leave nothing to rank."""
    queries = upload("query-sets", b"id,text\nq1,first\n")["id"]
    refused(api.post("/api/v1/jobs", {"query_set": queries}), 422, "required", "document_set")
    empty = upload("document-sets", b"id,text\nd1,\nd2,  \n")["id"]
    refused(api.post("/api/v1/jobs", {"query_set": queries, "document_set": empty}), 422, "empty_set", "document_set")


def test_a_model_that_is_not_served_takes_no_job(api: APIClient, submit: SubmitJob, model: ScoringModel) -> None:
    job = submit()
    ScoringModel.objects.update(state=ModelState.DISABLED)
    body = {"model": "late", "document_set": job["document_set"]["id"], "query_set": job["query_set"]["id"]}
    refused(api.post("/api/v1/jobs", body), 409, "model_not_served", "model")
    waiting = check(api.post("/api/v1/models/late/disable"), method="post")["open_jobs"]
    assert waiting == {"count": 1, "ids": [job["id"]]}


def test_an_idempotency_key_makes_a_repeat_safe(api: APIClient, submit: SubmitJob) -> None:
    job = submit()
    body = {"model": "late", "document_set": job["document_set"]["id"], "query_set": job["query_set"]["id"]}
    first = api.post("/api/v1/jobs", body, headers={"Idempotency-Key": "k1"})
    again = api.post("/api/v1/jobs", body, headers={"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert check(first, method="post")["id"] == check(again, method="post")["id"] != job["id"]
    other = api.post("/api/v1/jobs", {**body, "top_k": 1}, headers={"Idempotency-Key": "k1"})
    refused(other, 409, "idempotency_conflict", "Idempotency-Key")
    long = api.post("/api/v1/jobs", body, headers={"Idempotency-Key": "k" * 201})
    refused(long, 422, "bad_idempotency_key", "Idempotency-Key")


def test_a_job_can_be_cancelled_and_not_twice_ended(api: APIClient, submit: SubmitJob, ended: Job) -> None:
    job = submit()
    for _ in range(2):
        body = check(api.post(f"/api/v1/jobs/{job['id']}/cancel"), method="post")
        assert body["state"] == JobState.CANCELLING and body["cancel_requested_at"]
    assert not Chunk.objects.filter(job=job["id"], state=ChunkState.PENDING).exists()
    jobs_advance()
    assert check(api.post(f"/api/v1/jobs/{job['id']}/cancel"), method="post")["state"] == JobState.CANCELLED
    refused(api.post(f"/api/v1/jobs/{ended.pk}/cancel"), 409, "job_ended")


def test_results_are_paged_by_query(api: APIClient, ended: Job) -> None:
    page = check(get(api, ended, "/results", page_size=1, top_n=3))
    first = page["results"][0]
    assert (first["query_id"], first["query"], first["kept"], first["scored"]) == ("q1", "first", 70, 69)
    assert [row["document_id"] for row in first["documents"]] == ["d0", "d7", "d14"]
    assert first["documents"][0] == {
        "rank": 1, "previous_rank": None, "index": 0, "document_id": "d0", "score": 2.5, "raw_score": 2.5,
        "status": "ok",
    }  # fmt: skip
    second = check(api.get(page["next"]))
    assert [row["query_id"] for row in second["results"]] == ["q2"] and second["next"] is None
    assert len(second["results"][0]["documents"]) == 3


def test_results_of_one_query_with_texts_from_a_rank_on(api: APIClient, ended: Job) -> None:
    (row,) = check(get(api, ended, "/results", query_id="q1", top_k=5, start=68, texts="true"))["results"]
    assert [(d["rank"], d["document_id"], d["score"], d["status"]) for d in row["documents"]] == [
        (69, "d68", 0.0, "ok"),
        (70, "d69", None, "empty"),
    ]
    assert (row["documents"][0]["text"], row["documents"][0]["title"]) == ("text 68", "=SUM(68)")


@pytest.mark.parametrize(
    "query", ["top_n=0", "top_n=1001", "top_n=x", "start=-1", "texts=maybe", "query=q1", "page_size=0"]
)
def test_results_refuse_what_they_do_not_know(api: APIClient, ended: Job, query: str) -> None:
    response = api.get(f"/api/v1/jobs/{ended.pk}/results?{query}")
    assert response.status_code == 422 and response.json()["error"]["param"] == query.partition("=")[0]


def test_a_job_without_results_has_an_empty_page(api: APIClient, submit: SubmitJob) -> None:
    assert check(get(api, submit(), "/results"))["results"] == []


def body_of(response: Any) -> str:
    assert response.status_code == 200 and response.streaming
    assert "attachment" in response["Content-Disposition"]
    return b"".join(response.streaming_content).decode()


def test_the_csv_guards_against_formulas(api: APIClient, ended: Job) -> None:
    response = get(api, ended, "/export", format="csv")
    rows = list(csv.DictReader(io.StringIO(body_of(response).removeprefix("\ufeff"))))
    assert response["Content-Type"] == "text/csv; charset=utf-8" and len(rows) == 140
    assert rows[0] == {
        "query_id": "q1", "query": "first", "rank": "1", "document_id": "d0", "title": "'=SUM(0)", "score": "2.5",
        "raw_score": "2.5", "status": "ok", "text": "text 0", "backend": "cpu",
    }  # fmt: skip
    assert rows[69]["document_id"] == "d69" and rows[69]["score"] == "" and rows[69]["status"] == "empty"
    assert AuditEvent.objects.filter(verb="job.exported", detail__format="csv").count() == 1


def test_json_lines_are_exported_as_they_are(api: APIClient, ended: Job) -> None:
    rows = [json.loads(line) for line in body_of(get(api, ended, "/export", format="jsonl")).splitlines()]
    assert len(rows) == 140 and rows[0]["title"] == "=SUM(0)" and rows[69]["score"] is None


def test_parquet_holds_the_stored_scores_in_typed_columns(api: APIClient, ended: Job) -> None:
    response = get(api, ended, "/export", format="parquet")
    assert response["Content-Disposition"].endswith('.parquet"')
    table = parquet.read_table(io.BytesIO(b"".join(response.streaming_content)))
    assert [str(table.schema.field(name).type) for name in ("rank", "raw_score", "text")] == [
        "int32",
        "float",
        "string",
    ]
    rows = [json.loads(line) for line in body_of(get(api, ended, "/export", format="jsonl")).splitlines()]
    assert table.to_pylist() == rows


def test_the_evaluation_is_what_ir_measures_says_of_the_exported_run(
    api: APIClient, ended: Job, upload: Upload
) -> None:
    judgements = upload("judgements", JUDGEMENTS)["id"]
    run = list(ir_measures.read_trec_run(io.StringIO(body_of(get(api, ended, "/export", format="trec")))))
    qrels = list(ir_measures.read_trec_qrels(JUDGEMENTS.decode()))
    by_hand = ir_measures.calc_aggregate([nDCG @ 10, RR @ 10], qrels, run)
    body = check(get(api, ended, "/evaluation", judgement_set=judgements, measures="nDCG@10, RR@10"))
    assert body["measures"] == ["nDCG@10", "RR@10"] and body["evaluated"] == body["queries"] == 2 and body["complete"]
    assert body["means"] == {str(measure): pytest.approx(value, abs=1e-12) for measure, value in by_hand.items()}
    assert 0 < body["means"]["nDCG@10"] < 1
    assert set(check(get(api, ended, "/evaluation", judgement_set=judgements))["means"]) >= {"nDCG@10", "R@100"}


def test_an_evaluation_that_cannot_be_is_refused(api: APIClient, ended: Job, submit: SubmitJob, upload: Upload) -> None:
    judgements, foreign = upload("judgements", JUDGEMENTS)["id"], upload("judgements", b"other 0 d1 1\n")["id"]
    refused(get(api, ended, "/evaluation"), 422, "required", "judgement_set")
    refused(get(api, ended, "/evaluation", judgement_set="x"), 422, "invalid", "judgement_set")
    for measures in ("nDCGG@10", "__import__('os')", ","):
        response = get(api, ended, "/evaluation", judgement_set=judgements, measures=measures)
        refused(response, 422, "unknown_measure", "measures")
    refused(get(api, ended, "/evaluation", judgement_set=foreign), 422, "judgements_do_not_match", "judgement_set")
    refused(get(api, submit(), "/evaluation", judgement_set=judgements), 409, "job_not_ended")


def test_an_export_that_cannot_be_is_refused(api: APIClient, ended: Job, submit: SubmitJob) -> None:
    refused(get(api, ended, "/export", format="xlsx"), 422, "invalid_choice", "format")
    refused(get(api, ended, "/export"), 422, "required", "format")
    refused(get(api, submit(), "/export", format="csv"), 409, "job_not_ended")


def test_the_log_tells_every_move(api: APIClient, ended: Job) -> None:
    rows = check(get(api, ended, "/log"))["results"]
    assert [row["to_state"] for row in rows] == ["queued", "running", "finalizing", "completed"]
    assert rows[0]["actor"] == "token tests" and rows[1]["from_state"] == "queued"


def test_jobs_are_filtered(api: APIClient, submit: SubmitJob, ended: Job) -> None:
    waiting = submit(name="waiting")
    for query, expected in (
        ({"state": ["queued", "running"]}, [waiting["id"]]),
        ({"name": "WAIT"}, [waiting["id"]]),
        ({"model": "late", "state": "completed"}, [str(ended.pk)]),
        ({"model": "other"}, []),
        ({"created_before": "2020-01-01T00:00:00Z"}, []),
    ):
        assert [row["id"] for row in check(api.get("/api/v1/jobs", query))["results"]] == expected


def test_lists_take_a_constant_number_of_queries(
    api: APIClient, submit: SubmitJob, ended: Job, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    for number in range(5):
        submit(name=str(number))
    with django_assert_max_num_queries(4):  # token, its last use, the page with its sets, their stages with models
        assert len(api.get("/api/v1/jobs").json()["results"]) == 6
    with django_assert_max_num_queries(6):  # beside them the job with its stages, the rankings, all their documents
        assert len(get(api, ended, "/results", top_k=50).json()["results"]) == 2


def post(api: APIClient, job: Any, move: str, **headers: str) -> Any:
    return api.post(f"/api/v1/jobs/{job['id'] if isinstance(job, dict) else job.pk}/{move}", headers=headers)


def test_a_job_is_steered(api: APIClient, submit: SubmitJob, worker: Worker) -> None:
    job = submit(complete_within=3600, max_error_rate=0.25)
    assert (job["complete_within"], job["max_error_rate"], job["attempt"]) == (3600, 0.25, 1)
    assert job["expires_at"] > job["queued_at"]
    paused = check(post(api, job, "pause"), method="post")
    assert paused["state"] == "paused" and paused["progress"]["waiting"] == "paused"
    assert paused["progress"]["reason"] == "it was paused by token tests"
    assert check(post(api, job, "resume"), method="post")["state"] == "queued"
    refused(post(api, job, "retry"), 409, "job_not_retriable")
    post(api, job, "cancel")
    assert jobs_advance() == 1
    again = check(post(api, job, "retry"), method="post")
    assert (again["state"], again["attempt"], again["end_reason"]) == ("queued", 2, "")
    run_chunks(worker)
    jobs_advance()
    assert check(get(api, job))["state"] == "completed"
    refused(post(api, job, "retry"), 409, "job_not_retriable")


def test_a_clone_has_its_own_key(api: APIClient, ended: Job) -> None:
    first = post(api, ended, "clone", **{"Idempotency-Key": "c"})
    again = post(api, ended, "clone", **{"Idempotency-Key": "c"})
    assert (first.status_code, again.status_code) == (201, 200)
    body = check(first, method="post")
    assert body["cloned_from"] == str(ended.pk) and body["id"] == check(again, method="post")["id"]
    assert first["Location"].endswith(body["id"])
    listed = check(api.get("/api/v1/jobs", {"cloned_from": str(ended.pk)}))["results"]
    assert [row["id"] for row in listed] == [body["id"]]


def test_a_job_is_changed_and_deleted(api: APIClient, submit: SubmitJob, ended: Job) -> None:
    job = submit()
    body = {"priority": 7, "name": "urgent", "complete_within": 60}
    changed = check(api.patch(f"/api/v1/jobs/{job['id']}", body), method="patch")
    assert {name: changed[name] for name in body} == body and changed["expires_at"]
    refused(api.delete(f"/api/v1/jobs/{job['id']}"), 409, "job_not_ended")
    refused(api.patch(f"/api/v1/jobs/{ended.pk}", {"priority": 7}), 409, "job_ended")
    assert check(api.patch(f"/api/v1/jobs/{ended.pk}", {"name": "kept"}), method="patch")["name"] == "kept"
    assert api.delete(f"/api/v1/jobs/{ended.pk}").status_code == 204
    assert api.get(f"/api/v1/jobs/{ended.pk}").status_code == 404


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"priority": 101}, "max_value", "priority"),
        ({"priority": "7"}, "invalid", "priority"),
        ({"priority": None}, "null", "priority"),
        ({"name": "  "}, "bad_name", "name"),
        ({"name": "x" * 201}, "max_length", "name"),
        ({"complete_within": 0}, "min_value", "complete_within"),
        ({"state": "completed"}, "unknown_field", "state"),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    api: APIClient, submit: SubmitJob, fields: dict[str, Any], code: str, param: str
) -> None:
    refused(api.patch(f"/api/v1/jobs/{submit()['id']}", fields), 422, code, param)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"start_at": "tomorrow"}, "invalid", "start_at"),
        ({"start_at": 5}, "invalid", "start_at"),
        ({"start_at": "2999-01-01T00:00:00Z"}, "bad_start_at", "start_at"),
        ({"complete_within": 0}, "min_value", "complete_within"),
        ({"complete_within": 2.5}, "invalid", "complete_within"),
        ({"complete_within": 10**9}, "bad_complete_within", "complete_within"),
        ({"max_error_rate": 1.5}, "max_value", "max_error_rate"),
        ({"max_error_rate": -0.1}, "min_value", "max_error_rate"),
        ({"max_error_rate": "0.5"}, "invalid", "max_error_rate"),
    ],
)
def test_times_and_shares_that_cannot_be_are_refused(
    api: APIClient, submit: SubmitJob, fields: dict[str, Any], code: str, param: str
) -> None:
    good = submit()
    body = {"document_set": good["document_set"]["id"], "query_set": good["query_set"]["id"], **fields}
    refused(api.post("/api/v1/jobs", body), 422, code, param)
    assert Job.objects.count() == 1


def test_a_key_belongs_to_the_whole_request(api: APIClient, submit: SubmitJob) -> None:
    job = submit()
    sets = {"document_set": job["document_set"]["id"], "query_set": job["query_set"]["id"]}
    body = {**sets, "model": "late", "complete_within": 60}
    first = api.post("/api/v1/jobs", body, headers={"Idempotency-Key": "k"}).json()
    api.patch(f"/api/v1/jobs/{first['id']}", {"complete_within": 90, "name": "renamed"})
    again = api.post("/api/v1/jobs", body, headers={"Idempotency-Key": "k"})
    assert again.status_code == 200 and again.json()["id"] == first["id"]
    for changed in ({"complete_within": 61}, {"max_error_rate": 1}, {"start_at": "2020-01-01T00:00:00Z"}):
        other = api.post("/api/v1/jobs", {**body, **changed}, headers={"Idempotency-Key": "k"})
        refused(other, 409, "idempotency_conflict", "Idempotency-Key")


def test_a_scheduled_job_waits(api: APIClient, submit: SubmitJob) -> None:
    at = (timezone.now() + timedelta(days=1)).isoformat()
    job = submit(start_at=at, complete_within=60)
    assert (job["state"], job["expires_at"], job["progress"]["waiting"]) == ("scheduled", None, "scheduled")


def test_over_a_limit_is_a_429_that_names_it(api: APIClient, submit: SubmitJob, settings: Settings) -> None:
    settings.PAIRS_OPEN_PER_USER = 200
    job = submit()
    response = post(api, job, "clone")
    assert response.status_code == 429
    error = check(response, method="post")["error"]
    assert error["code"] == "open_pairs_limit" and error["type"] == "rate_limit_error"
    assert (error["limit"], error["allowed"], error["used"], error["asked"]) == ("open_pairs", 200, 140, 140)


def test_the_events_tell_of_every_part(api: APIClient, submit: SubmitJob, worker: Worker) -> None:
    job = submit()
    chunk = chunk_lease(worker=worker)
    assert chunk is not None
    chunk_give_back(chunk=chunk, actor="worker:worker-1", cause=ChunkCause.ITEM_ERROR, error="It is poisoned.")
    run_chunks(worker)
    jobs_advance()
    events = check(get(api, job, "/events", page_size=500))["results"]
    assert [row["id"] for row in events] == sorted((row["id"] for row in events), reverse=True)
    assert {row["entity"] for row in events} == {"job", "stage", "chunk"}
    assert (events[0]["what"], events[0]["to_state"]) == ("job", "completed")
    (problem,) = check(get(api, job, "/events", problems="true"))["results"]
    assert (problem["what"], problem["to_state"], problem["worker"]) == ("stage 1, chunk 0", "pending", "worker-1")
    assert (problem["reason"], problem["attempt"], problem["error"]) == ("item_error", 1, "It is poisoned.")
    first = check(get(api, job, "/events", page_size=3, entity="chunk", worker="worker-1"))
    second = check(api.get(first["next"]))
    assert len(first["results"]) == 3 and {row["entity"] for row in second["results"]} == {"chunk"}
    assert not {row["id"] for row in first["results"]} & {row["id"] for row in second["results"]}
    assert get(api, job, "/events", entity="model").status_code == 422
    assert get(api, job, "/events", problem="true").status_code == 422
