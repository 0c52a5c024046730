"""Saved evaluations over HTTP: made once, listed, read by query, stale when something newer exists."""

from __future__ import annotations

import math
from typing import Any

import pytest
from rest_framework.test import APIClient

from scoring.export.reports import REPORTS
from scoring.models import Evaluation, Job, JudgementSet, Query, Worker
from scoring.services.finalize import jobs_advance
from scoring.states import JobState
from tests.api.conftest import JUDGEMENTS, SubmitJob, Upload, run_chunks

PATH = "/api/v1/evaluations"


@pytest.fixture
def judgements(upload: Upload) -> str:
    return str(upload("judgements", JUDGEMENTS)["id"])


def made(api: APIClient, job: Job, judgements: str, **fields: Any) -> Any:
    return api.post(PATH, {"job": job.pk, "judgement_set": judgements, **fields}, format="json")


def test_an_evaluation_is_made_once_and_keeps_its_numbers(api: APIClient, ended: Job, judgements: str) -> None:
    first = made(api, ended, judgements)
    assert first.status_code == 201, first.content
    body = first.json()
    assert [figure["measure"] for figure in body["measures"]] == ["nDCG@10", "RR@10", "R@100", "Judged@10"]
    assert (body["n"], body["queries"], body["incomplete"], body["stale"]) == (2, 2, False, None)
    computed = api.get(f"/api/v1/jobs/{ended.pk}/evaluation", {"judgement_set": judgements}).json()
    assert {figure["measure"]: figure["mean"] for figure in body["measures"]} == computed["means"]
    again = made(api, ended, judgements)
    assert again.status_code == 200 and again.json() == body == api.get(first["Location"]).json()
    assert made(api, ended, judgements, measures=["AP"]).status_code == 201
    assert [row["id"] for row in api.get(PATH, {"measure": "nDCG@10", "job": str(ended.pk)}).json()["results"]] == [
        body["id"]
    ]
    assert api.get(PATH, {"incomplete": "true"}).json()["results"] == []
    assert api.delete(first["Location"]).status_code == 204 and api.get(first["Location"]).status_code == 404
    assert Evaluation.objects.count() == 1 and Job.objects.filter(pk=ended.pk).exists()


def test_what_is_left_out_is_listed(api: APIClient, ended: Job, upload: Upload) -> None:
    one = upload("judgements", b"q2 0 d1 0\nq2 0 d65 0\n")["id"]
    body = made(api, ended, one).json()
    assert (body["n"], body["unjudged"], body["without_relevant"]) == (1, 1, 1)
    assert body["lists"] == {"unjudged": ["q1"], "without_results": [], "without_relevant": ["q2"]}
    refused = made(api, ended, one, only_relevant=True).json()["error"]
    assert refused["code"] == "judgements_do_not_match" and "relevant documents of none" in refused["message"]


def test_the_values_of_queries_are_paged_and_filtered(api: APIClient, ended: Job, judgements: str) -> None:
    Query.objects.filter(query_set=ended.query_set, external_id="q2").update(metadata={"tags": "late; long"})
    path = f"{PATH}/{made(api, ended, judgements, measures=['RR@10', 'Judged@5']).json()['id']}/queries"
    page = api.get(path, {"page_size": 1}).json()
    assert [row["query_id"] for row in page["results"]] == ["q1"] and page["next"]
    (row,) = api.get(path, {"tag": "long"}).json()["results"]
    assert row["query_id"] == "q2" and row["values"].keys() == {"RR@10", "Judged@5"} and row["relevant"] == 2
    assert row["judged"].keys() == {"5", "10", "20"}
    assert api.get(path, {"list": "unjudged"}).json()["results"] == []
    assert api.get(path, {"list": "all"}).status_code == 422


def test_a_newer_version_of_the_judgements_makes_it_stale(api: APIClient, ended: Job, judgements: str) -> None:
    body = made(api, ended, judgements).json()
    old = JudgementSet.objects.get(pk=judgements)
    newer = JudgementSet.objects.create(
        team=old.team, name=old.name, root=old.root, version=2, state=old.state, file_format="trec"
    )
    stale = api.get(f"{PATH}/{body['id']}").json()
    assert stale["stale"] == {"reason": "Computed with version 1; version 2 exists.", "newer": str(newer.pk)}
    assert stale["measures"] == body["measures"]


