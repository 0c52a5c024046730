"""A job on its pages: made, watched, cancelled, read, measured, exported."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from audit.models import AuditEvent
from scoring.models import Job, Worker
from scoring.services.finalize import jobs_advance
from scoring.states import JobState
from tests.web import factories
from tests.web.conftest import World, text_of

HTMX = {"HX-Request": "true"}


def form(world: World, **changed: Any) -> dict[str, Any]:
    return {
        "document_set": world.documents.pk,
        "query_set": world.queries.pk,
        "model": world.model.pk,
        "top_k": "10",
        "priority": "0",
        "name": "Mine",
        "form_key": "k1",
        **changed,
    }


def test_the_form_makes_a_job(browser_client: Client, world: World) -> None:
    response = browser_client.post(reverse("web:job_new"), form(world, priority="5"))
    job = Job.objects.get(name="Mine")
    assert response["Location"] == reverse("web:job_detail", args=[job.pk])
    assert (job.last_stage.top_k, job.priority, job.pair_count) == (10, 5, 6)


def test_a_form_sent_twice_is_one_job_and_a_changed_one_is_another(browser_client: Client, world: World) -> None:
    before = Job.objects.count()
    first, second = (browser_client.post(reverse("web:job_new"), form(world)) for _ in range(2))
    assert first["Location"] == second["Location"] and Job.objects.count() == before + 1
    browser_client.post(reverse("web:job_new"), form(world, top_k="3"))
    assert Job.objects.count() == before + 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"top_k": "0"}, "greater than or equal to 1"),
        ({"top_k": "2.5"}, "whole number"),
        ({"priority": "1000"}, "less than or equal to 100"),
        ({"document_set": ""}, "This field is required"),
        ({"model": ""}, "This field is required"),
    ],
)
def test_errors_stand_beside_their_field_and_the_rest_is_kept(
    browser_client: Client, world: World, changed: dict[str, str], said: str
) -> None:
    before = Job.objects.count()
    page = text_of(browser_client.post(reverse("web:job_new"), form(world, name="Kept name", **changed)))
    assert said in page and 'value="Kept name"' in page
    assert Job.objects.count() == before


def test_what_the_service_refuses_is_said_in_the_form(browser_client: Client, analyst: User, world: World) -> None:
    empty = factories.imported(analyst, "documents", "id,text\nx,\n", name="Hollow", file_name="x.csv")
    page = text_of(browser_client.post(reverse("web:job_new"), form(world, document_set=empty.pk)))
    assert "Every row of the document set" in page and "Hollow" in page


def test_the_number_of_pairs_follows_the_choice(browser_client: Client, world: World) -> None:
    chosen = {"document_set": str(world.documents.pk), "query_set": str(world.queries.pk)}
    assert "6 pairs" in text_of(browser_client.get(reverse("web:job_size"), chosen))
    assert "Choose both sets" in text_of(browser_client.get(reverse("web:job_size"), {"document_set": "no id"}))


def test_the_progress_is_polled_until_the_end(browser_client: Client, analyst: User, world: World) -> None:
    documents = "id,text\n" + "".join(f"n{number},text {number}\n" for number in range(130))
    long = factories.imported(analyst, "documents", documents, name="Long", file_name="long.csv")
    job = factories.submitted(analyst, world.model, long, world.queries)
    url = reverse("web:job_progress", args=[job.pk])

    waiting = text_of(browser_client.get(reverse("web:job_detail", args=[job.pk])))
    assert (
        "a worker is about to take it" in waiting
        and f'hx-get="{url}"' in waiting
        and 'hx-trigger="every 2s"' in waiting
    )

    factories.work(world.worker, chunks=1)
    response = browser_client.get(url, headers=HTMX)
    running = text_of(response)
    assert response.status_code == 200 and "HX-Refresh" not in response
    assert 'role="progressbar"' in running and 'aria-valuenow="49"' in running
    assert "128 of 260 pairs" in running and "1 done" in running and "2 pending" in running
    assert "40 percent done" in running

    factories.work(world.worker)
    jobs_advance()
    ended = browser_client.get(url, headers=HTMX)
    assert ended.status_code == 286 and ended["HX-Refresh"] == "true"
    assert "hx-trigger" not in ended.content.decode()


def test_a_queued_job_says_what_it_waits_for(browser_client: Client, analyst: User, world: World) -> None:
    Worker.objects.update(heartbeat_at="2020-01-01T00:00Z")
    job = factories.submitted(analyst, world.model, world.documents, world.queries)
    assert "no worker is running" in text_of(browser_client.get(reverse("web:job_detail", args=[job.pk])))


def test_cancel_is_a_button_and_a_visible_state(browser_client: Client, analyst: User, world: World) -> None:
    job = factories.submitted(analyst, world.model, world.documents, world.queries)
    url = reverse("web:job_cancel", args=[job.pk])
    assert url in text_of(browser_client.get(reverse("web:job_detail", args=[job.pk])))
    page = text_of(browser_client.post(url, follow=True))
    assert "Being cancelled" in page and f'action="{url}"' not in page
    jobs_advance()
    assert "Cancelled" in text_of(browser_client.get(reverse("web:job_detail", args=[job.pk])))
    assert browser_client.get(url).status_code == 405

    ended = browser_client.post(reverse("web:job_cancel", args=[world.job.pk]), follow=True)
    assert "there is nothing left to cancel" in text_of(ended)


def test_the_home_page_tells_what_runs_and_what_failed(browser_client: Client, analyst: User, world: World) -> None:
    factories.submitted(analyst, world.model, world.documents, world.queries, name="Still going")
    Job.objects.filter(pk=world.job.pk).update(
        state=JobState.FAILED, failure="No pair could be scored. The disk is full."
    )
    page = text_of(browser_client.get(reverse("web:home")))
    assert "Still going" in page and "0 of 6 pairs" in page
    assert "Needs a look" in page and "The disk is full." in page
    running = browser_client.get(reverse("web:running"), headers=HTMX)
    assert running.status_code == 200
    factories.work(world.worker)
    jobs_advance()
    ended = browser_client.get(reverse("web:running"), headers=HTMX)
    assert ended.status_code == 286 and ended["HX-Refresh"] == "true"


def test_results_show_the_ranking_of_the_chosen_query(browser_client: Client, world: World) -> None:
    url = reverse("web:job_detail", args=[world.job.pk])
    first = text_of(browser_client.get(url))
    assert first.index("Ticks") < first.index("Kettle") < first.index("Nothing")
    assert "no score" in first and ">empty<" in first
    second = text_of(browser_client.get(url, {"query": "1"}))
    assert second.index("Kettle") < second.index("Ticks")
    assert 'data-key="k"' in second and 'data-key="j"' not in second
    found = text_of(browser_client.get(url, {"search": "descale"}))
    assert 'class="query-text">descale a kettle' in found
    assert "No query contains “zebra”" in text_of(browser_client.get(url, {"search": "zebra"}))
    assert browser_client.get(url, {"query": "99", "page": "x", "rank": "-1"}).status_code == 200


def test_ranks_are_paged(browser_client: Client, analyst: User, world: World) -> None:
    rows = "id,text\n" + "".join(f"n{number},tick {'very ' * number}\n" for number in range(25))
    documents = factories.imported(analyst, "documents", rows, name="Many", file_name="many.csv")
    job = factories.finished(analyst, world.model, world.worker, documents, world.queries)
    page = text_of(browser_client.get(reverse("web:job_detail", args=[job.pk]), {"rank": "3"}))
    assert "Ranks 21–25 of 25 kept" in page
    assert "</span>21</span>" in page and "</span>20</span>" not in page


def test_the_evaluation_says_its_means_and_every_query(browser_client: Client, world: World) -> None:
    url = reverse("web:job_evaluation", args=[world.job.pk])
    page = text_of(browser_client.get(url, {"judgement_set": str(world.judgements.pk)}))
    for name in ("nDCG@10", "RR@10", "R@100", "Judged@10"):
        assert name in page
    assert "Means over 2 of 2 queries" in page
    assert "<dt>nDCG@10</dt><dd>1.0000</dd>" in page
    assert reverse("web:job_detail", args=[world.job.pk]) + "?query=1" in page


def test_judgements_of_other_queries_are_refused_in_words(browser_client: Client, analyst: User, world: World) -> None:
    other = factories.imported(analyst, "judgements", "zz 0 d1 1\n", name="Other", file_name="o.txt")
    page = text_of(
        browser_client.get(reverse("web:job_evaluation", args=[world.job.pk]), {"judgement_set": str(other.pk)})
    )
    assert "names none of the 2 queries" in page


@pytest.mark.parametrize("name", ["csv", "jsonl", "trec"])
def test_exports_are_files_and_leave_a_trace(browser_client: Client, world: World, name: str) -> None:
    response: Any = browser_client.get(reverse("web:job_export", args=[world.job.pk, name]))
    content = b"".join(response.streaming_content).decode()
    assert "attachment" in response["Content-Disposition"]
    if name == "csv":
        rows = list(csv.DictReader(io.StringIO(content.removeprefix("\ufeff"))))
        assert [(row["query_id"], row["rank"], row["document_id"]) for row in rows[:2]] == [
            ("q1", "1", "d1"),
            ("q1", "2", "d2"),
        ]
    else:
        assert len(content.splitlines()) == 6
    assert AuditEvent.objects.filter(verb="job.exported", detail__format=name).count() == 1
    assert browser_client.get(f"/jobs/{world.job.pk}/export/xlsx/").status_code == 404


def test_the_list_is_filtered_and_sorted(browser_client: Client, analyst: User, world: World) -> None:
    factories.submitted(analyst, world.model, world.documents, world.queries, name="Alpha")
    url = reverse("web:job_list")
    assert "Alpha" not in text_of(browser_client.get(url, {"state": "completed"}))
    queued = text_of(browser_client.get(url, {"state": "queued"}))
    assert "Alpha" in queued and "Questions on Advice" not in queued
    ordered = text_of(browser_client.get(url, {"sort": "name"}))
    assert ordered.index("Alpha") < ordered.index("Questions on Advice")
    assert "No job matches" in text_of(browser_client.get(url, {"name": "zebra"}))
