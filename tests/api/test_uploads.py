"""Files that come in through the API: what is kept, what is refused, and with which words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from rest_framework.test import APIClient

from scoring.models import Document, DocumentSet, Job, JudgementSet, Query, QuerySet, RunSet
from scoring.services.retention import retention_apply
from tests.api.conftest import DOCUMENTS, JUDGEMENTS, QUERIES, RUN, SubmitJob, Upload, send_file
from tests.api.schema import check
from tests.disk import no_file_grows_beyond

HEAD = b"id,text,title,topic\n"
ROW = b"d1,a text,a title,a topic\n"


def refusal(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.content
    error = check(response, method="post")["error"]
    assert error["code"] == code and error["param"] == "file"
    return error


def test_a_multipart_upload_becomes_a_set(api: APIClient) -> None:
    response = send_file(api, "document-sets", DOCUMENTS, name="Advice", file_name="advice.csv")
    body = check(response, method="post")
    assert response.status_code == 201 and response["Location"].endswith(f"/api/v1/document-sets/{body['id']}")
    assert (body["name"], body["file_name"], body["file_format"], body["state"]) == (
        "Advice",
        "advice.csv",
        "csv",
        "ready",
    )
    assert body["counts"] == {"read": 70, "kept": 70, "bad": 0, "duplicate": 0, "empty": 1}
    assert body["mapping"] == {"id": "id", "text": "text", "title": "title", "metadata": None}
    assert check(api.get(f"/api/v1/document-sets/{body['id']}")) == body


@pytest.mark.parametrize(
    ("media_type", "content"),
    [
        ("text/csv", b"id,text\nd1,one\n"),
        ("text/tab-separated-values", b"id\ttext\nd1\tone\n"),
        ("application/x-ndjson", b'{"id": "d1", "text": "one"}\n'),
        ("application/jsonl", b'{"id": "d1", "text": "one"}\n'),
    ],
)
def test_the_body_may_be_the_file_itself(api: APIClient, media_type: str, content: bytes) -> None:
    response = api.post("/api/v1/document-sets?name=raw", content, content_type=media_type)
    body = check(response, method="post")
    assert response.status_code == 201 and body["name"] == "raw" and body["counts"]["kept"] == 1
    assert Document.objects.get(document_set=body["id"]).text == "one"


def test_judgements_may_be_a_trec_file(api: APIClient) -> None:
    response = api.post("/api/v1/judgements?name=qrels", JUDGEMENTS, content_type="text/plain")
    body = check(response, method="post")
    assert body["file_format"] == "trec-qrels" and body["counts"]["kept"] == 4
    rows = check(api.get(f"/api/v1/judgements/{body['id']}/rows", {"query_id": "q2", "grade": "2"}))
    assert rows["results"] == [{"query_id": "q2", "document_id": "d65", "grade": 2}]


def test_a_run_may_be_a_trec_file(api: APIClient) -> None:
    response = api.post("/api/v1/runs?name=bm25", RUN, content_type="text/plain")
    body = check(response, method="post")
    assert body["file_format"] == "trec-run" and body["counts"]["kept"] == 3
    rows = check(api.get(f"/api/v1/runs/{body['id']}/entries", {"query_id": "q1"}))["results"]
    assert rows == [
        {"query_id": "q1", "document_id": "d7", "rank": 1, "score": 9.5},
        {"query_id": "q1", "document_id": "d3", "rank": 2, "score": 8.25},
    ]
    assert check(api.get(f"/api/v1/runs/{body['id']}/entries", {"document_id": "d65"}))["results"][0]["score"] == 7


def test_a_document_twice_for_one_query_is_named_with_its_line(api: APIClient) -> None:
    """I4: refused, or the first kept when good rows are asked for."""
    twice = RUN + b"q1 Q0 d7 3 1 bm25\n"
    error = refusal(send_file(api, "runs", twice), 422, "bad_rows")
    assert error["problems"] == [{"line": 4, "message": "repeats 'q1' and 'd7', which an earlier row has"}]
    assert not RunSet.objects.exists()
    body = check(send_file(api, "runs", twice, keep_good_rows="true"), method="post")
    assert body["counts"] == {"read": 4, "kept": 3, "bad": 1, "duplicate": 1, "empty": 0}
    rows = check(api.get(f"/api/v1/runs/{body['id']}/entries", {"document_id": "d7"}))["results"]
    assert [(row["rank"], row["score"]) for row in rows] == [(1, 9.5)]


def test_a_run_is_previewed_as_one(api: APIClient) -> None:
    body = check(send_file(api, "runs/preview", RUN), method="post")
    assert body["columns"] == ["query_id", "iteration", "document_id", "rank", "score", "tag"]
    assert body["counts"]["kept"] == 3 and not RunSet.objects.exists()


def test_a_mapping_says_which_column_is_which(upload: Upload) -> None:
    mapping = json.dumps({"id": "key", "text": "body", "metadata": ["lang"]})
    body = upload("document-sets", b"key,body,lang,other\n7,one,en,x\n", mapping=mapping)
    document = Document.objects.get(document_set=body["id"])
    assert (document.external_id, document.text, document.metadata) == ("7", "one", {"lang": "en"})


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ("{", "not JSON"),
        ("[1]", "must be a JSON object"),
        ('{"text": NaN}', "not a JSON number"),
        ('{"text": "nowhere"}', "the columns are 'id', 'text'"),
        ('{"txt": "text"}', "roles are"),
        ('{"text": {"a": 1}}', "the columns are 'id', 'text'"),
        ('{"text": ["id"]}', "the columns are 'id', 'text'"),
        ('{"text": "a\\u0000"}', "NUL"),
    ],
)
def test_a_bad_mapping_is_refused(api: APIClient, mapping: str, words: str) -> None:
    response = send_file(api, "document-sets", b"id,text\nd1,one\n", mapping=mapping)
    assert response.status_code == 422 and words in response.json()["error"]["message"]
    assert not DocumentSet.objects.exists()


def test_latin_1_is_named_with_its_line(api: APIClient) -> None:
    error = refusal(send_file(api, "document-sets", HEAD + ROW + "d2,é,t,t\n".encode("latin-1")), 422, "bad_rows")
    assert error["problems"][0]["line"] == 3 and "not UTF-8" in error["problems"][0]["message"]
    assert "Latin-1" in error["message"] and error["counts"]["bad"] == 1


def test_a_nul_is_named_with_its_line(api: APIClient) -> None:
    error = refusal(send_file(api, "document-sets", HEAD + b"d1,a\x00b,t,t\n"), 422, "bad_rows")
    assert error["problems"] == [{"line": 2, "message": "'text' holds a NUL character at position 1; remove it"}]


def test_a_row_with_too_few_columns_is_named_with_its_line(api: APIClient) -> None:
    error = refusal(send_file(api, "document-sets", HEAD + ROW + b"d2,only,three\n"), 422, "bad_rows")
    assert error["problems"] == [{"line": 3, "message": "has 3 columns, the header has 4"}]


def test_a_cell_of_two_megabytes_is_named_with_its_line(api: APIClient) -> None:
    error = refusal(send_file(api, "document-sets", HEAD + b"d1," + b"x" * (2 << 20) + b",t,t\n"), 422, "bad_rows")
    assert error["problems"][0]["line"] == 2 and "2,097,152 characters" in error["problems"][0]["message"]


@pytest.mark.parametrize("content", [b"", b"  \n\n"])
def test_an_empty_file_is_refused(api: APIClient, content: bytes) -> None:
    assert "empty" in refusal(send_file(api, "document-sets", content), 422, "unreadable_file")["message"]
    raw = api.post("/api/v1/runs", content, content_type="text/plain; charset=utf-8")
    assert "empty" in refusal(raw, 422, "unreadable_file")["message"]


def test_a_file_with_a_header_only_is_refused(api: APIClient) -> None:
    assert "no rows" in refusal(send_file(api, "document-sets", HEAD), 422, "unreadable_file")["message"]


@pytest.mark.parametrize(
    "content", [b"\x89PNG\r\n\x1a\n" + bytes(200), b"PK\x03\x04" + bytes(60), bytes(range(32)) * 40]
)
def test_a_binary_file_renamed_to_csv_is_refused(api: APIClient, content: bytes) -> None:
    error = refusal(send_file(api, "document-sets", content, file_name="table.csv"), 422, "unreadable_file")
    assert error["message"].startswith("table.csv: ")


def test_duplicate_ids_are_named_with_their_line(api: APIClient) -> None:
    error = refusal(send_file(api, "document-sets", HEAD + ROW + ROW), 422, "bad_rows")
    assert error["problems"] == [{"line": 3, "message": "repeats 'd1', which an earlier row has"}]
    assert error["counts"]["duplicate"] == 1


def test_good_rows_are_kept_when_asked(api: APIClient) -> None:
    content = HEAD + ROW + ROW + b"d2,only,three\n" + b"d3,good,t,t\n"
    body = check(send_file(api, "document-sets", content, keep_good_rows="true"), method="post")
    assert body["counts"] == {"read": 4, "kept": 2, "bad": 2, "duplicate": 1, "empty": 0}
    assert [problem["line"] for problem in body["problems"]] == [3, 4]
    rows = check(api.get(f"/api/v1/document-sets/{body['id']}/documents"))["results"]
    assert [(row["id"], row["position"]) for row in rows] == [("d1", 0), ("d3", 1)]


def test_nothing_is_stored_of_a_refused_file(api: APIClient) -> None:
    send_file(api, "document-sets", HEAD + ROW + ROW)
    assert not DocumentSet.objects.exists() and not Document.objects.exists()


def test_the_same_file_again_is_offered_as_the_existing_set(api: APIClient, upload: Upload) -> None:
    first = upload("query-sets", QUERIES, name="first")
    error = refusal(send_file(api, "query-sets", QUERIES, name="second"), 409, "already_uploaded")
    existing = error["existing"]
    assert (existing["id"], existing["name"]) == (first["id"], "first")
    assert api.get(existing["url"]).json()["id"] == first["id"]
    again = send_file(api, "query-sets", QUERIES, use_existing="true")
    assert again.status_code == 200 and check(again, method="post")["id"] == first["id"]
    assert QuerySet.objects.count() == 1
    # Read in another way, it is another set.
    by_id = send_file(api, "query-sets", QUERIES, mapping='{"text": "id"}', use_existing="true")
    assert by_id.status_code == 201 and QuerySet.objects.count() == 2
    assert send_file(api, "query-sets", QUERIES, mapping='{"text": "nothing"}', use_existing="true").status_code == 422


@pytest.mark.parametrize("name", ["", "   ", "\u200e", "x" * 201, "a\x00b"])
def test_a_bad_name_is_refused(api: APIClient, name: str) -> None:
    response = send_file(api, "document-sets", b"id,text\n1,a\n", name=name)
    assert response.status_code == 422 and response.json()["error"]["param"] == "name"


@pytest.mark.django_db
@pytest.mark.parametrize("fields", [{}, {"fille": "x"}, {"file": "text"}])
def test_a_missing_or_misspelt_file_is_refused(api: APIClient, fields: dict[str, str]) -> None:
    response = api.post("/api/v1/document-sets", fields, format="multipart")
    assert response.status_code == 422 and response.json()["error"]["param"] in ("file", "fille")


def test_an_unknown_field_lists_the_valid_ones(api: APIClient) -> None:
    response = send_file(api, "document-sets", b"id,text\n1,a\n", keep_god_rows="true")
    assert response.status_code == 422 and "keep_good_rows" in response.json()["error"]["message"]


def test_json_is_no_upload(api: APIClient) -> None:
    assert api.post("/api/v1/document-sets", {"file": "x"}, format="json").status_code == 415


def test_a_file_over_the_limit_is_refused_before_it_is_read(api: APIClient, settings: Any) -> None:
    settings.UPLOAD_MAX_BYTES = 2000
    refusal(send_file(api, "document-sets", b"id,text\n1," + b"a" * 100_000), 413, "file_too_large")
    refusal(send_file(api, "document-sets", b"id,text\n1," + b"a" * 3000), 413, "file_too_large")
    raw = api.post("/api/v1/document-sets", b"id,text\n1," + b"a" * 3000, content_type="text/csv")
    refusal(raw, 413, "file_too_large")


def test_no_file_stays_behind(api: APIClient) -> None:
    folder = Path(settings.FILE_UPLOAD_TEMP_DIR)
    before = set(folder.iterdir())
    send_file(api, "document-sets", DOCUMENTS)
    api.post("/api/v1/document-sets", b"id,text\n1,a\n", content_type="text/csv")
    send_file(api, "document-sets", b"")
    assert set(folder.iterdir()) == before


def test_a_preview_stores_nothing_and_shows_all_problems(api: APIClient) -> None:
    content = HEAD + ROW + "d2,é,t,t\n".encode("latin-1") + b"d3,a\x00,t,t\n" + b"d4,three,columns\n" + ROW
    body = check(send_file(api, "document-sets/preview", content), method="post")
    assert body["columns"] == ["id", "text", "title", "topic"] and body["mapping_error"] == ""
    assert [problem["line"] for problem in body["problems"]] == [3, 4, 5, 6]
    assert [row["line"] for row in body["rows"]] == [2, 3, 4, 5, 6]
    assert body["rows"][0]["values"]["text"] == "a text" and body["rows"][1]["values"]["text"] == "\ufffd"
    assert not DocumentSet.objects.exists()


def test_a_preview_says_what_the_mapping_lacks(api: APIClient) -> None:
    body = check(send_file(api, "document-sets/preview", b"a,b\n1,2\n"), method="post")
    assert "'text'" in body["mapping_error"] and body["columns"] == ["a", "b"]


def test_a_preview_cuts_long_cells(api: APIClient) -> None:
    body = check(send_file(api, "query-sets/preview", b"id,text\n1," + b"x" * 9000 + b"\n"), method="post")
    assert len(body["rows"][0]["values"]["text"]) == 500


def test_a_json_lines_file_with_half_a_surrogate_pair(api: APIClient) -> None:
    """T2 in a file: the row is refused, the preview shows it without breaking."""
    content = b'{"id": "1", "text": "\\ud83d"}\n{"id": "2", "text": "ok", "\\ud83d": 1}\n'
    error = refusal(send_file(api, "document-sets", content), 422, "bad_rows")
    assert "surrogate" in error["message"]
    assert send_file(api, "document-sets/preview", content).status_code == 200


def test_the_rows_can_be_filtered_and_paged(api: APIClient, upload: Upload) -> None:
    base = f"/api/v1/document-sets/{upload('document-sets', DOCUMENTS)['id']}/documents"
    seen, link = [], f"{base}?page_size=32"
    while link:
        page = check(api.get(link))
        seen += [row["position"] for row in page["results"]]
        link = page["next"]
    assert seen == list(range(70))
    assert [row["id"] for row in api.get(base, {"id": "d9"}).json()["results"]] == ["d9"]
    assert [row["id"] for row in api.get(base, {"is_empty": "true"}).json()["results"]] == ["d69"]
    assert len(api.get(base, {"text": "TEXT 6"}).json()["results"]) == 10


@pytest.mark.parametrize(
    "query",
    [
        "page_size=0",
        "page_size=501",
        "page_size=x",
        "stat=ready",
        "state=nosuch",
        "created_after=x",
        "created_after=0001-01-01T00:00:00%2B23:00",
        "created_before=9999-12-31T23:59:59-23:00",
    ],
)
def test_a_query_parameter_that_cannot_be_is_refused(api: APIClient, query: str) -> None:
    response = api.get(f"/api/v1/document-sets?{query}")
    assert response.status_code == 422 and response.json()["error"]["param"] == query.partition("=")[0]


@pytest.mark.parametrize("cursor", ["x", "cD1ub25zZW5zZQ==", "cD0A"])
def test_a_cursor_from_nowhere_is_not_found(api: APIClient, cursor: str) -> None:
    assert api.get(f"/api/v1/document-sets?cursor={cursor}").status_code == 404


def test_sets_are_listed_newest_first_and_filtered(api: APIClient, upload: Upload) -> None:
    ids = [upload("query-sets", b"text\nquery %d\n" % number, name=f"set {number}")["id"] for number in range(3)]
    assert [row["id"] for row in check(api.get("/api/v1/query-sets"))["results"]] == ids[::-1]
    assert [row["id"] for row in api.get("/api/v1/query-sets", {"name": "T 1"}).json()["results"]] == [ids[1]]
    assert api.get("/api/v1/query-sets", {"state": "failed"}).json()["results"] == []
    assert len(api.get("/api/v1/query-sets", {"created_after": "2020-01-01T00:00:00Z"}).json()["results"]) == 3


def test_a_set_without_jobs_can_be_deleted(api: APIClient, upload: Upload) -> None:
    for resource, content, rows in (("document-sets", DOCUMENTS, Document), ("query-sets", QUERIES, Query)):
        address = f"/api/v1/{resource}/{upload(resource, content)['id']}"
        assert api.delete(address).status_code == 204
        assert api.get(address).status_code == 404 and not rows.objects.exists()
    judgements = upload("judgements", JUDGEMENTS)["id"]
    assert api.delete(f"/api/v1/judgements/{judgements}").status_code == 204 and not JudgementSet.objects.exists()
    run = upload("runs", RUN)["id"]
    assert api.delete(f"/api/v1/runs/{run}").status_code == 204 and not RunSet.objects.exists()


def test_a_set_that_a_job_uses_cannot_be_deleted(api: APIClient, submit: SubmitJob) -> None:
    job = submit()
    for resource, name in (("document-sets", "document_set"), ("query-sets", "query_set")):
        response = api.delete(f"/api/v1/{resource}/{job[name]['id']}")
        assert response.status_code == 409 and check(response, method="delete")["error"]["code"] == "set_in_use"
    assert Document.objects.count() == 70 and Job.objects.count() == 1


def test_texts_are_deleted_and_the_ranking_stays(api: APIClient, ended: Job) -> None:
    for resource, pk in (("document-sets", ended.document_set_id), ("query-sets", ended.query_set_id)):
        address = f"/api/v1/{resource}/{pk}"
        assert check(api.get(address))["texts_deleted_at"] is None
        assert api.delete(f"{address}/texts").status_code == 202
        asked = check(api.get(address))
        assert asked["texts_delete_requested_at"] is not None and asked["texts_deleted_at"] is None
    before = api.get(f"/api/v1/jobs/{ended.pk}/export", {"format": "trec"}).getvalue()
    # Asked for, not done yet: nothing shows them any more.
    assert Document.objects.exclude(text="").count() == 69
    results = check(api.get(f"/api/v1/jobs/{ended.pk}/results", {"texts": "true"}))["results"]
    found = [(row["query"], shown["text"], shown["title"]) for row in results for shown in row["documents"]]
    assert len(found) == 20 and set(found) == {("", "", "")}
    for resource, rows in (("document-sets", "documents"), ("query-sets", "queries")):
        pk = ended.document_set_id if rows == "documents" else ended.query_set_id
        assert {row["text"] for row in check(api.get(f"/api/v1/{resource}/{pk}/{rows}"))["results"]} == {""}
        assert not check(api.get(f"/api/v1/{resource}/{pk}/{rows}", {"text": "t"}))["results"]
    lines = api.get(f"/api/v1/jobs/{ended.pk}/export", {"format": "jsonl"}).getvalue().decode().splitlines()
    assert {(row["text"], row["title"], row["query"]) for row in map(json.loads, lines)} == {("", "", "")}
    assert retention_apply() == 72
    after = check(api.get(f"/api/v1/document-sets/{ended.document_set_id}"))
    assert after["texts_deleted_at"] is not None and after["counts"]["kept"] == 70
    assert api.get(f"/api/v1/jobs/{ended.pk}/export", {"format": "trec"}).getvalue() == before
    body = {"model": "late", "document_set": ended.document_set_id, "query_set": ended.query_set_id}
    refused = api.post("/api/v1/jobs", body)
    assert refused.status_code == 422 and check(refused, method="post")["error"]["code"] == "texts_deleted"


def test_texts_that_a_job_needs_stay(api: APIClient, submit: SubmitJob) -> None:
    response = api.delete(f"/api/v1/document-sets/{submit()['document_set']['id']}/texts")
    assert response.status_code == 409 and check(response, method="delete")["error"]["code"] == "set_in_use"
    assert retention_apply() == 0 and Document.objects.exclude(text="").count() == 69


def test_lists_take_a_constant_number_of_queries(
    api: APIClient, upload: Upload, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    for number in range(8):
        upload("document-sets", b"text\ntext %d\n" % number)
    with django_assert_max_num_queries(3):  # token, its last use, the page
        assert len(api.get("/api/v1/document-sets").json()["results"]) == 8


@pytest.mark.parametrize("table", ["scoring_documentset", "scoring_document"])  # by INSERT, by COPY
def test_a_full_disk_of_the_database_is_told(api: APIClient, table: str) -> None:
    with connection.cursor() as cursor:  # PostgreSQL's own error, raised where a row is written
        cursor.execute(
            "CREATE FUNCTION pg_temp.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE disk_full; END $$"
        )
        cursor.execute(f"CREATE TRIGGER is_full BEFORE INSERT ON {table} EXECUTE FUNCTION pg_temp.full()")
    response = send_file(api, "document-sets", DOCUMENTS)
    error = check(response, method="post")["error"]
    assert (response.status_code, error["code"]) == (507, "no_room")
    assert "database's disk is full" in error["message"]


@pytest.mark.parametrize("path", ["document-sets", "document-sets/preview"])
def test_a_full_disk_is_told_and_keeps_nothing(api: APIClient, path: str) -> None:
    content = b"id,text\n" + b"".join(b"%d,%s\n" % (n, b"x" * 4096) for n in range(700))
    with no_file_grows_beyond(1 << 20):
        sent = send_file(api, path, content), api.post(f"/api/v1/{path}", content, content_type="text/csv")
    for response in sent:
        assert "disk is full" in refusal(response, 507, "no_room")["message"]
    assert not DocumentSet.objects.exists()
    assert send_file(api, path, content).status_code in (200, 201)
