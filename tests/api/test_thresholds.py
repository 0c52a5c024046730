"""Cut-offs over HTTP: measured on judged pairs, kept as advice, shown beside the model, never applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from audit.models import AuditEvent
from scoring.models import Job, ScoringModel, ThresholdAdvice
from scoring.thresholds import wilson
from tests.api.conftest import JUDGEMENTS, SubmitJob, Upload

ADVICE = "/api/v1/threshold-advice"
Advise = Callable[..., Any]


@pytest.fixture
def judgements(upload: Upload) -> str:
    return str(upload("judgements", JUDGEMENTS)["id"])


@pytest.fixture
def advise(api: APIClient, ended: Job, judgements: str) -> Advise:
    def run(**fields: Any) -> Any:
        body = {"job": str(ended.pk), "judgement_set": judgements, "relevant_from": 2, "score": 2.5, **fields}
        return api.post(ADVICE, body)

    return run


def test_cut_offs_of_a_job_by_hand(api: APIClient, ended: Job, judgements: str) -> None:
    """Judged are d7 (2.5, grade 2) and d3 (0, grade 1) of one query, d65 (6, grade 2) and d1 (0, grade 1) of one."""
    path = f"/api/v1/jobs/{ended.pk}/thresholds"
    found = api.get(path, {"judgement_set": judgements, "relevant_from": "2"})
    assert found.status_code == 200, found.content
    body = found.json()
    assert (body["pairs"], body["relevant"], body["queries"], body["base_rate"]) == (4, 2, 2, 0.5)
    assert [each["score"] for each in body["cut_offs"]] == [0, 2.5, 6]
    lowest, middle, highest = body["cut_offs"]
    assert (lowest["precision"]["value"], lowest["recall"]["value"]) == (0.5, 1)
    assert (middle["precision"]["value"], middle["recall"]["value"]) == (1, 1) and body["best"] == middle
    assert (highest["precision"]["value"], highest["recall"]["value"]) == (1, 0.5)
    assert highest["recall"]["low"] == pytest.approx(wilson(1, 2)[0])
    said = " ".join(body["remarks"])
    assert "Only the 4 judged pairs of 138 scored ones" in said and "A maxsim is a sum" in said and "2 queries" in said
    one = api.get(path, {"judgement_set": judgements, "relevant_from": "2", "score": "7"}).json()["cut_offs"]
    assert [(each["precision"], each["recall"]["value"]) for each in one] == [(None, 0)]


def test_what_tells_nothing_is_refused(
    api: APIClient, ended: Job, judgements: str, submit: SubmitJob, upload: Upload
) -> None:
    def error(job: Any, **query: str) -> dict[str, Any]:
        answer = api.get(f"/api/v1/jobs/{job}/thresholds", {"judgement_set": judgements, **query})
        return {"status": answer.status_code, **answer.json()["error"]}

    assert error(ended.pk)["code"] == "nothing_to_separate" and "every one" in error(ended.pk)["message"]
    assert "none has" in error(ended.pk, relevant_from="3")["message"]
    foreign = upload("judgements", b"zz 0 d1 1\n")["id"]
    assert error(ended.pk, judgement_set=foreign)["code"] == "judgements_do_not_match"
    assert error(submit()["id"])["code"] == "job_not_ended"


def test_advice_is_kept_with_its_evidence_and_shown_beside_the_model(
    api: APIClient, advise: Advise, stranger: APIClient, ended: Job
) -> None:
    assert api.get("/v1/models/late").json()["threshold_advice"] is None
    made = advise(note="for the help desk")
    assert made.status_code == 201, made.content
    advice = made.json()
    assert advice["evidence"]["precision"]["value"] == 1 and advice["evidence"]["pairs"] == 4
    assert advice["evidence"]["judgement_set"] == "judgements" and advice["outdated"] == []
    assert (advice["job"], advice["note"]) == (str(ended.pk), "for the help desk")
    assert api.get(made["Location"]).json() == advice
    for path in ("/v1/models/late", "/api/v1/models/late"):
        assert api.get(path).json()["threshold_advice"] == advice
        assert stranger.get(path).json()["threshold_advice"] is None  # another team's
    assert api.get("/v1/models").json()["data"][0]["threshold_advice"] == advice
    assert api.get(ADVICE, {"model": "late"}).json()["results"] == [advice]
    assert stranger.get(made["Location"]).status_code == 404 and stranger.delete(made["Location"]).status_code == 404
    event = AuditEvent.objects.get(verb="threshold.advised")
    assert event.target_id == str(ended.last_stage.model_id) and event.detail["score"] == 2.5


def test_the_newest_is_in_force_until_it_is_withdrawn(api: APIClient, advise: Advise) -> None:
    first, second = advise().json(), advise(score=6.0).json()
    assert api.get("/v1/models/late").json()["threshold_advice"] == second
    assert api.delete(f"{ADVICE}/{second['id']}").status_code == 204
    assert api.get("/v1/models/late").json()["threshold_advice"] == first
    assert AuditEvent.objects.filter(verb="threshold.withdrawn", detail__score=6.0).count() == 1


def test_advice_outlives_its_job_and_says_what_changed(api: APIClient, advise: Advise, ended: Job) -> None:
    advice = advise().json()
    ended.delete()
    ScoringModel.objects.update(revision="r2")
    now = api.get(f"{ADVICE}/{advice['id']}").json()
    assert now["job"] is None and now["evidence"] == advice["evidence"] and now["outdated"] == ["revision"]


def test_advice_on_scores_that_the_model_gives_no_longer_is_refused(advise: Advise) -> None:
    ScoringModel.objects.update(revision="r2")
    error = advise().json()["error"]
    assert error["code"] == "settings_changed" and "another revision" in error["message"]
    assert not ThresholdAdvice.objects.exists()


def test_advice_changes_no_answer(api: APIClient, advise: Advise, ended: Job) -> None:
    before = api.get(f"/api/v1/jobs/{ended.pk}/results").json()
    advise(score=6.0)
    assert api.get(f"/api/v1/jobs/{ended.pk}/results").json() == before
