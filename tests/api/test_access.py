"""Who may do what: without a token, without the scope, and from another team."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from accounts.scopes import ALL_SCOPES
from scoring.models import Comparison, Job, Pool, ScoreRequest, ScoringModel, SetEncoding, Webhook, Worker
from scoring.services.webhook_deliveries import webhook_test
from tests.api.conftest import JUDGEMENTS, RUN, Upload
from tests.api.schema import operations

ROUTES = [(method, path) for method, path, _ in operations()]
WRITES = {"post", "put", "patch", "delete"}


def scope_of(method: str, path: str) -> str:
    if path.startswith(("/api/v1/models", "/api/v1/model-aliases")):
        return "models:write" if method in WRITES else "models:read"
    if path.startswith("/api/v1/workers"):
        return "admin" if method in WRITES else "models:read"
    if path.startswith(("/api/v1/tokens", "/api/v1/teams", "/api/v1/audit-events")):
        return "admin"
    of_jobs = (
        "/api/v1/document-sets", "/api/v1/query-sets", "/api/v1/judgements", "/api/v1/runs", "/api/v1/jobs",
        "/api/v1/webhook", "/api/v1/exports", "/api/v1/comparisons", "/api/v1/encodings", "/api/v1/pools",
        "/api/v1/evaluations", "/api/v1/threshold-advice",
    )  # fmt: skip
    return "jobs" if path.startswith(of_jobs) else "score"


def address(path: str) -> str:
    return (
        path.replace("/teams/{id}", "/teams/987654")
        .replace("{username}", "nobody")
        .replace("{id}", str(uuid.uuid4()))
        .replace("{name}", "nobody")
        .replace("{public_id}", "nobody")
        .replace("{file_id}", "x")
        .replace("{batch_id}", "x")
    )


def send(client: APIClient, method: str, path: str) -> Any:
    return getattr(client, method)(address(path))


@pytest.mark.django_db
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_nobody_gets_in_without_a_token(method: str, path: str) -> None:
    response = send(APIClient(), method, path)
    assert response.status_code == 401
    assert response.json()["error"]["type"] == "authentication_error"
    assert response["WWW-Authenticate"] == 'Bearer realm="assay"'


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_token_without_the_scope_is_refused(method: str, path: str, api_with: Callable[..., APIClient]) -> None:
    scope = scope_of(method, path)
    response = send(api_with(*(ALL_SCOPES - {scope})), method, path)
    assert response.status_code == 403
    assert f"'{scope}'" in response.json()["error"]["message"]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_the_one_scope_is_enough(method: str, path: str, api_with: Callable[..., APIClient]) -> None:
    assert send(api_with(scope_of(method, path)), method, path).status_code not in (401, 403, 500)


def test_an_unknown_token_is_refused(db: None) -> None:
    response = APIClient(headers={"Authorization": "Bearer assay_nonsense"}).get("/v1/models")
    assert response.status_code == 401


def test_another_teams_rows_do_not_exist(ended: Job, upload: Upload, api: APIClient, stranger: APIClient) -> None:
    """Every address that names a row, by every method it has: 404 for the other team, not 404 for its own."""
    team = ended.team
    item = {"index": 0, "score": 1.0, "raw_score": 1.0, "status": "ok"}
    request = ScoreRequest.objects.create(
        team=team, endpoint="/score", model_name="late", status_code=200, results=[item]
    )
    webhook = Webhook.objects.create(team=team, url="https://hooks.example.org/", pepper_id=1)
    comparison = Comparison.objects.create(team=team, name="One")
    pool = Pool.objects.create(team=team, name="One", query_set=ended.query_set, document_set=ended.document_set)
    encoding = SetEncoding.objects.create(team=team, document_set=ended.document_set, model=ended.last_stage.scorer)
    judgements = upload("judgements", JUDGEMENTS)["id"]
    measured = {"job": ended.pk, "judgement_set": judgements}
    evaluation = api.post("/api/v1/evaluations", measured, format="json").json()["id"]
    rows = {
        "/api/v1/webhooks": webhook.pk,
        "/api/v1/webhook-deliveries": webhook_test(webhook=webhook).pk,
        "/api/v1/document-sets": ended.document_set_id,
        "/api/v1/query-sets": ended.query_set_id,
        "/api/v1/judgements": judgements,
        "/api/v1/runs": upload("runs", RUN)["id"],
        "/api/v1/jobs": ended.pk,
        "/api/v1/comparisons": comparison.pk,
        "/api/v1/pools": pool.pk,
        "/api/v1/encodings": encoding.pk,
        "/api/v1/evaluations": evaluation,
        "/api/v1/score-requests": request.pk,
    }
    tried = 0
    for method, path in ROUTES:
        row = next((row for prefix, row in rows.items() if path.startswith(f"{prefix}/{{id}}")), None)
        if row is None:
            continue
        own, query = path.replace("{id}", str(row)), {"format": "csv"} if path.endswith("export") else None
        if path.startswith(("/api/v1/comparisons", "/api/v1/evaluations")) and path.endswith("export"):
            query = {"format": "wide"}
        if path.endswith("evaluation"):
            query = {"judgement_set": rows["/api/v1/judgements"]}
        if path.endswith("thresholds"):
            query = {"judgement_set": rows["/api/v1/judgements"], "relevant_from": "2"}
        if path.endswith("rank"):
            query = {"query": "kettles"}
        if path.startswith("/api/v1/jobs") and path.endswith("explanation"):
            query = {"query": "q1", "document": "d7"}
        foreign = getattr(stranger, method)(own, query)
        assert foreign.status_code == 404, (method, path, foreign.content)
        assert foreign.json()["error"]["code"] == "not_found"
        if method != "delete":
            asks_a_worker = path.endswith(("rank", "jobs/{id}/explanation"))
            needs_body = path.startswith("/api/v1/pools") and method in WRITES
            # No worker is there; what a body lacks, or the token a person, is said of a row that was found.
            allowed = (503,) if asks_a_worker else (200, 403, 409, 422) if needs_body else (200, 201, 409)
            assert getattr(api, method)(own, query).status_code in allowed, (method, path)
        tried += 1
    assert tried >= 19
    for prefix, row in rows.items():
        listed = stranger.get(prefix).json()["results"]
        assert listed == [] and str(row) not in str(listed)


def test_a_job_cannot_be_made_of_another_teams_sets(ended: Job, stranger: APIClient, model: ScoringModel) -> None:
    body = {"model": "late", "document_set": ended.document_set_id, "query_set": ended.query_set_id}
    error = stranger.post("/api/v1/jobs", body).json()["error"]
    assert (error["code"], error["param"]) == ("not_found", "document_set")


def test_judgements_of_another_team_are_not_found(
    ended: Job, api: APIClient, stranger: APIClient, upload: Upload
) -> None:
    foreign = upload("judgements", JUDGEMENTS, client=stranger)
    response = api.get(f"/api/v1/jobs/{ended.pk}/evaluation", {"judgement_set": foreign["id"]})
    assert response.status_code == 404 and response.json()["error"]["param"] == "judgement_set"


def test_the_same_file_of_another_team_is_no_duplicate(api: APIClient, stranger: APIClient, upload: Upload) -> None:
    assert upload("judgements", JUDGEMENTS)["id"] != upload("judgements", JUDGEMENTS, client=stranger)["id"]


def test_workers_and_models_belong_to_no_team(worker: Worker, model: ScoringModel, stranger: APIClient) -> None:
    assert stranger.get(f"/api/v1/workers/{worker.pk}").status_code == 200
    assert stranger.get("/api/v1/models/late").status_code == 200


def test_a_browser_session_needs_the_csrf_token(analyst: User) -> None:
    browser = APIClient(enforce_csrf_checks=True)
    browser.force_login(analyst)
    assert browser.get("/api/v1/jobs").status_code == 200
    refused = browser.post("/api/v1/jobs", {})
    assert refused.status_code == 403 and "CSRF" in refused.json()["error"]["message"]
    assert browser.post("/api/v1/models", {}).status_code == 403


def test_an_analyst_may_not_change_models(analyst: User, model: ScoringModel) -> None:
    browser = APIClient()
    browser.force_login(analyst)
    assert browser.get("/api/v1/models/late").status_code == 200
    assert browser.patch("/api/v1/models/late", {"gpu_maxsim": False}).status_code == 403
