"""Why a score, over HTTP: one pair of every bundled kind on a running worker, and what cannot be explained."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from scoring.models import Job, ScoreRequest, ScoringModel
from tests.api.schema import check
from tests.api.test_scoring import Client, client  # noqa: F401 - a fixture

QUERY, DOCUMENT = "How do I descale a kettle?", "Descale the kettle with citric acid, then rinse it twice."


@pytest.mark.stack
def test_every_kind_says_what_it_can(client: Client) -> None:  # noqa: F811
    def explained(model: str) -> dict[str, Any]:
        body = {"model": model, "query": QUERY, "document": DOCUMENT}
        return check(client.post("/v1/explain", json=body), method="post")

    late = explained("minilm-late")
    assert sum(match["contribution"] for match in late["matches"]) == pytest.approx(late["score"], abs=1e-4)
    assert len(late["similarities"]) == len(late["matches"])
    assert {len(row) for row in late["similarities"]} == {len(late["document_tokens"])}
    assert "kettle" in "".join(late["rows"][0]["texts"]) and late["stored"] is None
    dense = explained("minilm")
    assert dense["parts"] == [{"name": "dense", "weight": 1.0, "score": pytest.approx(dense["score"], abs=1e-6)}]
    assert dense["matches"] == dense["terms"] == dense["labels"] == []
    judged = explained("smollm2-judge")
    assert sum(label["probability"] for label in judged["labels"]) == pytest.approx(1, abs=1e-4)
    assert DOCUMENT in "".join(judged["rows"][0]["texts"])


def test_what_cannot_be_explained_is_refused_with_the_reason(
    ended: Job, api: APIClient, stranger: APIClient, model: ScoringModel
) -> None:
    url = f"/api/v1/jobs/{ended.pk}/explanation"

    def refused(given: dict[str, Any], address: str = url) -> tuple[int, str]:
        response = api.get(address, given)
        return response.status_code, response.json()["error"]["code"]

    assert refused({"query": "q1", "document": "nothing"}) == (404, "no_such_document")
    assert refused({"query": "nothing", "document": "d7"}) == (404, "no_such_query")
    assert refused({"query": "q1", "document": "d7", "stage": 5}) == (404, "no_such_stage")
    assert refused({"query": "q1", "document": "d7"})[0] == 503  # no worker is there
    row = ScoreRequest.objects.create(
        team=ended.team, endpoint="/score", model=model, model_name="late", status_code=200, document_count=1,
        results=[{"index": 0, "score": 1.0, "raw_score": 1.0, "status": "ok"}],
    )  # fmt: skip
    item = f"/api/v1/score-requests/{row.pk}/explanation"
    assert refused({}, item) == (409, "texts_not_kept")
    assert refused({"index": 1}, item) == (404, "no_such_item")
    for foreign in (url, item):
        assert stranger.get(foreign, {"query": "q1", "document": "d7"}).status_code == 404
