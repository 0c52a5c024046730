"""Registering and steering models; what a worker does about it is tested where workers are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from scoring.models import Placement, ScoreRequest, ScoringModel, Worker
from scoring.states import ModelState, PlacementState
from tests.api.schema import check

REGISTER = {"name": "mine", "kind": "bi-encoder", "source": "package:x/y"}


def test_a_model_is_registered_and_waits_for_its_self_test(api: APIClient) -> None:
    response = api.post("/api/v1/models", {**REGISTER, "self_test": "numbers", "max_length": 512})
    body = check(response, method="post")
    assert response.status_code == 201 and response["Location"].endswith("/api/v1/models/mine")
    assert (body["state"], body["self_test"], body["max_length"]) == ("registered", "numbers", 512)
    assert check(api.get("/api/v1/models/mine")) == body
    assert check(api.get("/v1/models")) == {"object": "list", "data": []}


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"name": "not a slug"}, "invalid_model", "name"),
        ({"name": ""}, "invalid_model", "name"),
        ({"name": "x" * 65}, "invalid_model", "name"),
        ({"kind": "reranker"}, "invalid_choice", "kind"),
        ({"positive_class": "relevant"}, "invalid_model", "positive_class"),
        ({"source": 7}, "invalid", "source"),
        ({"dtype": "int4"}, "invalid_choice", "dtype"),
        ({"device": "tpu"}, "invalid_model", "device"),
        ({"max_length": 0}, "min_value", "max_length"),
        ({"gpu_maxsim": "yes"}, "invalid", "gpu_maxsim"),
        ({"document_cache_bytes": -1}, "min_value", "document_cache_bytes"),
        ({"document_cache_bytes": 2**63}, "max_value", "document_cache_bytes"),
        ({"kind": "cross-encoder", "document_cache_bytes": 0}, "invalid_model", "document_cache_bytes"),
        ({"labels": ["yes", "no"]}, "invalid_model", "labels"),
        ({"kind": "generative", "labels": ["yes"]}, "invalid_model", "labels"),
        ({"kind": "generative", "labels": [1]}, "invalid", "labels[0]"),
        ({"trust_remote_code": True}, "unknown_field", "trust_remote_code"),
    ],
)
def test_a_model_that_cannot_be_is_refused(api: APIClient, fields: dict[str, Any], code: str, param: str) -> None:
    response = api.post("/api/v1/models", {**REGISTER, **fields})
    error = check(response, method="post")["error"]
    assert (response.status_code, error["code"], error["param"]) == (422, code, param)
    assert not ScoringModel.objects.exists()


def test_a_name_is_given_once(api: APIClient, model: ScoringModel) -> None:
    response = api.post("/api/v1/models", {**REGISTER, "name": "late"})
    assert response.status_code == 409 and response.json()["error"]["code"] == "name_taken"
    api.post("/api/v1/models", REGISTER)
    assert api.patch("/api/v1/models/mine", {"name": "late"}).status_code == 409
    assert api.patch("/api/v1/models/mine", {"kind": "late-interaction", "is_default": True}).status_code == 409


def test_a_toggle_is_a_new_generation_without_a_new_self_test(api: APIClient, model: ScoringModel) -> None:
    body = check(api.patch("/api/v1/models/late", {"gpu_maxsim": False}), method="patch")
    assert (body["gpu_maxsim"], body["generation"], body["state"]) == (False, 2, "available")
    assert check(api.patch("/api/v1/models/late", {"gpu_maxsim": False}), method="patch")["generation"] == 2


def test_the_budget_of_the_caches_is_followed_without_a_new_self_test(
    api: APIClient, model: ScoringModel, worker: Worker
) -> None:
    body = check(api.patch("/api/v1/models/late", {"document_cache_bytes": 4096}), method="patch")
    assert (body["document_cache_bytes"], body["generation"], body["state"]) == (4096, 2, "available")
    kept = {"bytes": 4000, "device_bytes": 0, "budget_bytes": 4096}
    Placement.objects.create(model=model, worker=worker, state=PlacementState.READY)
    Worker.objects.filter(pk=worker.pk).update(statistics={"documents_kept": {"late": kept}})
    assert check(api.get("/api/v1/models/late"))["placements"][0]["documents_kept"] == kept
    assert check(api.get(f"/api/v1/workers/{worker.pk}"))["placements"][0]["documents_kept"] == kept
    Placement.objects.update(state=PlacementState.FAILED)
    assert check(api.get("/api/v1/models/late"))["placements"][0]["documents_kept"] is None
    for budget in (0, None):
        changed = api.patch("/api/v1/models/late", {"document_cache_bytes": budget}).json()
        assert changed["document_cache_bytes"] == budget
    refused = api.patch("/api/v1/models/late", {"document_cache_bytes": 5, "kind": "listwise"}).json()["error"]
    assert "'late' is a listwise, which reads no text by itself" in refused["message"]


def test_what_decides_the_scores_needs_a_new_self_test(api: APIClient, model: ScoringModel) -> None:
    body = check(api.patch("/api/v1/models/late", {"max_length": 128, "name": "renamed"}), method="patch")
    assert (body["name"], body["state"], body["generation"]) == ("renamed", "registered", 2)
    assert api.get("/api/v1/models/late").status_code == 404


@pytest.mark.parametrize("fields", [{"state": "available"}, {"max_length": 0}, {"kind": "nosuch"}, {"device": ""}])
def test_a_change_that_cannot_be_is_refused(api: APIClient, model: ScoringModel, fields: dict[str, Any]) -> None:
    assert api.patch("/api/v1/models/late", fields).status_code == 422


def test_load_unload_and_reload_ask_the_workers(api: APIClient, model: ScoringModel, worker: Worker) -> None:
    for verb in ("load", "reload", "unload"):
        response = api.post(f"/api/v1/models/late/{verb}")
        assert response.status_code == 202 and check(response, method="post") == {"model": "late", "workers": 1}
    placement = Placement.objects.get(model=model, worker=worker)
    assert (placement.present, placement.reload_requested) == (False, 1)
    shown = check(api.get("/api/v1/models/late"))["placements"]
    assert [(row["worker"], row["present"], row["state"]) for row in shown] == [("worker-1", False, "wanted")]


def test_nobody_can_load_without_a_worker(api: APIClient, model: ScoringModel) -> None:
    response = api.post("/api/v1/models/late/load")
    assert response.status_code == 503 and response["Retry-After"]
    assert check(response, method="post")["error"]["code"] == "no_worker"


def test_a_model_is_disabled_and_tested_again(api: APIClient, model: ScoringModel, worker: Worker) -> None:
    disabled = check(api.post("/api/v1/models/late/disable"), method="post")
    assert (disabled["state"], disabled["open_jobs"]) == ("disabled", {"count": 0, "ids": []})
    assert api.post("/api/v1/models/late/load").status_code == 409
    assert api.get("/v1/models/late").status_code == 409
    response = api.post("/api/v1/models/late/self-test")
    assert response.status_code == 202 and check(response, method="post")["state"] == "registered"
    ScoringModel.objects.update(state=ModelState.TESTING)
    assert api.post("/api/v1/models/late/disable").json()["error"]["code"] == "self_test_running"


@pytest.mark.parametrize("verb", ["load", "unload", "reload", "disable", "self-test"])
def test_an_unknown_model_cannot_be_steered(api: APIClient, verb: str) -> None:
    assert api.post(f"/api/v1/models/nosuch/{verb}").status_code == 404


def test_clients_see_the_models_served_with_limits(
    api: APIClient, api_with: Callable[..., APIClient], model: ScoringModel, worker: Worker, settings: Any
) -> None:
    Placement.objects.create(model=model, worker=worker, state=PlacementState.READY)
    api.post("/api/v1/models", REGISTER)
    client = api_with("score")
    (card,) = check(client.get("/v1/models"))["data"]
    assert (card["id"], card["kind"], card["max_model_len"], card["state"]) == (
        "late",
        "late-interaction",
        256,
        "ready on 1",
    )
    assert card["limits"]["max_documents_per_request"] == settings.MAX_DOCUMENTS_PER_REQUEST
    assert check(client.get("/v1/models/late")) == card
    missing = client.get("/v1/models/BAAI/bge-m3")
    assert missing.status_code == 404 and missing.json()["error"]["models"] == ["late"]
    assert client.get("/v1/models/mine").status_code == 409


def test_models_and_workers_are_listed_in_a_constant_number_of_queries(
    api: APIClient, worker: Worker, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    for number in range(5):
        api.post("/api/v1/models", {**REGISTER, "name": f"m{number}"})
        Placement.objects.create(model=ScoringModel.objects.get(name=f"m{number}"), worker=worker)
    for resource, count in (("models", 5), ("workers", 1)):
        with django_assert_max_num_queries(4):  # token, its last use, the page, the placements
            assert len(check(api.get(f"/api/v1/{resource}"))["results"]) == count
    assert len(check(api.get(f"/api/v1/workers/{worker.pk}"))["placements"]) == 5
    assert len(api.get("/api/v1/models", {"name": "M1", "kind": "bi-encoder"}).json()["results"]) == 1
    assert api.get("/api/v1/workers", {"state": "lost"}).json()["results"] == []


def test_score_requests_are_listed_without_their_texts(
    api: APIClient, team: Any, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    for number in range(4):
        ScoreRequest.objects.create(
            team=team, endpoint="/rerank", model_name="late", status_code=200 + number, queries=["q"], documents=["d"],
            results=[{"index": 0, "score": 0.5, "raw_score": 0.5, "status": "ok"}],
        )  # fmt: skip
    with django_assert_max_num_queries(3):
        rows = check(api.get("/api/v1/score-requests"))["results"]
    assert len(rows) == 4 and "queries" not in rows[0]
    detail = check(api.get(f"/api/v1/score-requests/{rows[0]['id']}"))
    assert (detail["queries"], detail["documents"], detail["results"][0]["score"]) == (["q"], ["d"], 0.5)
    assert [
        row["status_code"] for row in api.get("/api/v1/score-requests", {"status_code": 201}).json()["results"]
    ] == [201]
