"""The page of a query set: searched by words, narratives and tags shown, filtered by tag."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from rest_framework.test import APIClient

from accounts.services import token_create
from scoring.models import QuerySet
from scoring.selectors.sets import set_rows
from tests.web import factories
from tests.web.conftest import World

QUERIES = (
    '{"id": "q1", "text": "pull out a tick", "narrative": "Relevant: tweezers, not oil.", "tags": ["health", "skin"]}\n'
    '{"id": "q2", "text": "descale a kettle", "tags": "cleaning, kitchen"}\n'
    '{"id": "q3", "text": "kettle is loud", "tags": "kitchen; noise", "source": "survey"}\n'
)


@pytest.fixture
def queries(analyst: User) -> QuerySet:
    found = factories.imported(analyst, "queries", QUERIES, name="Tagged", file_name="queries.jsonl")
    assert isinstance(found, QuerySet)
    return found


def names(queries: QuerySet, **asked: str) -> list[str]:
    return [row.external_id for row in set_rows(queries, **asked)]


def test_queries_are_found_by_words_of_text_and_narrative_and_by_tag(queries: QuerySet) -> None:
    assert names(queries, search="kett") == ["q2", "q3"] and names(queries, search="loud kettle") == ["q3"]
    assert names(queries, search="tweezers") == ["q1"] and names(queries, search="q2") == ["q2"]
    assert names(queries, search="ettle") == []  # beginnings of words
    assert names(queries, tag="kitchen") == ["q2", "q3"] and names(queries, tag="skin") == ["q1"]
    assert names(queries, tag="kit") == [] and names(queries, tag="kitchen", search="loud") == ["q3"]
    assert tuple(queries.statistics["tags"][0]) == ("kitchen", 2)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_indexscan = off")  # an index of words is read as a bitmap
        assert "query_words" in set_rows(queries, search="kett").explain()


def test_the_page_shows_and_filters_them(
    browser_client: Client, world: World, queries: QuerySet, analyst: User
) -> None:
    page = browser_client.get(f"/query-sets/{queries.pk}/").content.decode()
    assert "Relevant: tweezers, not oil." in page and 'href="?tag=skin"' in page and "kitchen (2)" in page
    assert "source: survey" in page and "tags:" not in page
    kitchen = browser_client.get(f"/query-sets/{queries.pk}/", {"tag": "kitchen"}).content.decode()
    assert "descale a kettle" in kitchen and "pull out a tick" not in kitchen and "tag=kitchen" in kitchen  # the export
    none = browser_client.get(f"/query-sets/{queries.pk}/", {"tag": "nothing"}).content.decode()
    assert "No query tagged “nothing”." in none
    job = factories.finished(analyst, world.model, world.worker, world.documents, queries)
    results = browser_client.get(f"/jobs/{job.pk}/", {"tag": "skin"}).content.decode()
    assert "pull out a tick" in results and "kettle is loud" not in results
    assert '<option value="skin" selected>' in results


def test_the_api_lists_the_queries_of_a_tag(queries: QuerySet) -> None:
    _, secret = token_create(team=queries.team, name="tags", scopes=["jobs"])
    api = APIClient(headers={"Authorization": f"Bearer {secret}"})
    found = api.get(f"/api/v1/query-sets/{queries.pk}/queries", {"tag": "kitchen"}).json()["results"]
    assert [row["id"] for row in found] == ["q2", "q3"]
