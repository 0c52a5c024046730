"""Every page: renders for whom it should, under the content security policy, with a bounded number of queries."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.models import Team
from scoring.models import ScoreRequest, Webhook, Worker
from scoring.services.evaluations import evaluation_create
from scoring.states import WorkerState
from scoring.web.set_kinds import SET_KINDS
from tests.web import factories
from tests.web.conftest import World, text_of

INLINE = (
    re.compile(r"\sstyle\s*=", re.I),
    re.compile(r"<style\b", re.I),
    re.compile(r"<script\b(?![^>]*\bsrc=)", re.I),
    re.compile(r"<[^>]*\son[a-z]+\s*=", re.I),
    re.compile(r"""(?:href|src|action)\s*=\s*["']?\s*javascript:""", re.I),
)
OUTSIDE = re.compile(r"""(?:src|href|action|hx-[a-z]+)=["'](?:https?:)?//""", re.I)


def own_paths(world: World) -> list[str]:
    """Addresses of things that belong to the team."""
    request = ScoreRequest.objects.create(
        team=world.job.team,
        model_name="late",
        endpoint="/rerank",
        status_code=200,
        query_count=1,
        document_count=2,
        queries=["tick"],
        documents=["pull", "boil"],
        results=[{"index": i, "score": 0.5, "raw_score": 0.5, "status": "ok"} for i in range(2)],
        report={"pairing": "matrix", "scale": "maxsim", "backend": "cpu", "dtype": "float32"},
        timings={"queue": 0.1, "total": 12.5},
    )
    job = world.job.pk
    analyst = world.job.created_by
    assert analyst is not None
    made, _ = evaluation_create(
        principal=factories.principal(analyst), stage=world.job.last_stage, judgement_set=world.judgements
    )
    return [
        reverse("web:job_detail", args=[job]),
        reverse("web:job_detail", args=[job]) + "?query=1&search=a&rank=1",
        reverse("web:job_details", args=[job]),
        reverse("web:job_evaluation", args=[job]),
        *(reverse(f"web:evaluation_{name}", args=[made.pk]) for name in ("detail", "queries", "coverage", "stages")),
        reverse("web:evaluation_query", args=[made.pk, 0]),
        reverse("web:set_detail", args=["document-sets", world.documents.pk]),
        reverse("web:set_detail", args=["query-sets", world.queries.pk]),
        reverse("web:set_detail", args=["judgement-sets", world.judgements.pk]),
        reverse("web:score_request_detail", args=[request.pk]),
    ]


def common_paths() -> list[str]:
    return [
        reverse("web:home"),
        reverse("web:job_list"),
        reverse("web:job_list") + "?name=x&state=completed&sort=-name",
        reverse("web:evaluation_list"),
        reverse("web:leaderboard"),
        reverse("web:job_new"),
        reverse("web:score_request_list"),
        reverse("web:export_list"),
        reverse("web:try"),
        reverse("web:try") + "?example",
        reverse("web:model_list"),
        reverse("web:model_detail", args=["late"]),
        reverse("web:worker_list"),
        *(reverse("web:set_list", args=[kind]) for kind in SET_KINDS),
        *(reverse("web:upload", args=[kind]) for kind in SET_KINDS),
    ]


