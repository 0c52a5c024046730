"""Pools over HTTP: made of rankings, judged by a person's token, published as a version."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from accounts.models import Team
from accounts.scopes import ROLE_SCOPES, Role
from accounts.services import principal_of_user, token_create
from scoring.export.sources import export_table
from scoring.models import Job, Judge, JudgementSet, Pool, ScoringModel, VerdictSource
from scoring.services.judging import verdict_write
from tests.api.conftest import JUDGEMENTS, RUN, Upload


@pytest.fixture
def ada(team: Team, analyst: User) -> APIClient:
    """A client whose token is a person's."""
    _, secret = token_create(team=team, name="ada's", scopes=ROLE_SCOPES[Role.ANALYST], created_by=analyst)
    return APIClient(headers={"Authorization": f"Bearer {secret}"})


@pytest.fixture
def made(api: APIClient, ended: Job, upload: Upload) -> Any:
    base = upload("judgements", JUDGEMENTS)["id"]
    answer = api.post("/api/v1/pools", {"stages": [{"job": ended.pk}], "k": 3, "base": base, "name": "Three"})
    assert answer.status_code == 201, answer.content
    return answer


def test_a_pool_is_made_judged_and_published(ada: APIClient, made: Any) -> None:
    pool = made.json()
    path = made["Location"]
    pairs = pool["progress"]["pairs"]
    assert pool["pair_count"] == pairs and 0 < pairs <= 6
    first, second = ada.post(f"{path}/claims", {"count": 2}).json()["pairs"]
    assert set(first) == {"pair", "query_id", "document_id", "query", "narrative", "title", "text"}
    given = ada.post(f"{path}/verdicts", {"pair": first["pair"], "grade": 3})
    assert given.status_code == 200 and given.json()["grade"] == 3
    assert ada.post(f"{path}/verdicts", {"pair": second["pair"], "grade": None}).json()["grade"] is None
    assert ada.post(f"{path}/undo").json() == second
    assert ada.post(f"{path}/later", {"pair": second["pair"]}).json() == {"pair": second["pair"]}
    assert second not in ada.post(f"{path}/claims", {}).json()["pairs"]
    progress = ada.get(path).json()["progress"]
    assert (progress["done"], progress["mine"], progress["left"]) == (1, 1, pairs - 1)
    assert progress["judges"] == [{"name": "analyst", "graded": 1, "cannot": 0}]

    published = ada.post(f"{path}/publish", {})
    assert published.status_code == 201, published.content
    body = published.json()
    assert (body["version"], body["provenance"]["grades"], body["counts"]["kept"]) == (2, 1, 5)
    versions = ada.get("/api/v1/judgements", {"root": body["root"]}).json()["results"]
    assert sorted(one["version"] for one in versions) == [1, 2]
    assert ada.post(f"{path}/publish", {}).json()["error"]["code"] == "nothing_to_publish"


def test_a_decision_counts_above_what_was_judged(ada: APIClient, made: Any) -> None:
    path = made["Location"]
    pair = ada.post(f"{path}/claims", {}).json()["pairs"][0]["pair"]
    ada.post(f"{path}/verdicts", {"pair": pair, "grade": 0})
    decided = ada.post(f"{path}/adjudications", {"pair": pair, "grade": 2})
    assert decided.status_code == 200, decided.content
    assert decided.json() == {"judge": "analyst", "source": "adjudicated", "grade": 2}
    assert ada.post(f"{path}/adjudications", {"pair": pair, "grade": None}).status_code == 204
    again = ada.post(f"{path}/adjudications", {"pair": pair, "grade": None})
    assert (again.status_code, again.json()["error"]["code"]) == (404, "not_adjudicated")
    ada.post(f"{path}/adjudications", {"pair": pair, "grade": 3})
    published = ada.post(f"{path}/publish", {}).json()
    assert published["provenance"]["verdicts"] == {"blind": 1, "adjudicated": 1}
    row = Pool.objects.get(pk=made.json()["id"]).pairs.get(pk=pair)
    graded = JudgementSet.objects.get(pk=published["id"]).judgements
    assert graded.get(query_id=row.query_id, document_id=row.document_id).grade == 3


