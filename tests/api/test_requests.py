"""What is refused at the border, before any worker is asked. Case numbers are those of the project's list of faults."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from rest_framework.test import APIClient

from scoring.models import ScoreRequest, ScoringModel
from scoring.models.scoring_model import ModelKind
from scoring.states import ModelState
from tests.api.schema import check

RERANKS, SCORES = ("/rerank", "/v1/rerank"), ("/score", "/v1/score")
GENERATIVE = "/generative_scoring"
ALL = (*RERANKS, *SCORES, GENERATIVE)


def body_for(path: str, documents: Any, **more: Any) -> dict[str, Any]:
    """A request of two documents in the words of the endpoint."""
    query = "queries" if path in SCORES else "query"
    return {query: "a query", "items" if path == GENERATIVE else "documents": documents, **more}


def refused(response: Any, status: int, code: str, param: str | None) -> dict[str, Any]:
    error = check(response, method="post")["error"]
    assert (response.status_code, error["code"], error["param"]) == (status, code, param), error
    return error


@pytest.fixture
def models(model: ScoringModel) -> list[ScoringModel]:
    """One served model of each kind; nobody loads them, for no worker runs."""
    return [
        ScoringModel.objects.get_or_create(
            kind=kind,
            is_default=True,
            defaults={"name": f"any-{kind}", "source": "package:x/y", "state": ModelState.AVAILABLE},
        )[0]
        for kind in ModelKind
    ]


@pytest.mark.parametrize("path", ALL)
def test_without_a_worker_the_answer_comes_at_once(api: APIClient, models: list[ScoringModel], path: str) -> None:
    started = time.monotonic()
    response = api.post(path, body_for(path, ["a", "b"]), headers={"X-Request-Id": "mine-1"})
    assert time.monotonic() - started < 2
    error = refused(response, 503, "no_worker", None)
    assert error["queue"].startswith("m.") and error["model"] in error["message"] and int(response["Retry-After"]) > 0
    assert response["X-Request-Id"] == error["request_id"] == "mine-1"
    row = ScoreRequest.objects.get()
    assert (row.status_code, row.error_code, row.endpoint, row.request_id) == (503, "no_worker", path, "mine-1")


@pytest.mark.parametrize("path", ALL)
def test_v3_an_empty_list_is_refused(api: APIClient, path: str) -> None:
    param = "items" if path == GENERATIVE else "documents"
    assert "empty" in refused(api.post(path, body_for(path, [])), 422, "empty", param)["message"]


@pytest.mark.parametrize("path", SCORES)
def test_v3_an_empty_list_of_queries_is_refused(api: APIClient, path: str) -> None:
    refused(api.post(path, {"queries": [], "documents": ["a"]}), 422, "empty", "queries")


@pytest.mark.parametrize("path", RERANKS)
@pytest.mark.parametrize(
    ("top_n", "code"), [(0, "min_value"), (-1, "min_value"), ("3", "invalid"), (2.5, "invalid"), (True, "invalid")]
)
def test_v4_a_top_n_that_cannot_be_is_refused(api: APIClient, path: str, top_n: Any, code: str) -> None:
    refused(api.post(path, body_for(path, ["a"], top_n=top_n)), 422, code, "top_n")
    refused(api.post(path, body_for(path, ["a"], top_k=top_n)), 422, code, "top_n")


@pytest.mark.parametrize("value", [{}, [], ["a"], {"a": 1}])
def test_v6_an_object_in_a_ranked_field_is_refused_with_its_index(api: APIClient, value: Any) -> None:
    documents = ["a", {"body": "fine"}, {"body": value}]
    refused(
        api.post("/rerank", body_for("/rerank", documents, rank_fields=["body"])),
        422,
        "not_a_text",
        "documents[2].body",
    )


@pytest.mark.parametrize("path", ALL)
def test_v7_a_misspelt_field_is_refused_and_the_valid_ones_are_named(api: APIClient, path: str) -> None:
    error = refused(api.post(path, body_for(path, ["a"], modle="minilm")), 422, "unknown_field", "modle")
    assert "model" in error["message"] and "truncation" in error["message"]


def test_v7_an_alias_beside_the_name_is_refused(api: APIClient) -> None:
    refused(api.post("/rerank", body_for("/rerank", ["a"], top_n=1, top_k=1)), 422, "given_twice", "top_k")
    refused(api.post("/rerank", body_for("/rerank", ["a"], texts=["b"])), 422, "given_twice", "texts")


@pytest.mark.parametrize("path", ALL)
def test_t2_half_a_surrogate_pair_is_refused_with_its_place(api: APIClient, path: str) -> None:
    param = "items" if path == GENERATIVE else "documents"
    raw = json.dumps(body_for(path, ["fine", "ab\ud83d"]))
    error = refused(api.post(path, raw, content_type="application/json"), 422, "lone_surrogate", f"{param}[1]")
    assert "position 2" in error["message"]
    assert not ScoreRequest.objects.exists()


@pytest.mark.parametrize("path", ALL)
def test_t3_a_nul_is_refused_with_its_place(api: APIClient, path: str) -> None:
    param = "items" if path == GENERATIVE else "documents"
    error = refused(api.post(path, body_for(path, ["a\0b"])), 422, "nul_character", f"{param}[0]")
    assert "position 1" in error["message"]
    query = "queries" if path in SCORES else "query"
    refused(api.post(path, {**body_for(path, ["a"]), query: "a\0"}), 422, "nul_character", query)
    nested = body_for(path, [{"text": "fine", "title": "a\0"}])
    refused(api.post(path, nested), 422, "nul_character", f"{param}[0].title")


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"query": None}, "null", "query"),
        ({"query": ["a"]}, "invalid", "query"),
        ({"query": 7}, "invalid", "query"),
        ({"documents": None}, "null", "documents"),
        ({"documents": 7}, "invalid", "documents[0]"),
        ({"documents": ["a", None]}, "invalid", "documents[1]"),
        ({"documents": ["a", 7]}, "invalid", "documents[1]"),
        ({"documents": ["a", ["b"]]}, "invalid", "documents[1]"),
        ({"documents": [{"text": "a", "id": 1.5}]}, "invalid", "documents[0].id"),
        ({"documents": [{"text": "a", "id": None}]}, "invalid", "documents[0].id"),
        ({"rank_fields": []}, "empty", "rank_fields"),
        ({"rank_fields": "text"}, "not_a_list", "rank_fields"),
        ({"rank_fields": [""]}, "blank", "rank_fields[0]"),
        ({"return_documents": "yes"}, "invalid", "return_documents"),
        ({"truncation": "left"}, "invalid_choice", "truncation"),
        ({"use_activation": "no"}, "invalid", "use_activation"),
        ({"instruction": 7}, "invalid", "instruction"),
        ({"max_tokens_per_doc": -1}, "min_value", "max_tokens_per_doc"),
        ({"max_tokens_per_query": "5"}, "invalid", "max_tokens_per_query"),
        ({"truncate_prompt_tokens": 0}, "min_value", "truncate_prompt_tokens"),
        ({"model": 7}, "invalid", "model"),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused(api: APIClient, fields: dict[str, Any], code: str, param: str) -> None:
    refused(api.post("/rerank", {"query": "q", "documents": ["a"], **fields}), 422, code, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"labels": []}, "labels"),
        ({"labels": ["yes"]}, "labels"),
        ({"labels": ["yes", "yes"]}, "labels"),
        ({"labels": ["yes", ""]}, "labels[1]"),
        ({"labels": ["yes", 1]}, "labels[1]"),
        ({"labels": ["a", "b"], "label_token_ids": [1, 2]}, "label_token_ids"),
        ({"label_token_ids": [-1, 2]}, "label_token_ids[0]"),
        ({"label_token_ids": ["1", 2]}, "label_token_ids[0]"),
        ({"label_token_ids": list(range(129))}, "label_token_ids"),
        ({"apply_softmax": 1}, "apply_softmax"),
        ({"template": 7}, "template"),
    ],
)
def test_labels_that_cannot_be_are_refused(api: APIClient, fields: dict[str, Any], param: str) -> None:
    response = api.post(GENERATIVE, {"query": "q", "items": ["a"], **fields})
    assert response.status_code == 422 and check(response, method="post")["error"]["param"] == param


@pytest.mark.parametrize(("queries", "documents"), [(2, 1), (2, 3), (3, 2)])
def test_lists_that_make_no_pairs_are_refused(api: APIClient, queries: int, documents: int) -> None:
    body = {"queries": ["q"] * queries, "documents": ["d"] * documents}
    error = refused(api.post("/score", body), 422, "lengths_differ", "queries")
    assert f"{queries} queries and {documents} documents" in error["message"] and "matrix" in error["message"]


@pytest.mark.parametrize("path", ALL)
def test_an_unknown_model_is_not_found_and_the_served_ones_are_named(
    api: APIClient, models: list[ScoringModel], path: str
) -> None:
    error = refused(api.post(path, body_for(path, ["a"], model="nosuch")), 404, "model_not_found", "model")
    assert error["models"] and all(name in error["message"] for name in error["models"])


def test_a_model_of_the_wrong_kind_is_refused(api: APIClient, models: list[ScoringModel]) -> None:
    refused(api.post(GENERATIVE, body_for(GENERATIVE, ["a"], model="late")), 422, "wrong_model_kind", "model")


def test_a_model_that_is_not_served_is_a_conflict(api: APIClient, model: ScoringModel) -> None:
    ScoringModel.objects.update(state=ModelState.REJECTED)
    refused(api.post("/rerank", body_for("/rerank", ["a"], model="late")), 409, "model_not_served", "model")


@pytest.mark.django_db
def test_without_any_model_the_answer_says_so(api: APIClient) -> None:
    refused(api.post("/rerank", body_for("/rerank", ["a"])), 422, "model_required", "model")


@pytest.mark.parametrize("given", ["0", "-5", "soon", "1.5", "", "²"])
def test_a_timeout_that_cannot_be_is_refused(api: APIClient, model: ScoringModel, given: str) -> None:
    response = api.post("/rerank", body_for("/rerank", ["a"]), headers={"X-Timeout-Ms": given})
    refused(response, 422, "bad_timeout", "X-Timeout-Ms")


def test_too_many_pairs_are_refused_with_the_limit(api: APIClient, models: list[ScoringModel], settings: Any) -> None:
    settings.MAX_DOCUMENTS_PER_REQUEST = 5
    assert (
        refused(api.post("/rerank", body_for("/rerank", ["a"] * 6)), 413, "too_many_documents", "documents")["limit"]
        == 5
    )
    matrix = {"queries": ["q"] * 2, "documents": ["d"] * 3, "mode": "matrix"}
    refused(api.post("/score", matrix), 413, "too_many_documents", "documents")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("{", 400),
        ('{"query": NaN}', 400),
        (b"\xff", 400),
        ("[]", 422),
        ('"text"', 422),
        ("", 422),
        ('{"query": 1e999}', 400),
        ("[" * 100_000, 422),
    ],
)
def test_a_body_that_is_no_request_is_refused(api: APIClient, body: Any, status: int) -> None:
    response = api.post("/rerank", body, content_type="application/json")
    assert response.status_code == status and check(response, method="post")["error"]["message"]


def test_other_media_types_and_methods_are_refused(api: APIClient) -> None:
    assert api.post("/rerank", "query=a", content_type="application/x-www-form-urlencoded").status_code == 415
    assert api.get("/rerank").status_code == 405
    assert api.post("/rerank/", {}).status_code == 404
