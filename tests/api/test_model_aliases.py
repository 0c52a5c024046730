"""Aliases of models: made, moved in one step, usable wherever a model is named, refused where they collide."""

from __future__ import annotations

import pytest
from rest_framework.test import APIClient

from accounts.models import Team
from accounts.services import token_create
from audit.models import AuditEvent
from scoring.models import Job, ScoringModel
from scoring.selectors.models import models_kept
from scoring.states import ModelState

PATH = "/api/v1/model-aliases/production"


@pytest.fixture
def other(model: ScoringModel) -> ScoringModel:
    return ScoringModel.objects.create(
        name="later", kind=model.kind, source="package:x/z", state=ModelState.AVAILABLE, facts=model.facts
    )


def test_an_alias_names_a_model_everywhere_and_is_moved(api: APIClient, ended: Job, other: ScoringModel) -> None:
    assert api.put(PATH, {"model": "late"}).json()["model"] == "late"
    assert api.get("/v1/models/production").json()["id"] == "late"
    assert api.get("/api/v1/models/production").json()["aliases"] == ["production"]
    assert [job["id"] for job in api.get("/api/v1/jobs", {"model": "production"}).json()["results"]] == [str(ended.pk)]
    sets = {"document_set": ended.document_set_id, "query_set": ended.query_set_id}
    assert api.post("/api/v1/jobs", {**sets, "model": "production"}).json()["stages"][0]["model"] == "late"
    moved = api.put(PATH, {"model": "later"}).json()
    assert moved["model"] == "later" and [row["name"] for row in api.get(PATH[:-11]).json()["results"]] == [
        "production"
    ]
    models_kept.clear()  # else for half a second the row read before serves
    assert api.get("/v1/models/production").json()["id"] == "later"
    events = AuditEvent.objects.filter(verb="model.alias_pointed").order_by("id")
    assert [event.detail["to"] for event in events] == ["late", "later"] and events[1].detail["from"] == "late"
    assert api.delete(PATH).status_code == 204 and api.get(PATH).status_code == 404


def test_a_name_that_is_taken_is_refused_both_ways(api: APIClient, model: ScoringModel, other: ScoringModel) -> None:
    refused = api.put("/api/v1/model-aliases/later", {"model": "late"})
    assert refused.status_code == 409 and refused.json()["error"]["code"] == "name_taken"
    api.put(PATH, {"model": "late"})
    for answer in (
        api.patch("/api/v1/models/later", {"name": "production"}),
        api.post("/api/v1/models", {"name": "production", "kind": "sparse", "source": "package:x/y"}),
    ):
        assert answer.status_code == 409 and "alias" in answer.json()["error"]["message"]
    for name, code in (("Production", "name_taken"), ("LATE", "name_taken"), ("new", "invalid_model")):
        answer = api.post("/api/v1/models", {"name": name, "kind": "sparse", "source": "package:x/y"})
        assert answer.json()["error"]["code"] == code
    assert api.patch("/api/v1/models/late", {"name": "Late"}).json()["name"] == "Late"
    assert api.patch("/api/v1/models/Late", {"name": "late"}).status_code == 200
    spaced = api.put("/api/v1/model-aliases/my%20alias", {"model": "late"})
    assert spaced.status_code == 422 and "'my alias' cannot be an alias; give" in spaced.json()["error"]["message"]
    ScoringModel.objects.filter(pk=other.pk).update(state=ModelState.DISABLED)
    assert api.put(PATH, {"model": "later"}).json()["error"]["code"] == "model_not_served"
    assert api.get(PATH).json()["model"] == "late"  # it stayed
    assert api.put(PATH, {"model": "production"}).json()["error"]["code"] == "model_not_found"  # no alias of an alias


def test_a_token_for_some_models_gets_no_other_by_an_alias(
    api: APIClient, team: Team, model: ScoringModel, other: ScoringModel
) -> None:
    api.put(PATH, {"model": "later"})
    scopes = ["score", "models:read", "models:write"]
    _, secret = token_create(team=team, name="narrow", scopes=scopes, allowed_models=["late", "production"])
    narrow = APIClient(headers={"Authorization": f"Bearer {secret}"})
    refused = narrow.get("/v1/models/production")
    assert refused.status_code == 403 and "later" not in refused.json()["error"]["message"]
    assert narrow.get("/api/v1/model-aliases").json()["results"] == []
    assert narrow.put(PATH, {"model": "late"}).status_code == 403  # nor may it take it away
