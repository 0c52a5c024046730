"""A model judges a pool, and a cut-off per query token, with workers and a reconciler that do it in earnest."""

from __future__ import annotations

from typing import Any

import pytest

from scoring.services.bundled import BUNDLED
from tests.integration.rig import wait_for
from tests.integration.running import LOOK_SECONDS, checked, finished, registered, submitted_texts
from tests.stack import Stack

pytestmark = pytest.mark.stack

DOCUMENTS = ["bees make honey of nectar", "the engine has a piston and a valve", "dough rises with yeast"]
QUERIES = ["honey", "how does an engine with a piston and a valve work"]
JUDGEMENTS = "0 0 0 1\n0 0 1 0\n0 0 2 0\n1 0 0 0\n1 0 1 1\n1 0 2 0\n"


@pytest.fixture(scope="module")
def job(stack: Stack) -> dict[str, Any]:
    model = registered(stack.client, "late-judged")
    return finished(stack.client, submitted_texts(stack.client, model, documents=DOCUMENTS, queries=QUERIES))


def test_a_cut_off_per_query_token_divides_by_what_maxsim_sums_over(stack: Stack, job: dict[str, Any]) -> None:
    file = {"file": ("grades.txt", JUDGEMENTS.encode())}
    judgements = checked(stack.client.post("/api/v1/judgements", files=file, data={"name": "Grades"}))["id"]
    path = f"/api/v1/jobs/{job['id']}/thresholds"
    query = {"judgement_set": judgements, "per_query_token": "true"}
    measured = checked(stack.client.get(path, params=query))
    expected = []
    for place in range(len(QUERIES)):
        for document in range(len(DOCUMENTS)):
            pair = {"query": str(place), "document": str(document)}
            why = checked(stack.client.get(f"/api/v1/jobs/{job['id']}/explanation", params=pair))
            expected.append(why["stored"]["raw_score"] / len(why["matches"]))
    assert [each["score"] for each in measured["cut_offs"]] == pytest.approx(sorted(expected), rel=1e-5)
    assert not any("not comparable" in remark for remark in measured["remarks"])


def test_a_generative_model_judges_a_pool(stack: Stack, job: dict[str, Any]) -> None:
    judge = next(dict(fields) for fields in BUNDLED if fields["kind"] == "generative")
    registered(stack.client, judge.pop("name"), **{"dtype": "auto", **judge, "is_default": False})
    pool = checked(stack.client.post("/api/v1/pools", json={"stages": [{"job": job["id"]}], "k": 3}))
    path = f"/api/v1/pools/{pool['id']}/model-judges"
    asked = checked(stack.client.post(path, json={"model": "smollm2-judge", "cut_offs": [0.25, 0.5, 0.75]}))
    assert asked["revision"] and asked["stored_at"] is None

    def stored() -> bool:
        return checked_list(stack, path)[0]["stored_at"] is not None

    wait_for(stored, seconds=300, what="the model's verdicts", every=LOOK_SECONDS)
    assert checked_list(stack, path)[0]["verdicts"] == len(QUERIES) * len(DOCUMENTS)
    told = checked(stack.client.get(f"/api/v1/pools/{pool['id']}/agreement"))
    assert told["people"]["doubly_judged"] == 0 and told["models"][0]["second"] is None
    now = checked(stack.client.get(f"/api/v1/pools/{pool['id']}"))
    assert now["publication"]["changed"] == 0  # a model's verdicts alone are nothing to publish


def checked_list(stack: Stack, path: str) -> list[dict[str, Any]]:
    response = stack.client.get(path)
    assert response.is_success, response.text
    answer: list[dict[str, Any]] = response.json()
    return answer
