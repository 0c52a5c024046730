"""Two rankings compared in a browser: made on the form, filtered, walked through with j and k, pinned."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import Visit
from tests.e2e.test_job_pages import sets as sets
from tests.integration.rig import wait_for
from tests.integration.running import checked
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.usefixtures("served")]


def test_two_stages_are_compared_and_walked_through(visit: Visit, stack: Stack, sets: tuple[str, str]) -> None:
    page, job = visit.page, _cascade(stack, sets)
    visit.open(f"/jobs/{job}/")
    page.get_by_role("link", name="Compare", exact=True).click()
    expect(page.get_by_role("checkbox", name=re.compile("^BM25"))).to_be_checked()
    page.get_by_label("Name").fill("Words and meaning")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="How alike the rankings are")).to_be_visible()
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()

    page.get_by_role("navigation", name="Parts of the comparison").get_by_role("link", name="Queries").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    listed = page.url
    page.locator("tbody tr").first.get_by_role("link").click()
    slide = page.get_by_role("dialog", name="One query side by side")
    expect(slide.get_by_text("1 of 3")).to_be_visible()
    page.keyboard.press("j")
    expect(slide.get_by_text("2 of 3")).to_be_visible()
    page.keyboard.press("Escape")
    expect(slide).to_be_hidden()
    expect(page).to_have_url(listed)
    expect(page.locator("tbody tr").nth(1).get_by_role("link")).to_be_focused()

    page.keyboard.press("Enter")
    expect(slide.get_by_text("2 of 3")).to_be_visible()
    page.keyboard.press("k")
    expect(slide.get_by_text("1 of 3")).to_be_visible()
    expect(slide.locator(".side-columns > section")).to_have_count(2)
    slide.locator("[data-document]").first.hover()
    name = slide.locator("[data-document].same").first.get_attribute("data-document")
    expect(slide.locator(f'path.same[data-of="{name}"]')).to_have_count(1)
    assert slide.locator(".same").count() >= 2
    page.go_back()
    expect(slide).to_be_hidden()
    page.go_forward()
    expect(slide.get_by_text("1 of 3")).to_be_visible()
    page.reload()  # its address is a page of its own
    expect(page.get_by_role("link", name="All queries")).to_be_visible()
    assert page.get_by_role("dialog").count() == 0

    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator(".side-columns > section:visible")).to_have_count(1)
    page.get_by_role("navigation", name="Ranking shown").get_by_role("link", name="minilm").click()
    expect(page.locator(".side-columns > section:visible h2")).to_contain_text("minilm")
    assert visit.sideways() == 0
    page.keyboard.press("Escape")
    expect(page.locator("tbody tr")).to_have_count(3)
    assert visit.complaints == []


def _cascade(stack: Stack, sets: tuple[str, str]) -> str:
    """The id of a job by BM25 and then minilm, when it has ended."""
    ids = [
        checked(stack.client.get(f"/api/v1/{kind}", params={"name": name}))["results"][0]["id"]
        for kind, name in zip(("document-sets", "query-sets"), sets, strict=True)
    ]
    body = {"document_set": ids[0], "query_set": ids[1], "model": "minilm", "candidates": {"bm25": 8}}
    path = f"/api/v1/jobs/{checked(stack.client.post('/api/v1/jobs', json=body))['id']}"
    wait_for(lambda: checked(stack.client.get(path))["state"] == "completed", seconds=180, every=0.25)
    return path.rpartition("/")[2]
