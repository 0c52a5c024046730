"""Document sets encoded ahead, by the API: what it would take, asking, stopping, deleting."""

from __future__ import annotations

import pytest
from rest_framework.test import APIClient

from audit.models import AuditEvent
from scoring.models import Job, ScoringModel, SetEncoding
from scoring.states import EncodingState


@pytest.fixture
def ask(ended: Job) -> dict[str, str]:
    return {"document_set": str(ended.document_set_id), "model": "late"}


def test_an_encoding_is_asked_for_once_stopped_and_deleted(api: APIClient, ask: dict[str, str]) -> None:
    (made,) = api.post("/api/v1/encodings", ask).json()["encodings"]
    assert (made["state"], made["model"], made["worker"]) == ("waiting", "late", None)  # no worker holds the model
    again = api.post("/api/v1/encodings", ask)
    assert again.status_code == 409 and again.json()["error"]["code"] == "already_encoded"
    place = f"/api/v1/encodings/{made['id']}"
    assert api.delete(place).json()["error"]["code"] == "still_running"
    assert api.post(f"{place}/cancel").json()["state"] == "cancelled"
    assert api.post(f"{place}/cancel").json()["error"]["code"] == "not_running"
    assert [row["id"] for row in api.get("/api/v1/encodings", {"state": "cancelled"}).json()["results"]] == [made["id"]]
    assert api.delete(place).status_code == 202 and not SetEncoding.objects.exists()  # nothing was encoded
    verbs = AuditEvent.objects.filter(verb__startswith="document_set.encoding").values_list("verb", flat=True)
    assert [verb.rpartition("_")[2] for verb in verbs.order_by("id")] == ["requested", "cancelled", "deleted"]


def test_what_a_worker_keeps_is_deleted_by_it(api: APIClient, ask: dict[str, str], model: ScoringModel) -> None:
    (made,) = api.post("/api/v1/encodings", ask).json()["encodings"]
    SetEncoding.objects.update(state=EncodingState.DONE, key={"identity": "x"}, size=700, tokens=70, documents_done=7)
    estimate = api.get("/api/v1/encodings/estimate", ask).json()
    assert estimate["size"] == round(10 * estimate["tokens"]) and estimate["too_large"] is False
    ScoringModel.objects.update(document_cache_bytes=estimate["size"] - 1)
    bounded = api.get("/api/v1/encodings/estimate", ask).json()
    assert bounded["too_large"] is True and bounded["kept_bytes"] == estimate["size"] - 1
    assert api.get(f"/api/v1/encodings/{made['id']}").json()["outdated"] is False
    ScoringModel.objects.filter(pk=model.pk).update(revision="another")
    assert api.get(f"/api/v1/encodings/{made['id']}").json()["outdated"] is True
    assert api.get("/api/v1/encodings/estimate", ask).json()["size"] is None  # of these weights nothing was measured
    assert api.delete(f"/api/v1/encodings/{made['id']}").status_code == 202
    assert SetEncoding.objects.get().state == EncodingState.DELETING


def test_what_cannot_encode_ahead_is_refused(api: APIClient, ask: dict[str, str]) -> None:
    ScoringModel.objects.create(name="cross", kind="cross-encoder", source="package:x/y", state="available")
    for method, path in (("post", "/api/v1/encodings"), ("get", "/api/v1/encodings/estimate")):
        refused = getattr(api, method)(path, {**ask, "model": "cross"})
        assert refused.status_code == 422 and refused.json()["error"]["code"] == "wrong_model_kind"
        assert getattr(api, method)(path, {**ask, "model": "nope"}).json()["error"]["code"] == "model_not_found"