def assert_clean(response: Any) -> None:
    policy = response["Content-Security-Policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy
    html = response.content.decode()
    for pattern in INLINE:
        assert not (found := pattern.search(html)), f"{response.request['PATH_INFO']} holds {found and found[0]!r}"
    assert not (found := OUTSIDE.search(html)), (
        f"{response.request['PATH_INFO']} loads from elsewhere: {found and found[0]!r}"
    )


@pytest.mark.parametrize("who", ["browser_client", "admin_page"])
def test_every_page_renders_under_the_policy(who: str, world: World, request: pytest.FixtureRequest) -> None:
    client: Client = request.getfixturevalue(who)
    for path in [*common_paths(), *own_paths(world)]:
        response = client.get(path)
        assert response.status_code == 200, path
        assert_clean(response)
        assert "</footer>" in response.content.decode()


def test_every_page_renders_for_a_team_that_has_nothing(browser_client: Client) -> None:
    for path in common_paths():
        if path != reverse("web:model_detail", args=["late"]):
            response = browser_client.get(path)
            assert response.status_code == 200, path
            assert_clean(response)


def test_nobody_sees_a_page_without_logging_in(world: World, client: Client) -> None:
    for path in [*common_paths(), *own_paths(world)]:
        response = client.get(path)
        assert response.status_code == 302 and response["Location"].startswith(reverse("login")), path
    assert_clean(client.get(reverse("login")))


def test_what_belongs_to_another_team_is_not_there(world: World, stranger: Client) -> None:
    for path in own_paths(world):
        assert stranger.get(path).status_code == 404, path
    job, documents = world.job.pk, world.documents.pk
    assert stranger.get(reverse("web:job_progress", args=[job])).status_code == 404
    assert stranger.get(reverse("web:export", args=["results"]), {"job": str(job)}).status_code == 404
    assert stranger.post(reverse("web:job_cancel", args=[job])).status_code == 404
    assert stranger.post(reverse("web:set_delete", args=["document-sets", documents])).status_code == 404
    chosen = stranger.get(reverse("web:job_size"), {"document_set": str(documents), "query_set": str(world.queries.pk)})
    assert "6 pairs" not in text_of(chosen) and "Choose both sets" in text_of(chosen)
    assert "Advice" not in text_of(stranger.get(reverse("web:job_new")))
    assert "Advice" not in text_of(stranger.get(reverse("web:home")))


def test_a_role_without_jobs_sees_none_of_them(world: World, caller: Client) -> None:
    home = text_of(caller.get(reverse("web:home")))
    assert "Document sets" not in home and "New job" not in home and "Try it" in home
    assert caller.get(reverse("web:job_list")).status_code == 403
    assert caller.post(reverse("web:samples")).status_code == 403
    assert caller.get(reverse("web:model_list")).status_code == 200


def test_errors_look_like_the_rest(browser_client: Client, caller: Client) -> None:
    missing = browser_client.get("/nothing/here/")
    assert missing.status_code == 404
    assert "There is nothing at the address &#x27;/nothing/here/&#x27;." in text_of(missing)
    assert missing["X-Request-Id"] in text_of(missing)
    assert_clean(missing)
    refused = caller.get(reverse("web:job_list"))
    assert "needs the scope" in text_of(refused)
    assert_clean(refused)


def test_texts_of_people_are_escaped(browser_client: Client, analyst: User, world: World) -> None:
    nasty = "<script>alert(1)</script>"
    documents = factories.imported(
        analyst, "documents", f'id,text,title\n"{nasty}","{nasty}","{nasty}"\n', name=nasty, file_name=f"{nasty}.csv"
    )
    job = factories.finished(analyst, world.model, world.worker, documents, world.queries, name=nasty)
    for path in (
        reverse("web:set_detail", args=["document-sets", documents.pk]),
        reverse("web:set_list", args=["document-sets"]),
        reverse("web:job_detail", args=[job.pk]),
        reverse("web:job_list"),
        reverse("web:job_new"),
        reverse("web:home"),
    ):
        response = browser_client.get(path)
        assert nasty not in response.content.decode(), path
        assert_clean(response)


def count_queries(client: Client, path: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert client.get(path).status_code == 200
    return len(queries)


@pytest.mark.parametrize(
    "path_of",
    [
        lambda world: reverse("web:home"),
        lambda world: reverse("web:job_list"),
        lambda world: reverse("web:set_list", args=["document-sets"]),
        lambda world: reverse("web:set_list", args=["query-sets"]),
        lambda world: reverse("web:worker_list"),
        lambda world: reverse("web:model_list"),
        lambda world: reverse("web:set_detail", args=["document-sets", world.documents.pk]),
    ],
)
def test_more_rows_are_no_more_queries(
    path_of: Callable[[World], str], browser_client: Client, analyst: User, world: World
) -> None:
    path = path_of(world)
    browser_client.get(path)
    factories.submitted(analyst, world.model, world.documents, world.queries)
    before = count_queries(browser_client, path)
    for number in range(4):
        worker = factories.live_worker(f"worker-{number + 2}")
        factories.placed(world.model, worker)
        rows = f"id,text\nd{number},text {number}\n"
        documents = factories.imported(analyst, "documents", rows, name=f"Set {number}", file_name="more.csv")
        factories.submitted(analyst, world.model, documents, world.queries)
        factories.submitted(analyst, world.model, world.documents, world.queries)
    assert count_queries(browser_client, path) == before
    assert before <= 16


def test_lists_never_read_what_can_be_long(browser_client: Client, world: World) -> None:
    own_paths(world)
    for name, args, column in (
        ("web:set_list", ["document-sets"], '"problems"'),
        ("web:score_request_list", [], '"documents"'),
        ("web:job_list", [], '"raw_scores"'),
    ):
        with CaptureQueriesContext(connection) as queries:
            browser_client.get(reverse(name, args=args))
        assert not [query["sql"] for query in queries if column in query["sql"]]


def test_the_workers_page_shows_some_cards_and_counts_all(
    browser_client: Client, world: World, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    for number in range(2, 24):
        factories.live_worker(f"worker-{number:02}")
    Worker.objects.filter(name="worker-23").update(state=WorkerState.LOST)
    url = reverse("web:worker_list")
    first, last, lost = (
        html.unescape(text_of(browser_client.get(url, query))) for query in ({}, {"page": "2"}, {"state": "lost"})
    )
    for page, cards, renewed in ((first, 20, "?page=1"), (last, 3, "?page=2"), (lost, 1, "?state=lost&page=1")):
        assert page.count("card flush") == cards and f'hx-get="{url}{renewed}"' in page
        assert "ready 22" in page and "lost 1" in page
    assert "1–20 of 23" in first and 'aria-label="worker-23"' in lost
    with django_assert_max_num_queries(12):
        browser_client.get(url)
    assert "No worker is in this state" in text_of(browser_client.get(url, {"state": "stalled"}))


def test_a_page_that_is_not_there_is_said_to_be_another(admin_page: Client, team: Team, world: World) -> None:
    Webhook.objects.create(team=team, url="https://hooks.example/", pepper_id=1)
    rows = f"/document-sets/{world.documents.pk}/"
    for path in ("/jobs/", "/audit/", "/webhooks/", rows):
        for number in ("99999", "0"):
            beyond = admin_page.get(path, {"page": number}).content.decode()
            assert f"There is no page {number}; this is the last one, page 1." in beyond, path
        unread = html.unescape(admin_page.get(path, {"page": "x"}).content.decode())
        assert "'x' is no number of a page; this is the first page." in unread, path
        usual = admin_page.get(path).content.decode()
        assert "is no number of a page" not in usual and "There is no page" not in usual, path


def test_what_an_address_names_and_nobody_has_is_said(admin_page: Client, world: World) -> None:
    for path, noun in (("/models/nope/", "model"), ("/tokens/nope/", "API token"), ("/try/nope/", "example")):
        missing = admin_page.get(path)
        assert missing.status_code == 404 and f"There is no {noun} &#x27;nope&#x27;" in missing.content.decode()
    assert "stage" in admin_page.get(f"/jobs/{world.job.pk}/", {"stage": "99"}).content.decode()
    unknown = admin_page.get("/usage/", {"stat": "1"})
    assert unknown.status_code == 422 and "There is no filter &#x27;stat&#x27;" in unknown.content.decode()
    empty = admin_page.post("/tokens/new/", {}).content.decode()
    assert "Nothing stands here; fill it in." in empty and "This field is required" not in empty
