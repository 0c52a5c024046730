"""Jobs in a browser: a cascade put together on the form, and the buttons that steer a job."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import Visit
from tests.integration.running import checked
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.usefixtures("served")]

TOPICS = ("Grip the tick with tweezers", "Descale the kettle with citric acid", "Dry the wet boots with paper")
QUERIES = "id\ttext\nq1\tHow do I remove a tick?\nq2\tHow do I descale a kettle?\n"


@pytest.fixture
def sets(stack: Stack) -> tuple[str, str]:
    """Names of a document set and a query set that no other test has."""
    salt = uuid.uuid4().hex[:8]
    rows = "".join(f"d{n},{TOPICS[n % 3]} number {n} {salt}\n" for n in range(30))
    files = {"document-sets": f"id,text\n{rows}", "query-sets": f"{QUERIES}q3\tWhat of boots {salt}?\n"}
    return tuple(_uploaded(stack, kind, f"{kind} {salt}", text) for kind, text in files.items())  # type: ignore[return-value]


def _uploaded(stack: Stack, kind: str, name: str, text: str) -> str:
    file_name = "rows.csv" if kind == "document-sets" else "rows.tsv"
    response = stack.client.post(f"/api/v1/{kind}", data={"name": name}, files={"file": (file_name, text)})
    assert response.status_code == 201, response.text
    return name


@pytest.fixture
def nobody_works(stack: Stack) -> Iterator[None]:
    """The workers are drained while the test runs, so that a job stays as it was told to be."""
    drained: list[str] = []
    try:
        for worker in checked(stack.client.get("/api/v1/workers"))["results"]:
            if worker["name"] in stack.workers:  # others were of earlier tests
                path = f"/api/v1/workers/{worker['id']}"
                checked(stack.client.post(f"{path}/drain", json={"reason": "a test steers a job"}))
                drained.append(path)
        yield
    finally:
        for path in drained:
            checked(stack.client.post(f"{path}/resume", json={"reason": "the test is over"}))


def submitted(stack: Stack, sets: tuple[str, str]) -> str:
    """The id of a job over the sets of these names."""
    found = [
        checked(stack.client.get(f"/api/v1/{kind}", params={"name": name}))["results"][0]["id"]
        for kind, name in zip(("document-sets", "query-sets"), sets, strict=True)
    ]
    body = {"document_set": found[0], "query_set": found[1], "model": "minilm"}
    return str(checked(stack.client.post("/api/v1/jobs", json=body))["id"])


def choose(scope: Page | Locator, label: str, name: str) -> None:
    field = scope.get_by_label(label, exact=True)
    field.select_option(field.locator("option", has_text=name).get_attribute("value"))


def test_a_cascade_is_put_together_and_its_stages_are_looked_through(visit: Visit, sets: tuple[str, str]) -> None:
    page = visit.page
    visit.open("/jobs/new/")
    expect(page.get_by_role("link", name="Workers")).to_be_visible()
    choose(page, "Document set", sets[0])
    choose(page, "Query set", sets[1])
    expect(page.locator("#size")).to_contain_text("90 pairs")

    found = page.get_by_label("Documents found per query")
    expect(found).to_be_hidden()
    page.get_by_role("radio", name=re.compile("^The best by BM25")).check()
    found.fill("8")
    page.get_by_role("radio", name=re.compile("^minilm bi")).check()
    page.locator("#id_top_k").fill("4")
    page.get_by_role("button", name="Add a model").click()
    second = page.get_by_role("group", name="Model 2")
    choose(second, "Model", "minilm-late")
    second.get_by_label("Documents kept per query").fill("2")
    expect(page.locator("#size")).to_contain_text("minilm-late 12")
    page.get_by_role("button", name="Start the job").click()

    expect(page.locator(".hit")).to_have_count(2, timeout=120_000)
    stages = page.get_by_role("navigation", name="Stages")
    expect(stages.get_by_role("link")).to_have_text(["BM25", "minilm", "minilm-late"])
    expect(page.locator(".hit").first).to_contain_text("in minilm")
    stages.get_by_role("link", name="BM25").click()
    expect(stages.locator("[aria-current]")).to_have_text("BM25")
    expect(page.locator(".hits")).not_to_contain_text("minilm")
    page.get_by_role("link", name="Details and log").click()
    expect(page.get_by_text("Stage 3: done")).to_be_visible()
    page.get_by_role("link", name="Everything").click()
    expect(page.get_by_text("Stage 1, chunk 0: done")).to_be_visible()
    visit.open("/jobs/")
    expect(page.locator("tbody tr", has_text=sets[0])).to_contain_text("BM25 → minilm → minilm-late")
    assert visit.complaints == []


@pytest.mark.usefixtures("nobody_works")
def test_a_job_is_paused_resumed_cancelled_and_retried(visit: Visit, stack: Stack, sets: tuple[str, str]) -> None:
    page = visit.page
    job = submitted(stack, sets)
    visit.open(f"/jobs/{job}/")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("is paused")
    expect(page.locator("#progress .chip").first).to_have_text("Paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status")).to_contain_text("goes on")
    expect(page.locator("#progress .chip").first).to_have_text("Queued")

    page.locator("summary", has_text="Cancel the job").click()
    page.get_by_role("button", name="Yes, cancel the job").click()
    # The page loads anew by itself when the job has ended.
    retry = page.get_by_role("button", name="Retry what is unfinished")
    expect(retry).to_be_visible(timeout=60_000)
    expect(page.get_by_role("heading", name="No results")).to_be_visible()
    retry.click()
    expect(page.get_by_role("status")).to_contain_text("queued again")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.locator(".log")).to_contain_text("attempt 2")
    assert visit.complaints == []
    assert stack.client.post(f"/api/v1/jobs/{job}/cancel").is_success


def test_a_job_is_tried_watched_and_looked_through_by_keyboard(visit: Visit, sets: tuple[str, str]) -> None:
    page = visit.page
    visit.open("/jobs/new/")
    choose(page, "Document set", sets[0])
    choose(page, "Query set", sets[1])
    page.get_by_role("radio", name=re.compile("^minilm-late")).check()
    trial = page.locator("#trial")
    trial.get_by_label("Query to try").fill("q2")
    trial.get_by_role("button", name="Try").click()
    expect(trial.locator("tbody tr")).to_have_count(20, timeout=120_000)
    expect(trial).to_contain_text("How do I descale a kettle?")
    expect(trial.locator("tbody tr").first).to_contain_text("Descale the kettle")
    expect(page.locator("#size")).to_contain_text("90 pairs")
    page.get_by_role("button", name="Start the job").last.click()

    # The page renews itself until there are results.
    expect(page.locator(".hit")).to_have_count(10, timeout=120_000)
    address = re.compile(r"[?&]query=1(&|$)")
    page.keyboard.press("j")
    expect(page.locator(".query-text")).to_have_text("How do I descale a kettle?")
    expect(page).to_have_url(address)
    first = page.locator(".hit").first
    page.keyboard.press("b")
    expect(first.get_by_role("button", name="Bookmark")).to_have_attribute("aria-pressed", "true")
    expect(page).to_have_url(address)
    first.locator("summary", has_text="Note").click()
    first.get_by_label("Your note").fill("Just right")
    first.get_by_role("button", name="Keep the note").click()
    expect(page.locator(".kept-note")).to_have_text("Just right")
    page.keyboard.press("k")
    expect(page.locator(".query-text")).to_have_text("How do I remove a tick?")
    page.get_by_label("Queries with", exact=True).select_option("bookmarks")
    expect(page.locator(".query-list a")).to_have_count(1)
    page.keyboard.press("Escape")
    page.locator(".query-list a").click()
    expect(page.locator(".kept-note")).to_have_text("Just right")
    page.reload()
    expect(page.locator(".kept-note")).to_have_text("Just right")
    expect(page.locator(".query-list a")).to_have_count(1)
    page.keyboard.press("/")
    expect(page.get_by_label("Query contains")).to_be_focused()
    assert visit.complaints == []
