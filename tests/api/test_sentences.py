"""Refusals in words: what was given, why it cannot be, what to give instead; and what merely resembles the right."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from rest_framework.test import APIClient

from scoring.models import Job, ScoringModel, Worker
from scoring.services.holds import worker_quarantine
from tests.api.conftest import SubmitJob
from tests.api.schema import check

REGISTER = {"name": "mine", "kind": "bi-encoder", "source": "package:x/y"}
RERANK = {"query": "q", "documents": ["a"]}


def message_of(response: Any, param: str, status: int = 422, method: str = "post") -> str:
    error = check(response, method=method)["error"]
    assert (response.status_code, error["param"]) == (status, param), error
    return str(error["message"])


@pytest.mark.parametrize(
    ("path", "fields", "param", "message"),
    [
        ("/rerank", {"top_n": 3, "top_k": 3}, "top_k", "'top_n' and 'top_k' are names of one field, and both were "
         "given; give one of them."),
        ("/rerank", {"top_k": 3, "top_n": 3}, "top_n", "'top_k' and 'top_n' are names of one field, and both were "
         "given; give one of them."),
        ("/rerank", {"top_n": 0}, "top_n", "'top_n' is 0; give a whole number from 1 on."),
        ("/rerank", {"top_n": "3"}, "top_n", "'top_n' is '3'; give a whole number from 1 on."),
        ("/rerank", {"query": None}, "query", "'query' is null; give a text."),
        ("/rerank", {"documents": None}, "documents", "'documents' is null; give a list of texts or of objects such as "
         '{"text": "…"}.'),
        ("/rerank", {"return_documents": "yes"}, "return_documents", "'return_documents' is 'yes'; give true or "
         "false."),
        ("/rerank", {"truncation": "left"}, "truncation", "'truncation' is 'left'; give document or error."),
        ("/rerank", {"rank_fields": "text"}, "rank_fields", "'rank_fields' is 'text'; give a list of texts that is not "
         "empty, at least one."),
        ("/rerank", {"rank_fields": ["a", 7]}, "rank_fields[1]", "'rank_fields[1]' is 7; give a text that is not "
         "empty."),
        ("/rerank", {"model": ""}, "model", "'model' is empty; give a text that is not empty, or leave it out."),
        ("/rerank", {"truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "'truncate_prompt_tokens' is -2; give "
         "a whole number from -1 on."),
        ("/rerank", {"truncation_side": "left"}, "truncation_side", "'truncation_side' is 'left'; give right."),
        ("/api/v1/models", {"max_replicas": 0}, "max_replicas", "'max_replicas' is 0; give a whole number from 1 to "
         "32,767."),
        ("/api/v1/models", {"weights": "1"}, "weights", "'weights' is '1'; give a list of numbers."),
        ("/api/v1/models", {"kind": 5}, "kind", "'kind' is 5; give cross-encoder, bi-encoder, late-interaction, "
         "sparse, hybrid, listwise, classifier or generative."),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_give_instead(
    api: APIClient, path: str, fields: dict[str, Any], param: str, message: str
) -> None:
    body = REGISTER if path == "/api/v1/models" else RERANK
    assert message_of(api.post(path, {**body, **fields}), param) == message


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"document_set": 7}, "document_set", "'document_set' is 7; give an id such as 01935f1e-7c7a-7e55-9d0e-2f6f3b"
         "1c8a11."),
        ({"query_set": "nosuch"}, "query_set", "'query_set' is 'nosuch'; give an id such as"),
        ({"start_at": "2027-01-01T09:00:00"}, "start_at", "'start_at' is '2027-01-01T09:00:00'; give a moment with its "
         "time zone, such as 2026-11-29T20:00:00Z."),
        ({"start_at": 1800000000}, "start_at", "'start_at' is 1800000000; give a moment with its time zone"),
        ({"model": ""}, "model", "'model' is empty; give a text that is not empty, or leave it out."),
        ({"name": "\u200e"}, "name", "Nothing of the name can be seen"),
        ({"name": "x" * 201}, "name", "'name' is 201 characters long; give a text of at most 200 characters."),
        ({"stages": 7}, "stages", "'stages' is 7; give a list of objects."),
        ({"stages": [{"model": "late"}, 7]}, "stages[1]", "7 was given; give an object with method, model, run_set, "
         "source, top_k."),
        ({"stages": [{"method": "bm25"}]}, "stages[0].top_k", "The top_k of a BM25 stage is missing"),
        ({"stages": [{"model": "late", "source": 0}]}, "stages[0].source", "The source of stage 0 is 0; it must be an"),
        ({"candidates": {"bm25": 0}}, "candidates.bm25", "'bm25' is 0; give a whole number from 1 to 10,000."),
        ({"candidates": {"run_set": 3}}, "candidates.run_set", "'run_set' is 3; give an id"),
        ({"max_error_rate": 2}, "max_error_rate", "'max_error_rate' is 2; give a number from 0 to 1."),
    ],
)  # fmt: skip
def test_a_job_refusal_says_what_to_give_instead(
    api: APIClient, submit: SubmitJob, fields: dict[str, Any], param: str, message: str
) -> None:
    good = submit()
    body = {"document_set": good["document_set"]["id"], "query_set": good["query_set"]["id"], **fields}
    assert message_of(api.post("/api/v1/jobs", body), param).startswith(message)
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    ("query", "param", "message"),
    [
        ("/jobs?state=nosuch", "state", "'state' is 'nosuch'; give scheduled, queued, running"),
        ("/jobs?document_set=nosuch", "document_set", "'document_set' is 'nosuch'; give an id such as"),
        ("/jobs?created_after=soon", "created_after", "'created_after' is 'soon'; give a moment with its time zone"),
        ("/score-requests?status_code=ok", "status_code", "'status_code' is 'ok'; give a whole number."),
        ("/score-requests?status_code=0.5", "status_code", "'status_code' is '0.5'; give a whole number."),
        ("/jobs?query_set=", "query_set", "'query_set' is empty; give an id such as"),
        ("/jobs/{job}/results?texts=1", "texts", "'texts' is '1'; give true or false."),
        ("/jobs/{job}/events?problems=maybe", "problems", "'problems' is 'maybe'; give true or false."),
        ("/jobs/{job}?stat=1", "stat", "Unknown query parameter 'stat'; the valid ones are: none."),
        ("/models/late?full=1", "full", "Unknown query parameter 'full'"),
        ("/jobs/{job}/results?top_n=0", "top_n", "'top_n' is '0'; give a whole number from 1 to 1,000."),
        ("/jobs/{job}/export?format=xlsx", "format", "'format' is 'xlsx'; give csv, jsonl"),
        ("/jobs/{job}/export?format=csv&format=jsonl", "format", "'format' is given 2 times, as 'csv' and 'jsonl'"),
        ("/jobs/{job}/results?page_size=1&page_size=2", "page_size", "'page_size' is given 2 times"),
        ("/jobs?name=a&name=b", "name", "'name' is given 2 times, as 'a' and 'b'; give it once."),
        ("/usage?from=2026-13-01", "from", "'from' is '2026-13-01'; give a day such as 2026-11-30"),
    ],
)
def test_a_query_parameter_that_cannot_be_is_told_in_the_same_way(
    api: APIClient, submit: SubmitJob, query: str, param: str, message: str
) -> None:
    response = api.get(f"/api/v1{query.format(job=submit()['id'])}")
    assert message_of(response, param, method="get").startswith(message)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/api/v1/jobs/01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a11", "There is no job '01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a11'"),
        ("/api/v1/models/nobody", "There is no"),
        ("/api/v1/tokens/nobody", "There is no API token 'nobody' that you may see."),
        ("/api/v1/jobs/seven", "There is nothing at the address '/api/v1/jobs/seven'."),
    ],
)
def test_what_is_not_found_is_named(api: APIClient, path: str, message: str) -> None:
    response = api.get(path)
    error = response.json()["error"]
    assert response.status_code == 404 and error["message"].startswith(message)
    assert path.rpartition("/")[2] in error["message"]


@pytest.mark.parametrize(
    ("metadata", "param", "message"),
    [
        ({"run": 7}, "metadata.run", "'metadata.run' is 7; give a text of at most 512 characters."),
        ({"x" * 65: "a"}, "metadata", "'metadata' has 1 members, of which the longest name has 65 characters; give"),
        ([], "metadata", "'metadata' is an empty list; give an object"),
    ],
)
def test_the_metadata_of_a_batch(api: APIClient, metadata: Any, param: str, message: str) -> None:
    body = {"input_file_id": "f", "endpoint": "/v1/rerank", "completion_window": "24h", "metadata": metadata}
    assert message_of(api.post("/v1/batches", body), param).startswith(message)


def test_where_no_model_is_served_it_says_what_to_register(api: APIClient) -> None:
    message = message_of(api.post("/rerank", RERANK), "model")
    assert message.endswith(
        "register one of these kinds: cross-encoder, late-interaction, hybrid, listwise, bi-encoder, "
        "sparse, generative."
    )


def test_what_may_be_given_several_times_may(api: APIClient, submit: SubmitJob) -> None:
    job = submit()
    found = check(api.get("/api/v1/jobs?state=queued&state=running"))["results"]
    assert [each["id"] for each in found] == [job["id"]]


def test_a_form_field_or_parameter_twice_is_refused(api: APIClient) -> None:
    sent = {"file": SimpleUploadedFile("a.csv", b"id,text\n1,a\n"), "name": ["a", "b"]}
    message = message_of(api.post("/api/v1/document-sets", sent, format="multipart"), "name")
    assert message == "'name' is given 2 times, as 'a' and 'b'; give it once."
    sent = {"file": SimpleUploadedFile("a.csv", b"id,text\n1,a\n"), "name": "a"}
    message_of(api.post("/api/v1/document-sets?name=b", sent, format="multipart"), "name")
    message_of(api.post("/rerank?limit=1&limit=2", RERANK), "limit")


def test_what_a_move_does_not_read_is_refused(api: APIClient, submit: SubmitJob) -> None:
    job = submit()
    message_of(api.post(f"/api/v1/jobs/{job['id']}/cancel?force=1"), "force")
    assert Job.objects.get().state == job["state"]


def test_results_of_a_query_that_is_not_in_the_set_are_not_found(api: APIClient, submit: SubmitJob) -> None:
    results = f"/api/v1/jobs/{submit()['id']}/results?query_id="
    assert "no query 'nope'" in message_of(api.get(f"{results}nope"), "query_id", 404, "get")
    assert check(api.get(f"{results}q1"))["results"] == []


def test_a_bad_reason_is_refused_before_the_state_is_looked_at(api: APIClient, worker: Worker) -> None:
    for verb in ("drain", "maintenance", "resume", "release"):
        for reason in ("", " ", "\u200e", "x" * 201):
            message_of(api.post(f"/api/v1/workers/{worker.pk}/{verb}", {"reason": reason}), "reason")
    assert worker_quarantine(worker=worker, actor="tests", reason="drift")
    assert api.post(f"/api/v1/workers/{worker.pk}/release", {"reason": "new card"}).json()["state"] == "ready"


def test_a_long_name_is_not_echoed_whole(api: APIClient, model: ScoringModel) -> None:
    message = message_of(api.post("/rerank", {**RERANK, "model": "m" * 5000}), "model", 404)
    assert len(message) < 200 and "mmm…' is not registered" in message


def test_other_methods_and_media_types_name_the_right_ones(api: APIClient) -> None:
    method = api.delete("/rerank").json()["error"]["message"]
    media = api.post("/rerank", "q=a", content_type="application/x-www-form-urlencoded").json()["error"]["message"]
    assert api.generic("TRACE", "/api/v1/jobs?unknown=1").status_code == 405
    assert method == "DELETE is not answered here; use POST."
    assert "application/x-www-form-urlencoded" in media and media.endswith("send application/json.")
