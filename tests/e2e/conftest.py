"""A real browser on the running platform. Without Chromium these tests are skipped, and say so."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.stack import ADMIN_PASSWORD, Stack

CANDIDATES = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

expect.set_options(timeout=20_000)  # a busy machine is not a broken page

MakeFile = Callable[[str, str], Path]


@dataclass
class Visit:
    """A page of a logged-in administrator. ``complaints`` are what the browser's console said in red."""

    page: Page
    base_url: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        response = self.page.goto(self.base_url + path)
        assert response is not None and response.ok, f"{path} answers {response and response.status}"

    def note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def look_at(self, kind: str, path: Path) -> None:
        """The first step of an upload; the second is open then."""
        self.open(f"/{kind}/upload/")
        self.page.get_by_label("Choose a file, or drop it here").set_input_files(path)
        self.page.get_by_role("button", name="Look at the file").click()
        expect(self.page.get_by_role("heading", name="First rows")).to_be_visible()

    def upload(self, kind: str, path: Path, button: str, columns: dict[str, str] | None = None) -> str:
        """All three steps; returns the name under which the set is stored, which no earlier run used."""
        page, name = self.page, f"{path.stem} {uuid.uuid4().hex[:8]}"
        self.look_at(kind, path)
        for role, column in (columns or {}).items():
            page.get_by_label(role).select_option(column)
            expect(page.locator("thead .chip", has_text=role)).to_be_visible()
        page.get_by_label("Name of the").fill(name)
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
        return name

    def sideways(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.fixture
def browser() -> Iterator[Browser]:
    # One per test: while Playwright's event loop runs in this thread, other tests could not use Django's database.
    executable = next((found for name in CANDIDATES if (found := shutil.which(name))), None)
    if executable is None:
        pytest.skip(
            "No Chromium is installed (Debian: apt-get install chromium), so nothing can be looked at in a browser."
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser, stack: Stack) -> Visit:
    page = logged_in(browser, stack.base_url, "admin", ADMIN_PASSWORD)
    visit = Visit(page, stack.base_url)
    page.on("console", visit.note)
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    return visit


def logged_in(browser: Browser, base_url: str, name: str, password: str, *, scripts: bool = True) -> Page:
    """The first page, as this person sees it."""
    page = browser.new_page(base_url=base_url, viewport={"width": 1280, "height": 900}, java_script_enabled=scripts)
    page.set_default_timeout(30_000)
    page.goto("/accounts/login/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{base_url}/")
    return page


@pytest.fixture(scope="session")
def served(stack: Stack) -> None:
    """The bundled models have passed their self-tests."""
    stack.manage("register_bundled_models")


@pytest.fixture
def file_with(tmp_path: Path) -> MakeFile:
    def make(name: str, content: str) -> Path:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return path

    return make
