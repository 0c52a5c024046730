"""A real browser on the running platform. Without Chromium these tests are skipped, and say so."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.stack import ADMIN_PASSWORD, Stack

CANDIDATES = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


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
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(30_000)
    visit = Visit(page, stack.base_url)
    page.on("console", visit.note)
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    visit.open("/accounts/login/")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(ADMIN_PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{stack.base_url}/")
    return visit


@pytest.fixture(scope="session")
def served(stack: Stack) -> None:
    """The bundled models have passed their self-tests."""
    stack.manage("register_bundled_models")


@pytest.fixture
def file_with(tmp_path: Path) -> Callable[[str, str], Path]:
    def make(name: str, content: str) -> Path:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return path

    return make
