"""What all lists share: columns by choice, counts that say when they are estimates; and the page of components."""

from __future__ import annotations

import re

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from scoring.models import Document, TableChoice
from scoring.selectors.counting import rows_count
from tests.web import factories
from tests.web.conftest import World, text_of


def headings(page: str) -> list[str]:
    return re.findall('data-label="([^"]+)"', page)


def test_columns_are_chosen_kept_and_forgotten(browser_client: Client, analyst: User, world: World) -> None:
    jobs = reverse("web:job_list")
    assert len(headings(text_of(browser_client.get(jobs)))) == 7
    form = {"columns": ["pairs", "state", "no such"], "next": f"{jobs}?name=a&columns=name"}
    response = browser_client.post(reverse("web:columns", args=["jobs"]), form)
    assert response["Location"] == f"{jobs}?name=a&columns=name,pairs,state"
    page = text_of(browser_client.get(jobs))
    assert headings(page) == ["Name", "Pairs", "State"]
    # What the address says comes first, so that a link shows others what was meant.
    assert headings(text_of(browser_client.get(jobs, {"columns": "queued_at,name"}))) == ["Name", "Submitted"]
    browser_client.post(reverse("web:columns", args=["jobs"]), {"do": "reset", "next": "https://elsewhere.example/"})
    assert not TableChoice.objects.exists()
    assert len(headings(text_of(browser_client.get(jobs)))) == 7


def test_nobody_is_sent_elsewhere(browser_client: Client) -> None:
    for address in ("//elsewhere.example/x", "https:////elsewhere.example/x", "javascript:alert(1)"):
        response = browser_client.post(reverse("web:columns", args=["jobs"]), {"do": "reset", "next": address})
        assert re.match("/[^/]*", response["Location"]) and response["Location"][1:2] != "/", address


def test_counts_are_exact_while_few_and_estimates_above(world: World) -> None:
    assert rows_count(Document.objects.all()).exact
    many = rows_count(Document.objects.all(), exact_up_to=1)
    assert not many.exact and many.rows >= 2


def test_components_are_for_staff(browser_client: Client, admin_page: Client) -> None:
    assert browser_client.get(reverse("web:components")).status_code == 403
    page = text_of(admin_page.get(reverse("web:components")))
    assert "Showing 1–50 of 1,204" in page and "65–128: 41" in page and '"documents per second"' in page


def test_a_list_costs_the_same_however_long_it_is(
    browser_client: Client, world: World, analyst: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    url = reverse("web:set_list", args=["document-sets"])
    browser_client.get(url)
    with CaptureQueriesContext(connection) as alone:
        browser_client.get(url)
    for number in range(3):
        factories.imported(analyst, "documents", f"text\nrow {number}\n", name=f"S{number}", file_name="s.csv")
    with django_assert_num_queries(len(alone)) as captured:
        browser_client.get(url)
    (count,) = (query["sql"] for query in captured if "COUNT(*)" in query["sql"] and "subquery" in query["sql"])
    assert "file_name" not in count and "problems" not in count  # the keys alone are counted
