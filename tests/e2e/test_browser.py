"""What people do, done in a browser: from a file with a bad row to an exported ranking, and a model's switch."""

from __future__ import annotations

import csv
import re
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import MakeFile, Visit

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.usefixtures("served")]

DOCUMENTS = """key,headline,words
d1,Ticks,"Grip the tick with tweezers close to the skin and pull it straight out."
d2,Kettle,"Fill the kettle with water and citric acid to dissolve the limescale."
d3,too few
d4,Cyclone,"The tropical cyclone reached the coast on Tuesday evening."
"""
QUERIES = "id\ttext\nq1\tHow do I remove a tick from my leg?\nq2\tHow do I descale a kettle?\n"
JUDGEMENTS = "q1 0 d1 2\nq1 0 d4 0\nq2 0 d2 2\n"


def choose(page: Page, label: str, name: str) -> None:
    value = page.get_by_label(label).locator("option", has_text=name).get_attribute("value")
    page.get_by_label(label).select_option(value)


def test_from_a_file_with_a_bad_row_to_an_exported_ranking(visit: Visit, file_with: MakeFile) -> None:
    page, salt = visit.page, uuid.uuid4().hex
    documents = visit.upload(
        "document-sets",
        file_with("advice.csv", f"{DOCUMENTS}d5,Salt,{salt}\n"),
        "Keep the 4 good rows",
        {"Id": "key", "Text": "words", "Title": "headline"},
    )
    expect(page.get_by_text("has 2 columns, the header has 3")).to_be_visible()
    queries = visit.upload("query-sets", file_with("questions.tsv", f"{QUERIES}q3\t{salt}\n"), "Import 3 queries")
    visit.upload("judgement-sets", file_with("grades.txt", f"{JUDGEMENTS}q3 0 {salt} 0\n"), "Import 4 judgements")
    grades = page.get_by_role("heading", level=1).inner_text()

    visit.open("/jobs/new/")
    choose(page, "Document set", documents)
    choose(page, "Query set", queries)
    expect(page.locator("#size")).to_contain_text("12 pairs")
    page.get_by_role("radio", name=re.compile("^minilm-late")).check()
    page.get_by_role("textbox", name="Name").fill(f"Job {salt}")
    page.get_by_role("button", name="Start the job").click()

    # The page loads anew by itself when the job has ended.
    expect(page.locator(".hit").first).to_be_visible(timeout=120_000)
    expect(page.locator(".title-line")).to_contain_text("Completed")
    expect(page.locator(".hit").first).to_contain_text("Ticks")
    page.keyboard.press("j")
    expect(page.locator(".query-text")).to_have_text("How do I descale a kettle?")
    expect(page.locator(".hit").first).to_contain_text("Kettle")
    assert "query=1" in page.url
    job = urlsplit(page.url).path

    page.get_by_role("link", name="Evaluation", exact=True).click()
    choose(page, "Judgement set", f"{grades}, version 1")
    page.get_by_role("button", name="Measure").click()
    expect(page.get_by_text("n = 3 of 3")).to_be_visible()
    page.get_by_label("Parts of the evaluation").get_by_role("link", name="Queries").click()
    expect(page.locator("tbody tr", has_text="q2")).to_contain_text("1.0000")
    page.locator("tbody tr", has_text="q2").get_by_role("link").click()
    expect(page.get_by_text("rank 1").first).to_be_visible()
    page.get_by_role("link", name="The ranking").click()

    page.get_by_role("link", name="Results").click()
    page.get_by_role("link", name="Why this rank").first.click()
    expect(page.get_by_text("This is the stored score")).to_be_visible(timeout=60_000)
    expect(page.locator(".heat-text .counted").first).to_be_visible()

    visit.open(job)
    page.get_by_role("link", name="New job on these sets").click()
    page.get_by_role("radio", name=re.compile("^minilm bi")).check()
    page.get_by_role("button", name="Start the job").click()
    expect(page.locator(".hit").first).to_be_visible(timeout=120_000)
    page.get_by_role("link", name="Compare", exact=True).click()
    page.get_by_role("checkbox", name=re.compile("^minilm-late")).check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="How alike the rankings are")).to_be_visible()

    visit.open(job)
    with page.expect_download() as download:
        page.locator("summary", has_text="Export").click()
        page.get_by_role("link", name="CSV").click()
    rows = list(csv.DictReader(Path(download.value.path()).read_text(encoding="utf-8-sig").splitlines()))
    assert len(rows) == 12
    assert [row["document_id"] for row in rows if row["rank"] == "1"][:2] == ["d1", "d2"]
    assert visit.complaints == []


