"""Comparisons over HTTP: what they tell, what is refused, what may be changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from scoring.export.reports import REPORTS
from scoring.models import ComparisonMeasures, Job, JudgementSet, Worker
from scoring.services.finalize import jobs_advance
from tests.api.conftest import JUDGEMENTS, SubmitJob, Upload, run_chunks

Compare = Callable[..., Any]


@pytest.fixture
def second(ended: Job, submit: SubmitJob, worker: Worker) -> Job:
    """The same, of which five documents a query are kept."""
    job = submit(name="Short", top_k=5)
    run_chunks(worker)
    assert jobs_advance() == 1
    return Job.objects.get(pk=job["id"])


@pytest.fixture
def compare(api: APIClient, ended: Job, second: Job) -> Compare:
    def run(**fields: Any) -> Any:
        return api.post("/api/v1/comparisons", {"stages": [{"job": ended.pk}, {"job": second.pk}], **fields})

    return run


def test_the_same_ranking_cut_short_is_the_same(compare: Compare, api: APIClient, upload: Upload) -> None:
    judgements = upload("judgements", JUDGEMENTS)["id"]
    made = compare(name="Depths", judgement_set=judgements)
    assert made.status_code == 201, made.content
    body = made.json()
    assert body["depth"] == 5
    assert body["similarities"][0]["rbo"] == pytest.approx(1) and body["similarities"][0]["tau"] == 1
    cut, coverage = (remark["text"] for remark in body["remarks"])
    assert cut == "Cut to 5 per query: they keep A all, B 5." and coverage.startswith("Judged@100 differs by more than")
    baseline, other = body["measures"]
    assert baseline[0]["measure"] == "nDCG@10" and baseline[0]["delta"] is None
    assert other[0]["delta"] == pytest.approx(other[0]["mean"] - baseline[0]["mean"])
    assert other[0]["better"] + other[0]["equal"] + other[0]["worse"] == 2
    assert api.get(made["Location"]).json() == body
    assert [row["id"] for row in api.get("/api/v1/comparisons", {"pinned": "false"}).json()["results"]] == [body["id"]]


def test_what_decides_is_chosen_first(compare: Compare, api: APIClient, upload: Upload) -> None:
    judgements = upload("judgements", JUDGEMENTS)["id"]
    usual = compare(judgement_set=judgements).json()
    assert (usual["primary_measure"], usual["test"], usual["correction"]) == ("nDCG@10", "t", "holm")
    body = compare(judgement_set=judgements, primary_measure="P@5", test="randomisation").json()
    assert (body["primary_measure"], body["test"], body["n"], body["queries"]) == ("P@5", "randomisation", 2, 2)
    other = body["measures"][1]
    assert [row["measure"] for row in other if row["primary"]] == ["P@5"]
    assert {"nDCG@10", "Judged@5", "Judged@10"} <= {row["measure"] for row in other}
    by_name = {row["measure"]: row for row in other}
    # Five documents of both: what is measured among five is the same, and no test of what was judged.
    assert (by_name["P@5"]["outcome"], by_name["P@5"]["p"]) == ("identical", 1.0)
    assert by_name["P@5"]["words"] == "identical on all 2 queries" and by_name["P@5"]["interval"] == {
        "low": 0,
        "high": 0,
    }
    assert (by_name["Judged@10"]["outcome"], by_name["Judged@10"]["p"]) == ("coverage", None)
    assert by_name["P@5"]["judged"] == by_name["Judged@5"]["mean"]
    assert set(body["versions"]) == {"ir-measures", "numpy", "scipy"}
    for fields in ({"primary_measure": "Judged@10"}, {"primary_measure": "nope@x"}, {"test": "wilcoxon"}):
        refused = compare(judgement_set=judgements, **fields)
        assert refused.status_code == 422 and refused.json()["error"]["param"] == next(iter(fields))
    assert api.patch(f"/api/v1/comparisons/{body['id']}", {"test": "t"}).status_code == 422


def test_three_rankings_are_tested_all_at_once(
    compare: Compare, api: APIClient, ended: Job, second: Job, submit: SubmitJob, worker: Worker, upload: Upload
) -> None:
    fields = {"judgement_set": upload("judgements", JUDGEMENTS)["id"], "test": "randomised_tukey"}
    refused = compare(**fields)
    assert refused.status_code == 422 and refused.json()["error"]["param"] == "test"
    third = submit(name="Shorter", top_k=1)["id"]
    run_chunks(worker)
    assert jobs_advance() == 1
    jobs = [{"job": str(job)} for job in (ended.pk, second.pk, third)]
    made = api.post("/api/v1/comparisons", {"stages": jobs, "primary_measure": "RBP(p=0.9)", **fields})
    assert made.status_code == 201, made.content
    body = made.json()
    assert (body["test"], body["correction"], body["primary_measure"]) == ("randomised_tukey", "tukey", "RBP(p=0.9)")
    tested = [row for row in body["measures"][2] if row["outcome"] == "tested"]
    assert tested and all(row["p"] == row["p_corrected"] > 0.05 for row in tested)  # two queries prove nothing
    told = b"".join(api.get(f"{made['Location']}/export", {"format": "markdown"})).decode()
    assert "Test: randomised Tukey HSD test, 10,000 permutations" in told and "over all pairs of rankings" in told


def test_what_was_measured_is_taken_away(compare: Compare, api: APIClient, upload: Upload, ended: Job) -> None:
    judgements = upload("judgements", JUDGEMENTS)["id"]
    made = compare(judgement_set=judgements).json()
    path = f"/api/v1/comparisons/{made['id']}/export"
    files = {name: api.get(path, {"format": name}) for name in REPORTS}
    assert [answer.status_code for answer in files.values()] == [200] * len(REPORTS)
    for name, answer in files.items():
        text = answer.getvalue().decode().replace("\\-", "-")
        for told in (made["id"], str(ended.pk), judgements, "Holm", "scipy", "n = 2 of 2", "nDCG@10"):
            assert told in text, (name, told)
    assert files["latex"]["Content-Disposition"] == f'attachment; filename="assay-comparison-{made["id"]}.tex"'
    assert api.get(path, {"format": "pdf"}).json()["error"]["param"] == "format"
    unmeasured = api.get(f"/api/v1/comparisons/{compare().json()['id']}/export", {"format": "wide"})
    assert (unmeasured.status_code, unmeasured.json()["error"]["code"]) == (409, "not_measured")


def test_newer_judgements_make_a_new_comparison(compare: Compare, api: APIClient, upload: Upload) -> None:
    judgements = upload("judgements", JUDGEMENTS)["id"]
    made = compare(judgement_set=judgements, name="Kept", primary_measure="AP", notes="seen").json()
    path = f"/api/v1/comparisons/{made['id']}"
    assert made["newer_judgement_set"] is None
    assert api.post(f"{path}/recompute").json()["error"]["code"] == "not_stale"
    newer = upload("judgements", JUDGEMENTS + b"q1 0 d1 3\n")["id"]
    root = JudgementSet.objects.get(pk=judgements).root
    JudgementSet.objects.filter(pk=newer).update(root=root, version=2)
    stale = api.get(path).json()
    assert stale == {**made, "newer_judgement_set": newer}
    anew = api.post(f"{path}/recompute")
    assert anew.status_code == 201 and anew["Location"].endswith(anew.json()["id"])
    body = anew.json()
    assert [body[name] for name in ("judgement_set", "name", "primary_measure", "notes")] == [
        newer,
        "Kept",
        "AP",
        "seen",
    ]
    assert body["newer_judgement_set"] is None and api.get(path).json() == stale


def test_a_comparison_is_changed_and_deleted(compare: Compare, api: APIClient, ended: Job, second: Job) -> None:
    path = f"/api/v1/comparisons/{compare().json()['id']}"
    changed = api.patch(path, {"pinned": True, "notes": "seen", "baseline": 1}).json()
    assert (changed["pinned"], changed["notes"]) == (True, "seen") and changed["name"].endswith(
        "late vs. late of Short"
    )
    assert [stage["job"] for stage in changed["stages"]] == [str(second.pk), str(ended.pk)]
    assert api.patch(path, {"baseline": 3}).json()["error"]["code"] == "no_such_stage"
    assert api.patch(path, {"judgement_set": None}).status_code == 422
    assert ComparisonMeasures.objects.count() == 1
    assert api.delete(path).status_code == 204 and api.get(path).status_code == 404
    assert Job.objects.filter(pk=ended.pk).exists()


def test_what_cannot_be_compared_is_refused(compare: Compare, ended: Job, submit: SubmitJob, upload: Upload) -> None:
    own = {"job": str(ended.pk)}
    waiting = {"job": submit()["id"]}
    other_queries = upload("query-sets", b"id,text\nq1,other\n", name="other")["id"]
    stranger = {"job": submit(query_set=other_queries)["id"]}
    for stages, code, param in (
        ([own], "invalid", "stages"),
        ([own, own], "not_comparable", "stages"),
        ([own, stranger], "not_comparable", "stages"),
        ([own, waiting], "job_not_ended", "stages"),
        ([own, {**own, "stage": 1}], "no_such_stage", "stages[1].stage"),
    ):
        error = compare(stages=stages).json()["error"]
        assert error["param"] == param and (error["code"] == code or code == "invalid"), error
    foreign = upload("judgements", b"zz 0 d1 1\n")["id"]
    assert compare(judgement_set=foreign).json()["error"]["code"] == "judgements_do_not_match"


def test_a_job_that_is_ranked_anew_is_measured_anew(compare: Compare, api: APIClient, second: Job) -> None:
    path = f"/api/v1/comparisons/{compare().json()['id']}"
    stage = second.last_stage
    fingerprint = ComparisonMeasures.objects.get().fingerprint
    stage.results.update(positions=b"", raw_scores=b"", scores=b"", statuses=b"", kept=0)
    assert api.get(path).json()["similarities"][0]["queries"] == 2  # nothing says that it was ranked anew
    stage.finished_at = second.created_at
    stage.save()
    assert api.get(path).json()["similarities"][0] == {
        **dict.fromkeys(("rbo", "rbo_top", "overlap", "tau")), "queries": 0, "tau_queries": 0,
    }  # fmt: skip
    assert ComparisonMeasures.objects.get().fingerprint != fingerprint
    Job.objects.filter(pk=second.pk).update(state="running")
    assert api.get(path).json()["depth"] is None
