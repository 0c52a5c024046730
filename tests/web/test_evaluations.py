"""Evaluations as pages: made from a job, looked through, deleted, put in a leaderboard; and what each page asks."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from scoring.measures import OFFERED
from scoring.models import Evaluation, Job, JudgementSet, StageMethod
from scoring.services.evaluations import evaluation_create
from scoring.services.stage_plan import StagePlan
from tests.web import factories
from tests.web.conftest import World, text_of

QUERIES = (
    "id\ttext\ttags\nq1\thow do I pull out a tick\tskin, pets\nq2\tdescale a kettle\tkitchen\nq3\tnobody judged\t\n"
)
JUDGEMENTS = "q1 0 d1 2\nq1 0 d3 1\nq1 0 gone 1\nq2 0 d2 1\nq2 0 d1 0\n"


@pytest.fixture
def judged(analyst: User, world: World) -> tuple[Job, JudgementSet]:
    """BM25 finds the documents that share a word; the model orders them and keeps one."""
    queries = factories.imported(analyst, "queries", QUERIES, name="Tagged", file_name="tagged.tsv")
    judgements = factories.imported(analyst, "judgements", JUDGEMENTS, name="Graded", file_name="graded.txt")
    stages = [StagePlan(method=StageMethod.BM25, top_k=3), StagePlan(model=world.model, source=0, top_k=1)]
    job = factories.finished(
        analyst, world.model, world.worker, world.documents, queries, stages=stages, name="Cascade"
    )
    return job, judgements


@pytest.fixture
def evaluation(analyst: User, judged: tuple[Job, JudgementSet]) -> Evaluation:
    job, judgements = judged
    return evaluation_create(principal=factories.principal(analyst), stage=job.last_stage, judgement_set=judgements)[0]


def page_of(evaluation: Evaluation, name: str, *more: Any) -> str:
    return reverse(f"web:evaluation_{name}", args=[evaluation.pk, *more])


def test_an_evaluation_is_made_from_a_jobs_tab(browser_client: Client, judged: tuple[Job, JudgementSet]) -> None:
    job, judgements = judged
    tab = reverse("web:job_evaluation", args=[job.pk])
    assert "Graded, version 1" in text_of(browser_client.get(tab))
    refused = browser_client.post(tab, {"judgement_set": judgements.pk, "more": "Bpref"})
    assert "the median query has 0.5 that were judged not relevant" in text_of(refused)
    assert "Choose between 1 and 20 measures" in text_of(browser_client.post(tab, {"judgement_set": judgements.pk}))
    fields = {"judgement_set": judgements.pk, "measures": ["nDCG(gains='exponential')@10"], "more": "P(rel=2)@5 AP"}
    made = browser_client.post(tab, fields)
    evaluation = Evaluation.objects.get()
    assert made["Location"] == page_of(evaluation, "detail")
    assert evaluation.measures == ["nDCG(gains={2:3})@10", "P(rel=2)@5", "AP"]
    assert browser_client.post(tab, fields)["Location"] == made["Location"]  # once
    assert made["Location"] in text_of(browser_client.get(tab))
    assert made["Location"] in text_of(browser_client.get(reverse("web:evaluation_list")))


def test_the_summary_says_which_queries_count(browser_client: Client, evaluation: Evaluation) -> None:
    page = text_of(browser_client.get(page_of(evaluation, "detail")))
    assert "n = <a" in page and ">2</a> of 3" in page and "?list=unjudged" in page and "1 without judgements" in page
    assert "divided by log₂(rank + 1), summed over the first 10" in page
    assert "?tag=kitchen" in page and "ir-measures 0.4" in page
    Evaluation.objects.update(incomplete=True)
    assert "They enter no test and no leaderboard" in text_of(browser_client.get(page_of(evaluation, "detail")))


def test_the_queries_are_listed_by_the_address(browser_client: Client, evaluation: Evaluation) -> None:
    def ids(**state: Any) -> list[str]:
        rows = browser_client.get(page_of(evaluation, "queries"), state).context["rows"]
        return [row.query.external_id for row in rows]

    assert ids(order="query") == ids(order="nDCG@10") == ["q1", "q2"] and ids(order="-nDCG@10") == ["q2", "q1"]
    assert ids(tag="pets") == ["q1"] and ids(search="kettle") == ["q2"] and ids(list="unjudged") == ["q3"]
    assert ids(order="?", list="?", columns="?", page="x") == ["q1", "q2"]
    page = text_of(browser_client.get(page_of(evaluation, "queries"), {"columns": ["tags", "kept"], "tag": "pets"}))
    assert ">Tags</th>" in page and "skin, pets" in page and ">nDCG@10</th>" not in page


def test_a_query_says_where_its_documents_went(browser_client: Client, evaluation: Evaluation) -> None:
    response = browser_client.get(page_of(evaluation, "query", 0), {"order": "query"})
    page, documents = text_of(response), response.context["documents"]
    places = {row.document_id: [place.rank or place.reason for place in row.places] for row in documents}
    assert places == {
        "gone": ["not in the document set", "not in the document set"],
        "d3": ["not among the first 1 that BM25 found", "not a candidate: BM25 did not keep it"],
        "d1": [1, 1],
    }
    assert "(2/log₂2 = 2.0000) over (2/log₂2 + 1/log₂3 + 1/log₂4 = 3.1309)" in page
    assert "1 of 2" in page and 'data-key="j"' in page and 'data-key="k"' not in page
    assert "Nobody judged" in text_of(browser_client.get(page_of(evaluation, "query", 2)))
    assert browser_client.get(page_of(evaluation, "query", 3)).status_code == 404


def test_every_measure_on_offer_has_its_words(
    browser_client: Client, analyst: User, judged: tuple[Job, JudgementSet]
) -> None:
    job, judgements = judged
    evaluation, _ = evaluation_create(
        principal=factories.principal(analyst), stage=job.last_stage, judgement_set=judgements, measures=OFFERED
    )
    for name in ("detail", "query"):
        page = text_of(browser_client.get(page_of(evaluation, name, *([0] if name == "query" else []))))
        assert [measure for measure in OFFERED if measure not in page] == []
        assert "who goes on to the next rank with the chance p = 0.95" in page
    assert "0.2 × (0.8^0)" in page


def test_a_document_that_was_cut_has_its_rank(browser_client: Client, analyst: User, world: World) -> None:
    job = factories.finished(analyst, world.model, world.worker, world.documents, world.queries, top_k=1)
    made, _ = evaluation_create(
        principal=factories.principal(analyst), stage=job.last_stage, judgement_set=world.judgements
    )
    rows = browser_client.get(page_of(made, "query", 0)).context["documents"]
    assert {row.document_id: row.places[0].reason for row in rows} == {
        "d1": "",
        "d2": "cut at rank 2, the first 1 are kept",
    }


def test_stages_have_a_recall_and_a_ceiling(browser_client: Client, evaluation: Evaluation) -> None:
    first, second = browser_client.get(page_of(evaluation, "stages")).context["cuts"]
    assert first.recall == pytest.approx((1 / 3 + 1) / 2) and second.recall == first.recall
    # Of three relevant documents of q1 one was given to the second stage, and of q2 the only one.
    ideal = 2 + 1 / 1.584962500721156 + 1 / 2
    assert second.ceiling == pytest.approx((2 / ideal + 1) / 2) == second.value
    assert first.ceiling > second.ceiling and first.value < first.ceiling


def test_coverage_counts_what_nobody_judged(browser_client: Client, analyst: User, world: World) -> None:
    made, _ = evaluation_create(
        principal=factories.principal(analyst), stage=world.job.last_stage, judgement_set=world.judgements
    )
    response = browser_client.get(page_of(made, "coverage"))
    found = response.context["coverage"]
    assert found.histogram[:3] == [0, 1, 1] and found.unjudged_documents == 3  # three documents a query
    assert [query.external_id for query, _ in response.context["worst"]] == ["q2", "q1"]
    assert found.judged[10] == pytest.approx((2 / 3 + 1 / 3) / 2)


def test_ties_that_decide_are_said(browser_client: Client, analyst: User, world: World) -> None:
    documents = factories.imported(
        analyst, "documents", "id,text\nd1,the tick\nd2,my tick\n", name="Tied", file_name="t.csv"
    )
    job = factories.finished(analyst, world.model, world.worker, documents, world.queries)
    grades = factories.imported(analyst, "judgements", "q1 0 d2 1\nq1 0 d1 0\n", name="T", file_name="t.txt")
    made, _ = evaluation_create(
        principal=factories.principal(analyst), stage=job.last_stage, judgement_set=grades, measures=["RR@10", "P@5"]
    )
    rr, precision = made.figures
    assert (rr["worst"], rr["mean"], rr["best"], rr["tie_sensitive"]) == (0.5, 0.5, 1.0, True)
    assert precision["worst"] == precision["best"] and not precision["tie_sensitive"]
    assert "0.5000–1.0000" in text_of(browser_client.get(page_of(made, "detail")))


def test_the_leaderboard_tests_against_a_chosen_baseline(
    browser_client: Client, analyst: User, judged: tuple[Job, JudgementSet], evaluation: Evaluation
) -> None:
    job, judgements = judged
    first = job.stages.get(index=0)
    other, _ = evaluation_create(principal=factories.principal(analyst), stage=first, judgement_set=judgements)
    url = reverse("web:leaderboard")
    response = browser_client.get(url, {"measure": "nDCG@10"})
    board = response.context["board"]
    assert [row.evaluation.pk for row in board.rows] == [evaluation.pk, other.pk] and board.n == 2
    assert board.baseline.pk == evaluation.pk and board.rows[1].difference.few
    moved = browser_client.get(url, {"baseline": str(other.pk), "measure": "nDCG@10"}).context["board"]
    assert moved.rows[0].difference.delta == pytest.approx(-board.rows[1].difference.delta)
    assert "is not among the 2 of this leaderboard" in text_of(browser_client.get(url, {"baseline": "x"}))
    history = browser_client.get(url, {"measure": "nDCG@10"})
    assert history.context["history"].data["points"] and len(history.context["history"].series) == 2
    told = text_of(history)
    assert told.count('data-label="System"') == 2 and '"nDCG@10"' in told
    Evaluation.objects.filter(pk=other.pk).update(incomplete=True)
    assert "over time" not in text_of(browser_client.get(url))
    assert [row.evaluation.pk for row in browser_client.get(url).context["board"].rows] == [evaluation.pk]


def test_how_much_was_judged_is_neither_the_usual_measure_of_a_leaderboard_nor_tested(
    browser_client: Client, analyst: User, judged: tuple[Job, JudgementSet], evaluation: Evaluation
) -> None:
    job, judgements = judged
    for stage in (evaluation.stage, job.stages.get(index=0)):
        evaluation_create(
            principal=factories.principal(analyst), stage=stage, judgement_set=judgements, measures=["Judged@10"]
        )
    url = reverse("web:leaderboard")
    assert browser_client.get(url).context["measure"] == "nDCG@10"
    coverage = browser_client.get(url, {"measure": "Judged@10"})
    assert "how much was judged, no test" in text_of(coverage)
    assert coverage.context["board"].rows[1].difference.p is None


def test_an_evaluation_is_deleted_and_its_job_stays(browser_client: Client, evaluation: Evaluation) -> None:
    page = text_of(browser_client.post(page_of(evaluation, "delete"), follow=True))
    assert "is deleted; its job and its judgements stay" in page and not Evaluation.objects.exists()


@pytest.mark.parametrize(
    ("name", "more", "limit"),
    [("detail", (), 12), ("queries", (), 13), ("query", (0,), 22), ("coverage", (), 12), ("stages", (), 16)],
)
def test_pages_ask_the_database_a_bounded_number_of_times(
    name: str, more: tuple[int, ...], limit: int, browser_client: Client, evaluation: Evaluation,
    django_assert_max_num_queries: Any,
) -> None:  # fmt: skip
    with django_assert_max_num_queries(limit):
        assert browser_client.get(page_of(evaluation, name, *more)).status_code == 200