def test_bad_rows_are_taken_away_and_the_new_set_is_searched(visit: Visit, file_with: MakeFile) -> None:
    page, salt = visit.page, uuid.uuid4().hex
    visit.open("/document-sets/upload/")
    page.get_by_label("Choose a file, or drop it here").set_input_files(
        file_with("more.csv", f"{DOCUMENTS}d5,Salt,{salt}\n")
    )
    page.get_by_role("button", name="Look at the file").click()
    page.get_by_label("Id").select_option("key")
    expect(page.locator("thead .chip", has_text="Id")).to_be_visible()
    page.get_by_label("Text").select_option("words")
    expect(page.locator("thead .chip", has_text="Text")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the 1 bad row").click()
    (bad,) = csv.DictReader(Path(download.value.path()).read_text(encoding="utf-8-sig").splitlines())
    assert bad["line"] == "4" and bad["key"] == "d3" and "has 2 columns" in bad["reason"]
    page.get_by_role("button", name="Keep the 4 good rows").click()
    expect(page.get_by_role("heading", name="Lengths")).to_be_visible()
    page.get_by_label("An id, or words of title and text").fill("citric lime")
    page.keyboard.press("Enter")
    expect(page.locator(".job-list li")).to_have_count(1)
    expect(page.locator(".job-list li")).to_contain_text("limescale")
    visit.open("/document-sets/")
    page.locator("summary", has_text="Columns").click()
    page.get_by_label("File", exact=True).uncheck()
    page.get_by_role("button", name="Rows further left").click()
    page.get_by_role("button", name="Show these").click()
    expect(page.locator("thead th", has_text="File")).to_have_count(0)
    page.locator("summary", has_text="Columns").click()
    page.get_by_role("button", name="As at first").click()
    expect(page.locator("thead th", has_text="File")).to_have_count(1)
    assert visit.complaints == []


def test_a_query_is_answered_at_once_with_the_call_for_it(visit: Visit) -> None:
    page = visit.page
    visit.open("/try/?example")
    page.get_by_role("group", name="Models").get_by_label("minilm —").check()
    page.get_by_role("group", name="Models").get_by_label("minilm-late —").check()
    # A request that a newer one replaces is called off, without a word in the console.
    page.evaluate("for (const _ of [1, 2]) htmx.trigger('#ask', 'submit')")
    # Nobody presses a button: the answers come while one types.
    page.get_by_role("textbox", name="Query").press("End")
    page.get_by_role("textbox", name="Query").press_sequentially(" Please")
    expect(page.locator(".answers > section")).to_have_count(2, timeout=120_000)
    expect(page.locator(".hit")).to_have_count(8)
    expect(page.locator(".hit").first).to_contain_text("citric acid")
    page.get_by_text("The same by curl and in Python").first.click()
    expect(page.locator("#curl-1")).to_contain_text("kettle? Please")
    expect(page.locator("#python-1")).to_contain_text("assay.rerank(")
    page.get_by_label("Share this with your team as").fill("Kettles side by side")
    page.get_by_role("button", name="Save as an example").click()
    expect(page.get_by_role("heading", name="Kettles side by side", level=1)).to_be_visible()
    expect(page.locator(".hit")).to_have_count(8, timeout=60_000)
    page.get_by_role("link", name="Open a copy").click()
    expect(page.get_by_role("textbox", name="Query")).to_have_value(re.compile("kettle\\? Please"))
    expect(page.locator(".hit")).to_have_count(8, timeout=60_000)
    page.get_by_role("link", name="As stored").first.click()
    expect(page.get_by_role("heading", name="Where the time went")).to_be_visible()
    assert visit.complaints == []


def test_the_switch_of_gpu_maxsim_comes_into_force_and_is_seen_to(visit: Visit) -> None:
    page = visit.page
    visit.open("/models/minilm-late/")
    page.get_by_role("button", name="Load", exact=True).click()
    row = page.locator("#placements tbody tr", has_text="Ready").first
    expect(row).to_be_visible(timeout=60_000)
    expect(row).to_contain_text("with a fallback", timeout=30_000)  # wanted on the GPU, runs on the CPU: it says so
    switch = page.get_by_role("switch", name="GPU MaxSim")
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "false")
    expect(row).to_contain_text("as wanted", timeout=30_000)
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "true")
    assert visit.complaints == []


def test_keys_and_theme(visit: Visit) -> None:
    page = visit.page
    page.keyboard.press("g")
    page.keyboard.press("m")
    page.wait_for_url("**/models/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_label("Theme").select_option("dark")
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    visit.open("/jobs/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    assert visit.complaints == []


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_the_window(visit: Visit, width: int) -> None:
    visit.page.set_viewport_size({"width": width, "height": 844})
    for path in (
        "/", "/jobs/", "/jobs/new/", "/try/?example", "/score-requests/", "/document-sets/", "/query-sets/upload/",
        "/judgement-sets/", "/models/", "/models/minilm-late/", "/workers/", "/admin/",
    ):  # fmt: skip
        visit.open(path)
        assert visit.sideways() <= 0, path
    assert visit.complaints == []
