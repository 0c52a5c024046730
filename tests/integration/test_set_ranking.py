"""Ranking a stored set at once, over the running platform."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pytest

from tests.integration.rig import wait_for
from tests.integration.running import Rows, checked, finished, registered, submitted_texts, text
from tests.stack import Stack

pytestmark = pytest.mark.stack

# More than are scored from their texts; few of them differ, so that they are soon encoded.
TEXTS = [text(n, 6) for n in range(1100)]
TEXTS[7] = ""
QUERY = "honey bees nectar"


@pytest.fixture(scope="module")
def model(stack: Stack) -> str:
    return registered(stack.client, "late-ranked")


@pytest.fixture(scope="module")
def job(stack: Stack, model: str) -> dict[str, Any]:
    return finished(
        stack.client, submitted_texts(stack.client, model, documents=TEXTS, queries=[QUERY, "a bow of a violin"])
    )


@pytest.fixture(scope="module")
def document_set(job: dict[str, Any]) -> str:
    return str(job["document_set"]["id"])


def rank(client: httpx.Client, set_id: str, **fields: Any) -> httpx.Response:
    return client.post(f"/api/v1/document-sets/{set_id}/rank", json={"query": QUERY, "model": "late-ranked", **fields})


@pytest.fixture(scope="module")
def ranked(stack: Stack, document_set: str) -> list[dict[str, Any]]:
    """All of the set, once its encodings are ready."""
    refusals = []

    def answered() -> bool:
        answer = rank(stack.client, document_set)
        if answer.status_code == 503:
            refusals.append(answer)
        return answer.status_code != 503

    wait_for(answered, seconds=120, what="the encodings of the set")
    for refusal in refusals:
        assert refusal.json()["error"]["code"] == "set_not_encoded" and int(refusal.headers["Retry-After"]) > 0
    results: list[dict[str, Any]] = checked(rank(stack.client, document_set))["results"]
    return results


def test_a_set_is_ranked_to_the_bit_as_a_job_ranks_it(
    stack: Stack, job: dict[str, Any], ranked: list[dict[str, Any]]
) -> None:
    rows = Rows(stack.database_url)
    expected = rows.scores(job)[0]
    rows.close()
    found = np.full(len(TEXTS), np.nan, np.float32)
    for result in ranked:
        found[result["index"]] = np.nan if result["raw_score"] is None else result["raw_score"]
    np.testing.assert_array_equal(found, expected)
    assert [result["id"] for result in ranked] == [str(result["index"]) for result in ranked]
    order = sorted(range(len(TEXTS)), key=lambda n: (np.isnan(expected[n]), -np.nan_to_num(expected[n]), n))
    assert [result["index"] for result in ranked] == order
    assert (ranked[-1]["index"], ranked[-1]["status"], ranked[-1]["score"]) == (7, "empty", None)


def test_the_best_of_all_and_of_candidates(stack: Stack, document_set: str, ranked: list[dict[str, Any]]) -> None:
    best = checked(rank(stack.client, document_set, top_n=3, return_documents=True))
    assert [result.pop("document") for result in best["results"]] == [
        {"text": TEXTS[result["index"]]} for result in ranked[:3]
    ]
    assert best["results"] == ranked[:3]
    assert best["document_set"]["id"] == document_set and best["assay"]["scale"] == "maxsim"
    assert best["assay"]["cached_documents"] == len(set(TEXTS) - {""})

    named = checked(rank(stack.client, document_set, candidates={"ids": ["900", "7", "3", "900"]}))["results"]
    assert named == [result for result in ranked if result["index"] in (3, 7, 900)]

    found = checked(rank(stack.client, document_set, candidates={"bm25": 5}))["results"]
    chosen = {result["index"] for result in found}
    assert len(found) == 5 and all(set(QUERY.split()) & set(TEXTS[index].split()) for index in chosen)
    assert found == [result for result in ranked if result["index"] in chosen]
    assert checked(rank(stack.client, document_set, query="zyzzyva", candidates={"bm25": 5}))["results"] == []
    assert {result["status"] for result in checked(rank(stack.client, document_set, query=" "))["results"]} == {"empty"}


def test_a_request_is_kept_with_the_documents_that_it_scored(stack: Stack, document_set: str, ranked: Any) -> None:
    answer = checked(rank(stack.client, document_set, top_n=2))
    kept = checked(stack.client.get(f"/api/v1/score-requests/{answer['id']}"))
    assert (kept["endpoint"], kept["document_count"]) == ("/api/v1/document-sets/{id}/rank", len(TEXTS))
    assert kept["report"]["document_set"] == document_set
    assert [row["index"] for row in kept["results"]] == [result["index"] for result in ranked[:2]]
    rows = Rows(stack.database_url)
    assert rows("SELECT scored_count FROM scoring_scorerequest WHERE id = %s", answer["id"]) == [(len(TEXTS) - 1,)]
    rows.close()


def test_what_cannot_be_ranked_is_refused_in_words(stack: Stack, document_set: str, model: str) -> None:
    def refusal(answer: httpx.Response) -> tuple[int, str, str | None]:
        error = answer.json()["error"]
        return answer.status_code, error["code"], error["param"]

    client = stack.client
    assert refusal(rank(client, document_set, candidates={"ids": ["1", "nobody"]})) == (
        422, "unknown_documents", "candidates.ids",
    )  # fmt: skip
    assert refusal(rank(client, document_set, candidates={}))[:2] == (422, "invalid")
    assert refusal(rank(client, document_set, candidates={"ids": ["1"], "bm25": 3}))[0] == 422
    assert refusal(rank(client, document_set, version="another")) == (409, "other_version", "version")
    assert refusal(rank(client, document_set, documents=["a"]))[1] == "unknown_field"
    assert refusal(rank(client, document_set, top_n=0))[0] == 422
    content = "".join(json.dumps({"id": n, "text": f"of no use {n}"}) + "\n" for n in range(3))
    small = checked(client.post("/api/v1/document-sets", files={"file": ("short.jsonl", content.encode())}))["id"]
    assert len(checked(rank(client, small))["results"]) == 3  # few: scored from their texts
    assert client.delete(f"/api/v1/document-sets/{small}/texts").status_code == 202
    assert refusal(rank(client, small))[:2] == (409, "texts_deleted")
    assert client.delete(f"/api/v1/document-sets/{small}").status_code == 204
    assert refusal(rank(client, small))[:2] == (404, "not_found")


def test_new_weights_find_no_old_encodings(stack: Stack, document_set: str, model: str, ranked: Any) -> None:
    """The list goes with the weights; what is made anew scores the same."""
    checked(stack.client.post(f"/api/v1/models/{model}/reload"))

    def made_anew() -> bool:
        return rank(stack.client, document_set).status_code == 503

    wait_for(made_anew, seconds=60, what="the reload")
    wait_for(lambda: rank(stack.client, document_set).status_code == 200, seconds=120, what="the new encodings")
    assert checked(rank(stack.client, document_set))["results"] == ranked