def test_the_verdicts_of_a_pool_are_a_table(ada: APIClient, analyst: User, stranger: APIClient, made: Any) -> None:
    asked = {"table": "verdicts", "format": "csv", "parameters": {"pool": made.json()["id"]}}
    pair = ada.post(f"{made['Location']}/claims", {}).json()["pairs"][0]
    ada.post(f"{made['Location']}/verdicts", {"pair": pair["pair"], "grade": None})
    answer = ada.post("/api/v1/exports", asked)
    assert (answer.status_code, answer.json()["rows_total"]) == (201, 1)
    (row,) = export_table(
        "verdicts", principal=principal_of_user(analyst), parameters={"pool": made.json()["id"]}
    ).rows()
    told = [row[name] for name in ("query_id", "document_id", "judge", "source", "grade")]
    assert told == [pair["query_id"], pair["document_id"], "analyst", "blind", None]
    assert stranger.post("/api/v1/exports", asked).status_code == 404
    nothing = ada.post("/api/v1/exports", {**asked, "parameters": {}})
    assert (nothing.status_code, nothing.json()["error"]["param"]) == (422, "parameters.pool")


def test_grades_of_models_are_published_knowingly(ada: APIClient, made: Any, model: ScoringModel) -> None:
    path, pool = made["Location"], Pool.objects.get(pk=made.json()["id"])
    every = {"sources": ["blind", "model"]}
    assert ada.post(f"{path}/publish", every).json()["error"]["code"] == "nothing_to_publish"  # no model judged
    judge = Judge.objects.create(pool=pool, model=model, name="late r1")
    for pair in pool.pairs.all():
        verdict_write(pair=pair, judge=judge, grade=1, source=VerdictSource.MODEL)
    refused = ada.post(f"{path}/publish", every)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (409, "models_not_accepted", "accept_models")
    told = ada.get(f"{path}/agreement").json()["models"][0]
    assert f"late r1 and people: {told['sentence']}" in error["message"]
    assert ada.post(f"{path}/publish", {}).json()["error"]["code"] == "nothing_to_publish"  # people's alone
    published = ada.post(f"{path}/publish", {**every, "accept_models": True})
    assert published.status_code == 201 and published.json()["provenance"]["models"] == ["late"]


def test_a_pool_is_closed_opened_and_deleted(ada: APIClient, api: APIClient, made: Any) -> None:
    path = made["Location"]
    assert api.post(f"{path}/claims", {}).json()["error"]["code"] == "no_judge"
    assert ada.patch(path, {"state": "closed"}).json()["state"] == "closed"
    assert ada.post(f"{path}/claims", {}).json()["error"]["code"] == "pool_closed"
    assert ada.patch(path, {"state": "closed"}).json()["error"]["code"] == "pool_closed"
    assert ada.patch(path, {"state": "open"}).json()["state"] == "open"
    assert [one["id"] for one in ada.get("/api/v1/pools", {"state": "open"}).json()["results"]] == [made.json()["id"]]
    assert ada.delete(path).status_code == 204 and ada.get(path).status_code == 404


def test_what_cannot_be_a_pool_is_refused(api: APIClient, ended: Job, upload: Upload, made: Any) -> None:
    own = {"stages": [{"job": str(ended.pk)}]}
    run = upload("runs", RUN)["id"]
    for body, code, param in (
        ({}, "not_poolable", "stages"),
        ({"run_set": run}, "not_poolable", "stages"),
        ({**own, "k": 0}, "invalid", "k"),
        ({**own, "scale": ["a"]}, "invalid", "scale"),
        ({**own, "scale": ["a", "a"]}, "bad_scale", "scale"),
        ({**own, "relevant_from": 4}, "bad_pool", "relevant_from"),
        ({**own, "query_ids": ["none"]}, "no_such_query", "query_ids"),
        ({**own, "rule": "loudest"}, "invalid", "rule"),
    ):
        answer = api.post("/api/v1/pools", body)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (422, param), error
        assert error["code"] == code or code == "invalid", error
    assert api.post(f"{made['Location']}/verdicts", {"pair": 1, "grade": 9}).status_code == 422
    sets = {"query_set": str(ended.query_set_id), "document_set": str(ended.document_set_id)}
    assert api.post("/api/v1/pools", {"run_set": run, **sets}).json()["pair_count"] == 3
