"""Why a document has its rank, looked at in a browser: the heat map, its buttons, two documents side by side."""

from __future__ import annotations

import re
import uuid

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import Visit
from tests.integration.rig import wait_for
from tests.integration.running import checked
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.usefixtures("served")]

DOCUMENTS = "id,text\nd1,Descale the kettle with citric acid: {0}.\nd2,Dry wet boots with paper; {0}.\n"


def test_a_heat_map_is_read_with_the_mouse_and_the_keyboard(visit: Visit, stack: Stack) -> None:
    job = _ended(stack)
    page = visit.page
    visit.open(f"/jobs/{job}/")
    page.get_by_role("link", name="Why this rank").first.click()
    expect(page.get_by_text("This is the stored score")).to_be_visible(timeout=60_000)
    kettle = page.locator(".heat-text span", has_text=re.compile("^kettle$"))
    expect(kettle).to_have_class(re.compile(r"\bcounted\b"))

    page.locator(".token", has_text="kettle").click()
    expect(page.locator(".heat-text .counted")).to_have_text(["kettle"])
    expect(kettle).to_have_class(re.compile(r"\bh10\b"))
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".token[aria-pressed=true]")).to_have_count(1)
    expect(kettle).not_to_have_class(re.compile(r"\bcounted\b"))
    page.keyboard.press("0")
    expect(page.locator(".token[aria-pressed=true]")).to_have_text("All")
    expect(kettle).to_have_class(re.compile(r"\bcounted\b"))

    score = re.search(r"Sum ([-\d.]+) = raw score ([-\d.]+)", page.locator(".sum-line").inner_text())
    assert score is not None and float(score[1]) == pytest.approx(float(score[2]), abs=1.5e-4)
    page.get_by_text("Table", exact=True).click()
    expect(page.get_by_role("row", name=re.compile("^kettle kettle"))).to_be_visible()
    page.get_by_text("Matrix", exact=True).click()
    page.get_by_label("Compare with").select_option("d2")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".heat-text")).to_have_count(2)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert visit.sideways() == 0, width
    assert visit.complaints == []


def _ended(stack: Stack) -> str:
    """The id of a job that a late-interaction model has done."""
    salt = uuid.uuid4().hex[:8]
    files = {"document-sets": DOCUMENTS.format(salt), "query-sets": f"id,text\nq1,How do I descale a kettle {salt}?\n"}
    ids = {
        kind: checked(
            stack.client.post(f"/api/v1/{kind}", data={"name": f"why {salt}"}, files={"file": ("rows.csv", text)})
        )["id"]
        for kind, text in files.items()
    }
    body = {"model": "minilm-late", "document_set": ids["document-sets"], "query_set": ids["query-sets"]}
    job = checked(stack.client.post("/api/v1/jobs", json=body))["id"]
    wait_for(lambda: checked(stack.client.get(f"/api/v1/jobs/{job}"))["state"] == "completed", seconds=120, every=0.5)
    return str(job)
