"""A job on its pages: made, watched, cancelled, read, measured, exported."""

from __future__ import annotations

import csv
import html
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from audit.models import AuditEvent
from scoring.models import Job, Worker
from scoring.services.chunks import chunk_give_back, chunk_lease
from scoring.services.finalize import jobs_advance
from scoring.services.job_watch import jobs_expire, jobs_stop_finish
from scoring.services.jobs import job_change
from scoring.states import ChunkCause, JobState
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


def test_the_form_says_when_and_how_long(browser_client: Client, world: World) -> None:
    url, at = reverse("web:job_new"), timezone.now().replace(second=0, microsecond=0) + timedelta(days=1)
    when = {"start_at": f"{at:%Y-%m-%dT%H:%M}", "complete_within": "3600", "max_error_rate": "0.25"}
    assert '<details class="card"> <summary><h2>Settings</h2>' in text_of(browser_client.get(url))
    browser_client.post(url, form(world, **when))
    job = Job.objects.get(name="Mine")
    assert (job.state, job.start_at, job.complete_within, job.max_error_rate) == ("scheduled", at, 3600, 0.25)
    grown = text_of(browser_client.post(url, {**form(world, **when), "add": "1"}))
    assert '<details class="card" open>' in grown and all(f'value="{value}"' in grown for value in when.values())


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
        ({"document_set": ""}, "Nothing is chosen"),
        ({"model": ""}, "Nothing is chosen"),
        ({"start_at": "soon"}, "Enter a valid date/time"),
        ({"start_at": "2999-01-01T00:00"}, "can be scheduled for the next 366 days"),
        ({"complete_within": "0"}, "greater than or equal to 1"),
        ({"complete_within": "999999999"}, "give 1 to 31,622,400"),
        ({"max_error_rate": "1.5"}, "less than or equal to 1"),
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
        and f'hx-get="{url}?log=main"' in waiting
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


def test_judgements_of_other_queries_are_refused_in_words(browser_client: Client, analyst: User, world: World) -> None:
    other = factories.imported(analyst, "judgements", "zz 0 d1 1\n", name="Other", file_name="o.txt")
    fields = {"judgement_set": str(other.pk), "measures": ["nDCG@10"]}
    page = text_of(browser_client.post(reverse("web:job_evaluation", args=[world.job.pk]), fields))
    assert "names none of the 2 queries" in page


@pytest.mark.parametrize("name", ["csv", "jsonl", "trec"])
def test_exports_are_files_and_leave_a_trace(browser_client: Client, world: World, name: str) -> None:
    chosen = {"job": str(world.job.pk), "format": name}
    response: Any = browser_client.get(reverse("web:export", args=["results"]), chosen)
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


def press(client: Client, job: Job, move: str, **fields: Any) -> str:
    return text_of(client.post(reverse(f"web:job_{move}", args=[job.pk]), fields, follow=True))


def test_the_buttons_fit_the_state(browser_client: Client, analyst: User, world: World) -> None:
    job = factories.submitted(analyst, world.model, world.documents, world.queries)

    def offered() -> set[str]:
        page = text_of(browser_client.get(reverse("web:job_detail", args=[job.pk])))
        moves = ("pause", "resume", "cancel", "retry", "clone", "change", "delete")
        return {move for move in moves if f'action="{reverse(f"web:job_{move}", args=[job.pk])}"' in page}

    assert offered() == {"pause", "cancel", "clone", "change"}
    paused = press(browser_client, job, "pause")
    assert "It was paused by analyst." in paused and offered() == {"resume", "cancel", "clone", "change"}
    assert "goes on" in press(browser_client, job, "resume")
    press(browser_client, job, "cancel")
    assert offered() == {"clone", "change"}
    jobs_advance()
    assert offered() == {"retry", "clone", "change", "delete"}
    assert "queued again with what is unfinished" in press(browser_client, job, "retry")
    assert "cancel it, and delete it when it has ended" in press(browser_client, job, "delete")
    factories.work(world.worker)
    jobs_advance()
    assert offered() == {"clone", "change", "delete"}
    deleted = press(browser_client, job, "delete")
    assert "is deleted, with its results and its log" in deleted and "<h1>Jobs</h1>" in deleted
    assert not Job.objects.filter(pk=job.pk).exists()


def test_what_cannot_be_undone_is_asked_first(browser_client: Client, world: World) -> None:
    page = text_of(browser_client.get(reverse("web:job_detail", args=[world.job.pk])))
    question = page.index("Its rankings, scores and log go with it, for good.")
    assert page.rindex("<summary", 0, question) < question < page.index("Yes, delete the job")


