"""The results of a job looked through: filters, ties, histogram, bookmarks and notes, the best passage."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from scoring.models import Annotation, Job, QueryResult, Worker
from scoring.ranking import ties
from scoring.services.chunks import chunk_lease
from scoring.services.passages import MOST_PASSAGES, passages_of
from scoring.services.stage_plan import StagePlan
from tests.web import factories
from tests.web.conftest import World, text_of

SAME = "id,text\n" + "".join(f"n{number},a tick bites\n" for number in range(12)) + "n12,\n"


@pytest.fixture
def tied(analyst: User, world: World) -> Job:
    """Of twelve documents with a text each scores the same as the others, for either query."""
    documents = factories.imported(analyst, "documents", SAME, name="Same", file_name="same.csv")
    return factories.finished(analyst, world.model, world.worker, documents, world.queries)


def queries_listed(client: Client, job: Job, **parameters: str) -> list[str]:
    page = text_of(client.get(reverse("web:job_detail", args=[job.pk]), parameters))
    return re.findall(r'id="query-\d+".*?<span>(.*?)</span>', page)


def test_ties_are_counted_over_all_ranks_and_across_the_top() -> None:
    raw = np.array([5, 4, 4, 4, 3, 3, np.nan, np.nan], np.float32)
    assert ties(raw, top=2) == (4, 2)
    assert ties(raw, top=10) == (4, 0)
    assert ties(raw[6:], top=1) == (0, 0)


def test_ties_are_said_marked_and_listed(browser_client: Client, world: World, tied: Job) -> None:
    page = text_of(browser_client.get(reverse("web:job_detail", args=[tied.pk])))
    assert "Ties: 132 pairs of documents with the same score, of which 40 straddle the top ten" in page
    assert page.count(">tied</span>") == 10
    assert queries_listed(browser_client, tied, **{"with": "ties-at-top"}) == ["q1", "q2"]
    assert queries_listed(browser_client, world.job, **{"with": "ties"}) == []
    QueryResult.objects.filter(stage__job=tied).update(tied_pairs=None, tied_at_top=None)
    assert "Ties:" not in text_of(browser_client.get(reverse("web:job_detail", args=[tied.pk])))


def test_queries_are_filtered_by_what_their_documents_are(browser_client: Client, world: World) -> None:
    assert queries_listed(browser_client, world.job, **{"with": "empty"}) == ["q1", "q2"]
    assert queries_listed(browser_client, world.job, **{"with": "empty", "search": "descale"}) == ["q2"]
    assert queries_listed(browser_client, world.job, **{"with": "failed"}) == []
    assert queries_listed(browser_client, world.job, **{"with": "nonsense"}) == ["q1", "q2"]
    QueryResult.objects.filter(stage__job=world.job, query_position=1).update(statuses=bytes([0, 1, 3]))
    assert queries_listed(browser_client, world.job, **{"with": "failed"}) == ["q2"]
    assert queries_listed(browser_client, world.job, **{"with": "truncated"}) == ["q2"]
    page = text_of(browser_client.get(reverse("web:job_detail", args=[world.job.pk]), {"with": "ties"}))
    assert "No query has what you chose above" in page


def test_the_scores_of_a_query_are_drawn(browser_client: Client, tied: Job, world: World) -> None:
    page = text_of(browser_client.get(reverse("web:job_detail", args=[world.job.pk])))
    drawn = page[page.index("How the scores of this query lie") :]
    counted = [int(count) for count in re.findall(r'<td class="num">(\d+)</td>', drawn)]
    assert len(counted) == 20 and sum(counted) == 2
    QueryResult.objects.filter(stage__job=tied).update(raw_scores=b"\0\0\xc0\x7f" * 13, scores=b"")  # none has a score
    assert "How the scores" not in text_of(browser_client.get(reverse("web:job_detail", args=[tied.pk])))


def test_a_document_is_bookmarked_and_noted_and_found_again(
    browser_client: Client, admin_page: Client, world: World
) -> None:
    url, keep = (reverse(f"web:{name}", args=[world.job.pk]) for name in ("job_detail", "result_keep"))
    pair = {"query": "1", "document": "0"}
    response = browser_client.post(f"{keep}?query=1&search=kettle", {**pair, "bookmarked": "yes"})
    assert response["Location"] == f"{url}?query=1&search=kettle#d0"
    browser_client.post(keep, {**pair, "note": "  Odd <one> "})
    page = text_of(browser_client.get(url, {"query": "1"}))
    assert page.count('aria-pressed="true"') == 1 and "Odd &lt;one&gt;</p>" in page
    for having in ("bookmarks", "notes"):
        assert queries_listed(browser_client, world.job, **{"with": having}) == ["q2"]
    assert 'aria-pressed="true"' not in text_of(browser_client.get(url, {"query": "0"}))
    theirs = text_of(admin_page.get(url, {"query": "1"}))
    assert 'aria-pressed="true"' not in theirs and "Odd" not in theirs

    browser_client.post(keep, {**pair, "bookmarked": "no"})
    assert Annotation.objects.get().note == "Odd <one>"
    browser_client.post(keep, {**pair, "note": ""})
    assert not Annotation.objects.exists()


def test_what_is_no_pair_of_the_job_is_not_kept(browser_client: Client, stranger: Client, world: World) -> None:
    keep = reverse("web:result_keep", args=[world.job.pk])
    refused = browser_client.post(keep, {"query": "2", "document": "0", "bookmarked": "yes"}, follow=True)
    assert "query 2 with document 0 is no pair of it" in text_of(refused)
    refused = browser_client.post(keep, {"query": "0", "document": "0", "note": "x" * 4001}, follow=True)
    assert "The note has 4,001 characters; shorten it to 4,000." in text_of(refused)
    assert browser_client.post(keep, {"query": "-1", "document": "0"}).status_code == 404
    for name in ("result_keep", "result_passage"):
        url = reverse(f"web:{name}", args=[world.job.pk])
        assert stranger.post(url, {"query": "0", "document": "0", "bookmarked": "yes"}).status_code == 404
    assert not Annotation.objects.exists()


def test_passages_cover_a_text_without_gaps() -> None:
    text = "One short sentence. " * 30 + "\n\nNo stop at the end" + " and on" * 60
    places = passages_of(text)
    assert "".join(text[start:stop] for start, stop in places) == text and len(places) == 4
    assert all(stop - start >= 160 for start, stop in places[:-1])
    assert len(passages_of("A sentence. " * 5000)) <= MOST_PASSAGES + 1
    assert passages_of("") == []


def test_why_there_is_no_best_passage_is_said_in_place(browser_client: Client, world: World) -> None:
    Worker.objects.update(heartbeat_at="2020-01-01T00:00Z")
    url, pair = reverse("web:result_passage", args=[world.job.pk]), {"query": "0", "document": "0"}
    part = text_of(browser_client.post(url, pair, headers={"HX-Request": "true"}))
    assert part.startswith('<div id="text-0"') and "no worker is running" in part and "with tweezers" in part
    whole = text_of(browser_client.post(f"{url}?query=0", pair))
    assert f'href="{reverse("web:job_detail", args=[world.job.pk])}?query=0#d0"' in whole and "no worker" in whole
    empty = text_of(browser_client.post(url, {"query": "0", "document": "2"}))
    assert "No part of this document got a score" in empty


def test_a_page_of_results_asks_as_often_for_many_documents(
    browser_client: Client, world: World, tied: Job, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    with django_assert_max_num_queries(26):
        page = text_of(
            browser_client.get(reverse("web:job_detail", args=[tied.pk]), {"with": "ties", "search": "tick"})
        )
    assert html.unescape(page).count('class="hit') >= 10


def test_what_runs_is_shown_by_stage_and_chunk(browser_client: Client, analyst: User, world: World) -> None:
    stages = [StagePlan(model=world.model, top_k=2), StagePlan(model=world.model, source=0)]
    job = factories.submitted(analyst, world.model, world.documents, world.queries, stages=stages)
    assert chunk_lease(worker=world.worker) is not None
    page = text_of(browser_client.get(reverse("web:job_progress", args=[job.pk])))
    assert "0 of 6</td>" in page and "0 of up to 4</td>" in page
    assert re.search(r'data-label="Queries">2 from 0</td> <td data-label="Candidates">3 from 0</td>', page)
