"""The same task in other ways: with the keyboard alone, and in a browser that runs no scripts."""

from __future__ import annotations

import csv
import re
import uuid
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.conftest import MakeFile, Visit, logged_in
from tests.integration.rig import wait_for
from tests.stack import ADMIN_PASSWORD, Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.usefixtures("served")]

DOCUMENTS = "key,words\nd1,Grip the tick with tweezers: {0}.\nd2\nd3,Descale the kettle with citric acid.\n"
QUERIES = "id\ttext\nq1\tHow do I remove a tick {0}?\nq2\tHow do I descale a kettle?\n"
FURTHEST = 120  # presses of Tab from one end of the longest page to the other


def test_from_a_file_to_an_export_with_the_keyboard_alone(visit: Visit, file_with: MakeFile) -> None:
    page, keys, salt = visit.page, Keys(visit.page), uuid.uuid4().hex[:8]
    keys.upload("Document sets", file_with(f"advice{salt}.csv", DOCUMENTS.format(salt)), "Keep the 2", "key", "words")
    keys.upload("Query sets", file_with(f"questions{salt}.tsv", QUERIES.format(salt)), "Import 2")

    keys.press("g", "j")
    expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    keys.press("n")
    expect(page.get_by_role("heading", name="New job")).to_be_visible()
    keys.choose("Document set", f"advice{salt}")
    keys.choose("Query set", f"questions{salt}")
    expect(page.locator("#size")).to_contain_text("4 pairs")
    keys.to(page.locator("input[name=model]").first)  # the group is one stop of Tab; arrows lead on
    wanted = page.get_by_role("radio", name=re.compile("^minilm-late"))
    page.keyboard.press("Space")
    while not wanted.is_checked():
        page.keyboard.press("ArrowDown")
    keys.go(page.get_by_role("button", name="Start the job"))

    expect(page.locator(".hit")).to_have_count(2, timeout=120_000)
    keys.press("j")
    expect(page.locator(".query-text")).to_have_text("How do I descale a kettle?")
    keys.go(page.get_by_role("link", name="Why this rank").first)
    expect(page.get_by_text("This is the stored score")).to_be_visible(timeout=60_000)
    keys.to(page.locator(".token", has_text="All"))
    keys.press("ArrowRight")
    expect(page.locator(".token[aria-pressed=true]")).not_to_have_text("All")
    keys.go(page.locator(".crumbs a").last)
    keys.go(page.locator("summary", has_text="Export"))
    keys.to(page.get_by_role("link", name="CSV"))
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    rows = list(csv.DictReader(Path(download.value.path()).read_text(encoding="utf-8-sig").splitlines()))
    assert [row["document_id"] for row in rows if row["rank"] == "1"] == ["d1", "d3"]
    assert visit.complaints == []


def test_from_a_file_to_results_without_scripts(browser: Browser, stack: Stack, file_with: MakeFile) -> None:
    page, salt = logged_in(browser, stack.base_url, "admin", ADMIN_PASSWORD, scripts=False), uuid.uuid4().hex[:8]
    page.goto("/document-sets/upload/")
    page.get_by_label("Choose a file").set_input_files(file_with(f"advice{salt}.csv", DOCUMENTS.format(salt)))
    page.get_by_role("button", name="Look at the file").click()
    page.get_by_label("Id").select_option("key")
    page.get_by_label("Text").select_option("words")
    page.get_by_role("button", name="Check again").click()
    expect(page.get_by_text("has 1 column, the header has 2")).to_be_visible()
    page.get_by_role("button", name="Keep the 2 good rows").click()
    expect(page.get_by_role("heading", name=f"advice{salt}", level=1)).to_be_visible()
    page.goto("/query-sets/upload/")
    page.get_by_label("Choose a file").set_input_files(file_with(f"questions{salt}.tsv", QUERIES.format(salt)))
    page.get_by_role("button", name="Look at the file").click()
    page.get_by_role("button", name="Import 2 queries").click()

    page.goto("/jobs/new/")
    for label, name in (("Document set", f"advice{salt}"), ("Query set", f"questions{salt}")):
        field = page.get_by_label(label, exact=True)
        field.select_option(field.locator("option", has_text=name).get_attribute("value"))
    page.get_by_role("radio", name=re.compile("^minilm-late")).check()
    page.get_by_role("button", name="Start the job").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"advice{salt}", ignore_case=True)
    wait_for(lambda: page.reload() and page.locator(".hit").count() == 2, seconds=120, every=0.5)
    page.get_by_role("link", name="How do I descale a kettle?").click()
    expect(page.locator(".hit").first).to_contain_text("citric acid")
    page.locator("summary", has_text="Show all").first.or_(page.locator(".hit summary").first).click()
    page.get_by_role("link", name="Details and log").click()
    expect(page.locator(".log")).to_contain_text("completed")


class Keys:
    """A person who has no mouse."""

    def __init__(self, page: Page) -> None:
        self.page = page
        # Somebody listens from the start: else the first choosers may open as windows of the system.
        page.on("filechooser", lambda _: None)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def to(self, target: Locator) -> None:
        """Tab, until the focus is on ``target``."""
        for _ in range(FURTHEST):
            if target.evaluate("element => element === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"The Tab key does not lead to {target}.")

    def go(self, target: Locator) -> None:
        self.to(target)
        self.page.keyboard.press("Enter")

    def choose(self, label: str | re.Pattern[str], option: str) -> None:
        """In a closed list of options one types the beginning of the wanted one."""
        field = self.page.get_by_label(label, exact=True)
        self.to(field)
        self.page.keyboard.type(option)
        expect(field.locator("option:checked")).to_contain_text(option, ignore_case=True)

    def upload(self, section: str, path: Path, button: str, *columns: str) -> None:
        self.press("g", section[0].lower())
        expect(self.page.get_by_role("heading", name=section, level=1)).to_be_visible()
        self.go(self.page.get_by_role("link", name=re.compile("^Upload")).first)
        self.to(self.page.get_by_label("Choose a file, or drop it here"))
        with self.page.expect_file_chooser() as chooser:
            self.page.keyboard.press("Enter")
        chooser.value.set_files(path)
        self.go(self.page.get_by_role("button", name="Look at the file"))
        for role, column in zip(("Id", "Text"), columns, strict=False):
            self.choose(re.compile(f"^{role}"), column)
            expect(self.page.locator("thead .chip", has_text=role)).to_be_visible()
        self.go(self.page.get_by_role("button", name=button))
        expect(self.page.get_by_role("heading", name=path.stem, level=1)).to_be_visible()