def test_a_job_is_changed_on_its_page(browser_client: Client, analyst: User, world: World) -> None:
    job = factories.submitted(analyst, world.model, world.documents, world.queries)
    page = press(browser_client, job, "change", name="Urgent", priority="9", complete_within="7200")
    job.refresh_from_db()
    assert (job.name, job.priority, job.complete_within) == ("Urgent", 9, 7200)
    assert "is changed" in page and re.search(r"<dt>Expires in</dt><dd>[12] h \d+ min</dd>", page)
    assert "changed" in page and "priority from 0 to 9" in page
    refused = press(browser_client, job, "change", name="", priority="9")
    assert "Name: Nothing stands here; fill it in." in refused
    refused = press(browser_client, job, "change", name="x", priority="1000")
    assert "Priority: Ensure this value is less than or equal to 100." in refused


def test_a_clone_is_opened(browser_client: Client, world: World) -> None:
    page = press(browser_client, world.job, "clone")
    assert "by the models as they are" in page and reverse("web:job_detail", args=[world.job.pk]) in page
    assert Job.objects.get(cloned_from=world.job).state == JobState.QUEUED


def test_a_scheduled_and_an_expired_job_say_so(browser_client: Client, analyst: User, world: World) -> None:
    later = factories.submitted(
        analyst, world.model, world.documents, world.queries, start_at=timezone.now() + timedelta(hours=3)
    )
    page = text_of(browser_client.get(reverse("web:job_detail", args=[later.pk])))
    assert "It is scheduled for" in page and re.search(r"<dt>Starts in</dt><dd>[23] h \d+ min</dd>", page)
    job = factories.submitted(analyst, world.model, world.documents, world.queries, complete_within=60)
    Job.objects.filter(pk=job.pk).update(expires_at=timezone.now() - timedelta(minutes=1))
    jobs_expire()
    jobs_stop_finish()
    jobs_advance()
    page = text_of(browser_client.get(reverse("web:job_detail", args=[job.pk])))
    assert "The job was to be done within 1 min." in page and "a retry scores the rest" in page
    home = text_of(browser_client.get(reverse("web:home")))
    assert reverse("web:job_detail", args=[later.pk]) in home


def test_the_log_is_filtered_and_paged(browser_client: Client, analyst: User, world: World) -> None:
    job = factories.submitted(analyst, world.model, world.documents, world.queries)
    chunk = chunk_lease(worker=world.worker)
    assert chunk is not None
    chunk_give_back(chunk=chunk, actor="worker:worker-1", cause=ChunkCause.ITEM_ERROR, error="It is poisoned.")
    factories.work(world.worker)
    url = reverse("web:job_details", args=[job.pk])
    main, problems, everything = (
        text_of(browser_client.get(url, {"log": kind})) for kind in ("main", "problems", "all")
    )
    assert "It is poisoned." in problems and "· submitted</span>" not in problems
    assert "· submitted</span>" in main and "fault 1" in main and "· scored</span>" not in main
    assert "· scored</span>" in everything

    for number in range(60):
        job_change(principal=factories.principal(analyst), job=Job.objects.get(pk=job.pk), name=f"name {number}")
    newest = text_of(browser_client.get(url))
    older = re.search(r'rel="next" href="([^"]+)"', newest)
    assert older and "name 59" in newest and "to name 3 " not in newest
    page = text_of(browser_client.get(html.unescape(older[1])))
    assert "from name 2 to name 3" in page and "· submitted</span>" in page and "Newest" in page
    assert text_of(browser_client.get(url, {"before": "x", "log": "y"})).count("to name 59") == 1


def test_the_actions_of_another_team_are_not_there(stranger: Client, world: World) -> None:
    for move in ("pause", "resume", "cancel", "retry", "clone", "change", "delete"):
        assert stranger.post(reverse(f"web:job_{move}", args=[world.job.pk])).status_code == 404
    assert Job.objects.filter(pk=world.job.pk).exists()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("state=nosuch", "'state' is 'nosuch'; give scheduled, queued, running"),
        ("stat=failed", "There is no filter 'stat'; the filters are: cloned_from, created_after"),
        ("created_after=soon", "'created_after' is 'soon'; give a moment with its time zone"),
    ],
)
def test_a_filter_that_cannot_be_is_told_and_lists_nothing(
    browser_client: Client, world: World, query: str, message: str
) -> None:
    job, address = world.job, reverse("web:job_list")
    assert str(job.pk) in text_of(browser_client.get(f"{address}?state={job.state}&sort=name"))
    page = text_of(browser_client.get(f"{address}?{query}"))
    assert message in html.unescape(page) and str(job.pk) not in page
