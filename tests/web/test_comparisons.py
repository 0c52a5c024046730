"""Comparisons as pages: made, looked through, changed; and what each page asks the database."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from scoring.ingest.items import ImportChecks
from scoring.models import Comparison, Job, StageMethod
from scoring.services.comparisons import comparison_create, comparison_measures
from scoring.services.jobs import job_delete
from scoring.services.sets import set_delete
from scoring.services.stage_plan import StagePlan
from tests.web import factories
from tests.web.conftest import World, text_of


@pytest.fixture
def cascade(analyst: User, world: World) -> Job:
    """BM25 finds the documents that share a word, last ones first; the model orders them by shared words."""
    stages = [StagePlan(method=StageMethod.BM25, top_k=3), StagePlan(model=world.model, source=0)]
    return factories.finished(
        analyst, world.model, world.worker, world.documents, world.queries, stages=stages, name="Cascade"
    )


def test_a_comparison_is_named_after_what_differs(analyst: User, world: World, cascade: Job) -> None:
    def named(*jobs: Job) -> str:
        stages = [job.last_stage for job in jobs]
        return comparison_create(principal=factories.principal(analyst), stages=stages).name

    Job.objects.filter(pk=world.job.pk).update(name="Monday")
    Job.objects.filter(pk=cascade.pk).update(name="Tuesday")
    monday, tuesday = Job.objects.get(pk=world.job.pk), Job.objects.get(pk=cascade.pk)
    assert named(monday, tuesday) == "late of Monday vs. late of Tuesday"
    Job.objects.filter(pk=cascade.pk).update(name="Monday")
    one, two = named(monday, Job.objects.get(pk=cascade.pk)).split(" vs. ")
    assert one.startswith("late of Monday, 2") and two.startswith("late of Monday, 2")


@pytest.fixture
def comparison(analyst: User, world: World, cascade: Job) -> Comparison:
    """The model over all documents, BM25, the model over what BM25 found."""
    stages = [world.job.last_stage, *cascade.stages.order_by("index")]
    return comparison_create(
        principal=factories.principal(analyst), stages=stages, name="Three", judgement_set=world.judgements
    )


def page_of(comparison: Comparison, name: str, *more: Any) -> str:
    return reverse(f"web:comparison_{name}", args=[comparison.pk, *more])


def test_a_comparison_is_made_from_a_job(browser_client: Client, world: World, cascade: Job) -> None:
    new = reverse("web:comparison_new")
    assert f'value="{cascade.pk}"' in text_of(browser_client.get(new))
    form = browser_client.get(f"{new}?job={cascade.pk}")
    offered = form.context["form"]
    assert next(iter(offered.offered.values())).job_id == cascade.pk and len(offered.offered) == 3
    one = {"stages": [next(iter(offered.offered))], "primary_measure": "nDCG@10", "test": "t"}
    refused = browser_client.post(f"{new}?job={cascade.pk}", one)
    assert refused.status_code == 422 and "give two to four" in text_of(refused)
    chosen = {"stages": list(offered.offered), "primary_measure": "nDCG@0", "test": "randomisation"}
    assert "between 1 and" in text_of(browser_client.post(f"{new}?job={cascade.pk}", chosen))
    made = browser_client.post(f"{new}?job={cascade.pk}", {**chosen, "primary_measure": "P@5"})
    comparison = Comparison.objects.get()
    assert (comparison.primary_measure, comparison.test) == ("P@5", "randomisation")
    assert made["Location"] == page_of(comparison, "detail") and comparison.name.startswith("BM25 vs. late of ")
    assert "BM25 vs. late of" in text_of(browser_client.get(reverse("web:comparison_list")))
    job_page = text_of(browser_client.get(reverse("web:job_detail", args=[cascade.pk])))
    assert f"{new}?job={cascade.pk}" in job_page


def test_the_page_says_how_three_are_tested_at_once(
    browser_client: Client, analyst: User, world: World, cascade: Job
) -> None:
    stages = [world.job.last_stage, *cascade.stages.order_by("index")]
    chosen: dict[str, Any] = {"primary_measure": "RBP(p=0.8)", "test": "randomised_tukey"}
    chosen["stages"] = [one.pk for one in stages[:2]]
    new = f"{reverse('web:comparison_new')}?job={cascade.pk}"
    assert "of three or four rankings, 2 were given" in text_of(browser_client.post(new, chosen))
    chosen |= {"stages": [one.pk for one in stages], "judgement_set": world.judgements.pk}
    page = text_of(browser_client.post(new, chosen, follow=True))
    assert "Randomised Tukey HSD test, 10,000 permutations of the rankings&#x27; values within each query" in page
    assert "p is corrected in the test itself, over all pairs of rankings" in page and "RBP(p=0.8)" in page


def test_the_summary_says_what_can_be_compared_and_how_alike_it_is(
    browser_client: Client, comparison: Comparison
) -> None:
    page = text_of(browser_client.get(page_of(comparison, "detail")))
    assert "Cut to 3 per query: they keep A all, B 3, C all." in page
    assert "Different candidates: A all documents, B all documents, C the first 3 of BM25." in page
    assert "RBO, p 0.9" in page and "Against the judgements" in page and "Biggest disagreements" in page
    assert "improved 0" in page and "A and C" in page
    file = browser_client.get(page_of(comparison, "export"), {"format": "latex"})
    assert b"\\begin{tabular}" in file.getvalue() and ".tex" in file["Content-Disposition"]
    assert browser_client.get(page_of(comparison, "export"), {"format": "?"}).status_code == 404
    assert "n = 2 of 2 queries" in page and "identical on all 2 queries" in page and "exploratory" in page
    assert "Paired t-test, two-sided; p is corrected by Holm" in page and "primary" in page


def test_the_queries_are_filtered_ordered_and_searched_by_the_address(
    browser_client: Client, comparison: Comparison
) -> None:
    url = page_of(comparison, "queries")
    shown = browser_client.get(url, {"with": "C", "order": "query"})
    assert [row.query.external_id for row in shown.context["rows"]] == ["q1", "q2"]
    assert shown.context["page"].against.letter == "C"
    counts = {kind.name: kind.count for kind in shown.context["kinds"]}
    assert sum(counts.values()) == 2
    for kind, count in counts.items():
        assert len(browser_client.get(url, {"with": "C", "kind": kind}).context["rows"]) == count
    found = browser_client.get(url, {"search": "kettle"})
    assert [row.query.external_id for row in found.context["rows"]] == ["q2"]
    assert f'{page_of(comparison, "query", 1)}?search=kettle"' in text_of(found)
    assert browser_client.get(url, {"with": "Z", "kind": "?", "order": "?", "page": "x"}).status_code == 200


def test_a_query_is_shown_side_by_side_within_the_filtered_order(
    browser_client: Client, comparison: Comparison
) -> None:
    url = page_of(comparison, "query", 0)
    response = browser_client.get(url, {"order": "query", "with": "B", "show": "B"})
    page, side = text_of(response), response.context["side"]
    assert [column.letter for column in side.columns] == ["A", "B", "C"]
    assert f'{page_of(comparison, "query", 1)}?order=query&amp;with=B&amp;show=B" data-key="j"' in page
    assert 'data-key="k"' not in page and "1 of 2" in page
    first = side.columns[0]
    assert [hit.row.rank for hit in first.hits] == [1, 2, 3]
    # The empty document is in the ranking of all documents and was not found by words.
    assert first.hits[-1].row.document.external_id == "d3" and first.hits[-1].other is None
    assert "not in B\N{RIGHT SINGLE QUOTATION MARK}s" in page and "grade 2" in page
    assert {shared.document.external_id for shared in side.only_first} >= {"d3"}
    assert not side.only_second
    assert first.hits[0].ranks[0] == 1 and f'data-ranks="{first.hits[0].ranks_listed}"' in page
    slide = text_of(browser_client.get(url, headers={"HX-Target": "slide-body"}))
    assert "data-slide-close" in slide and "<html" not in slide and "data-slide-close" not in page
    alone = browser_client.get(url, {"search": "kettle"})
    assert alone.status_code == 200 and alone.context["place"] is None
    assert browser_client.get(page_of(comparison, "query", 2)).status_code == 404


def test_settings_notes_pin_and_baseline(browser_client: Client, comparison: Comparison, cascade: Job) -> None:
    settings = text_of(browser_client.get(page_of(comparison, "settings")))
    assert "Kept per query" in settings and ">Query set<" not in settings
    assert ">Query set<" in text_of(browser_client.get(page_of(comparison, "settings"), {"all": ""}))
    saved = browser_client.post(page_of(comparison, "notes"), {"name": "Named", "notes": "<b>seen</b>"}, follow=True)
    assert "&lt;b&gt;seen" in text_of(saved) and "Named" in text_of(saved)
    browser_client.post(page_of(comparison, "pin"))
    browser_client.post(page_of(comparison, "baseline"), {"position": "1"})
    comparison.refresh_from_db()
    assert comparison.pinned
    baseline = comparison.compared.get(position=0)
    assert baseline.stage.job_id == cascade.pk
    assert "Three" not in text_of(browser_client.post(page_of(comparison, "delete"), follow=True))
    assert not Comparison.objects.exists()


def test_newer_judgements_are_told_and_recomputed_on_a_click(
    browser_client: Client, analyst: User, comparison: Comparison
) -> None:
    assert "Recompute" not in text_of(browser_client.get(page_of(comparison, "detail")))
    newer = factories.imported(
        analyst, "judgements", "q1 0 d3 1\n", name="Grades", file_name="more.txt",
        checks=ImportChecks(base=comparison.judgement_set),
    )  # fmt: skip
    assert "Recompute with version 2" in text_of(browser_client.get(page_of(comparison, "detail")))
    anew = browser_client.post(page_of(comparison, "recompute"), follow=True)
    made = Comparison.objects.exclude(pk=comparison.pk).get()
    assert made.judgement_set_id == newer.pk and "Recompute" not in text_of(anew)
    assert anew.redirect_chain[-1][0] == page_of(made, "detail")
    assert "nothing to do" in text_of(browser_client.post(page_of(made, "recompute"), follow=True))


def test_without_judgements_likeness_leads(browser_client: Client, analyst: User, world: World, cascade: Job) -> None:
    stages = [world.job.last_stage, cascade.last_stage]
    comparison = comparison_create(principal=factories.principal(analyst), stages=stages)
    queries = browser_client.get(page_of(comparison, "queries"))
    assert [kind.name for kind in queries.context["kinds"]] == ["same", "close", "changed", "different", "incomplete"]
    likeness = [row.rbo for row in queries.context["rows"]]
    assert likeness == sorted(likeness) and "nDCG" not in text_of(queries)


def test_different_documents_are_not_compared_by_rank(browser_client: Client, analyst: User, world: World) -> None:
    other = factories.imported(analyst, "documents", "id,text\nd1,a tick\nd2,a kettle\n", name="B", file_name="b.csv")
    job = factories.finished(analyst, world.model, world.worker, other, world.queries)
    comparison = comparison_create(
        principal=factories.principal(analyst),
        stages=[world.job.last_stage, job.last_stage],
        judgement_set=world.judgements,
    )
    summary = text_of(browser_client.get(page_of(comparison, "detail")))
    assert "Different documents: Advice" in summary and "How alike" not in summary and "nDCG@10" in summary
    query = browser_client.get(page_of(comparison, "query", 0))
    assert "Among the first" not in text_of(query) and len(query.context["side"].columns[1].hits) == 2


def test_a_deleted_job_leaves_the_notes(
    browser_client: Client, analyst: User, world: World, comparison: Comparison, cascade: Job
) -> None:
    job_delete(principal=factories.principal(analyst), job=cascade)
    for name in ("detail", "queries", "settings", "notes"):
        assert "has been deleted" in text_of(browser_client.get(page_of(comparison, name)))
    assert browser_client.get(page_of(comparison, "query", 0)).status_code == 404


def test_the_primary_measure_may_have_exponential_gains(analyst: User, world: World, cascade: Job) -> None:
    made = comparison_create(
        principal=factories.principal(analyst),
        stages=[world.job.last_stage, cascade.last_stage],
        judgement_set=world.judgements,
        primary_measure="nDCG(gains='exponential')@10",
    )
    measured = comparison_measures(comparison=made)
    assert measured is not None and measured.table is not None
    assert measured.table.measures[0] == made.primary_measure and "exponential" not in made.primary_measure


def test_numbers_outlive_the_judgements_they_were_computed_with(
    browser_client: Client, analyst: User, world: World, comparison: Comparison
) -> None:
    before = browser_client.get(page_of(comparison, "detail"))
    table = before.context["page"].measured.table
    set_delete(principal=factories.principal(analyst), uploaded=world.judgements)
    after = browser_client.get(page_of(comparison, "detail"))
    assert after.context["page"].measured.table == table
    assert "have been deleted. The numbers stay." in text_of(after)
    assert (
        b"Judgements: deleted since" in browser_client.get(page_of(comparison, "export"), {"format": "wide"}).getvalue()
    )
    for name, more in (("queries", ()), ("query", (0,)), ("settings", ()), ("notes", ())):
        assert browser_client.get(page_of(comparison, name, *more)).status_code == 200
    moved = browser_client.post(page_of(comparison, "baseline"), {"position": "1"}, follow=True)
    assert "its numbers stay, from the baseline they have" in text_of(moved)


@pytest.mark.parametrize(
    ("name", "more", "limit"), [("detail", (), 12), ("queries", (), 11), ("query", (0,), 16), ("notes", (), 9)]
)
def test_pages_ask_the_database_a_bounded_number_of_times(
    name: str, more: tuple[int, ...], limit: int, browser_client: Client, comparison: Comparison,
    django_assert_max_num_queries: Any,
) -> None:  # fmt: skip
    with django_assert_max_num_queries(limit):
        browser_client.get(page_of(comparison, name, *more))