def test_an_evaluation_is_taken_away_with_its_provenance(api: APIClient, ended: Job, judgements: str) -> None:
    body = made(api, ended, judgements, measures=["RR@10", "Judged@5"]).json()
    path = f"{PATH}/{body['id']}/export"
    for name in REPORTS:
        text = api.get(path, {"format": name}).getvalue().decode()
        for told in (body["id"], str(ended.pk), judgements, "version 1", "n = 2 of 2", "RR@10"):
            assert told in text, (name, told)
    rows = api.get(path, {"format": "wide"}).getvalue().decode().splitlines()
    assert rows[-3] == '"query_id","A RR@10","A Judged@5"' and rows[-2].startswith('"q1",')
    values = api.get(f"{PATH}/{body['id']}/queries").json()["results"][0]["values"]
    assert [float(cell) for cell in rows[-2].split(",")[1:]] == [values["RR@10"], values["Judged@5"]]
    assert "Superscript" not in api.get(path, {"format": "latex"}).getvalue().decode()  # nothing was tested


def test_the_level_of_relevance_is_that_of_the_judgements(api: APIClient, ended: Job, judgements: str) -> None:
    JudgementSet.objects.filter(pk=judgements).update(relevant_from=2)
    names = ["RR@10", "P(rel=1)@5", "nDCG(gains='exponential')@10"]
    body = made(api, ended, judgements, measures=names).json()
    assert [figure["measure"] for figure in body["measures"]] == ["RR(rel=2)@10", "P@5", "nDCG(gains={2:3})@10"]
    assert all(math.isfinite(figure["mean"]) for figure in body["measures"])


@pytest.mark.parametrize("measure", ["Bpref", "nDCG(judged_only=True)@10"])
def test_condensed_lists_need_judged_nonrelevant_documents(
    measure: str, api: APIClient, ended: Job, judgements: str, upload: Upload
) -> None:
    error = made(api, ended, judgements, measures=["AP", measure]).json()["error"]
    assert error["code"] == "too_few_judged" and error["param"] == "measures" and measure in error["message"]
    enough = b"".join(b"q%d 0 d%d %d\n" % (query, one, one == 7) for query in (1, 2) for one in range(5, 12))
    body = made(api, ended, upload("judgements", enough)["id"], measures=[measure]).json()
    assert [figure["measure"] for figure in body["measures"]] == [measure]


def test_what_cannot_be_measured_is_refused(
    api: APIClient, ended: Job, judgements: str, submit: SubmitJob, upload: Upload
) -> None:
    waiting = Job.objects.get(pk=submit()["id"])
    for answer, status, code in (
        (made(api, waiting, judgements), 409, "job_not_ended"),
        (made(api, ended, judgements, stage=3), 404, "no_such_stage"),
        (made(api, ended, judgements, measures=["ERR@20"]), 422, "unknown_measure"),
        (made(api, ended, judgements, measures=[]), 422, "min_length"),
        (made(api, ended, upload("judgements", b"zz 0 d1 1\n")["id"]), 422, "judgements_do_not_match"),
    ):
        assert answer.status_code == status and answer.json()["error"]["code"] == code, answer.content


def test_a_job_with_failures_is_measured_as_incomplete(api: APIClient, ended: Job, judgements: str) -> None:
    Job.objects.filter(pk=ended.pk).update(state=JobState.COMPLETED_WITH_ERRORS)
    body = made(api, ended, judgements).json()
    assert body["incomplete"] and body["measures"][0]["mean"] is not None
    assert [row["id"] for row in api.get(PATH, {"incomplete": "true"}).json()["results"]] == [body["id"]]
    query = {"query_set": str(ended.query_set_id), "judgement_set": judgements}
    assert api.get(f"{PATH}/leaderboard", query).json()["rows"] == []


def test_the_leaderboard_is_over_the_same_queries(
    api: APIClient, ended: Job, judgements: str, submit: SubmitJob, worker: Worker
) -> None:
    short = submit(top_k=1)["id"]
    run_chunks(worker)
    assert jobs_advance() == 1
    first, second = made(api, ended, judgements).json(), made(api, Job.objects.get(pk=short), judgements).json()
    query = {"query_set": str(ended.query_set_id), "judgement_set": judgements, "measure": "R@100"}
    board = api.get(f"{PATH}/leaderboard", query).json()
    assert [row["evaluation"] for row in board["rows"]] == [first["id"], second["id"]]
    assert (board["n"], board["baseline"], board["correction"]) == (2, first["id"], "holm")
    baseline, other = board["rows"]
    assert baseline["delta"] is None and baseline["verdict"] is None
    assert other["delta"] == pytest.approx(other["mean"] - baseline["mean"]) and other["verdict"] == "few queries"
    refused = api.get(f"{PATH}/leaderboard", {**query, "measure": "AP"})
    assert refused.status_code == 422 and "there are Judged@10, R@100, RR@10, nDCG@10" in refused.content.decode()
