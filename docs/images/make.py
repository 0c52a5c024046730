"""Photograph every page: ``python docs/images/make.py [PART OF A NAME …]``.

Starts the whole platform on servers of its own, does what a person does first (sample data, jobs, a comparison), and
writes each page at two widths in both themes into ``var/images/``, as WebP; those that the documentation shows, beside
this file. Says so where a page is wider than its window or the browser complains, and then ends with status 1.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
ALL: Final = ROOT / "var" / "images"
PORT: Final = 8931
WIDTHS: Final = {"wide": 1280, "narrow": 390}
THEMES: Final = ("light", "dark")
TALLEST: Final = 2400  # pixels: the rest of a longer page looks like its beginning
SHOWN_TALLEST: Final = 1100
SHOWN: Final = (
    "comparison", "evaluation", "explanation", "import", "job", "judging", "leaderboard", "model", "queue", "token-new",
    "try", "workers",
)  # fmt: skip
BAD_FILE: Final = "key,headline,words\nd1,Ticks,Pull it straight out with tweezers.\nd2,Kettle\nd3,Descaling,\n"

Open = Callable[[Page], None]


def at(path: str) -> Open:
    def open_page(page: Page) -> None:
        page.goto(path)

    return open_page


def first_of(path: str, links: str = "a.main-link", tab: str = "") -> Open:
    """The first entry of the list at ``path``, and a tab of its page."""

    def open_page(page: Page) -> None:
        page.goto(path)
        page.goto(f"{page.locator(links).first.get_attribute('href')}{tab}")

    return open_page


def import_of_a_bad_file(page: Page) -> None:
    page.goto("/document-sets/upload/")
    file = {"name": "advice.csv", "mimeType": "text/csv", "buffer": BAD_FILE.encode()}
    page.get_by_label("Choose a file, or drop it here").set_input_files(file)  # type: ignore[arg-type]
    page.get_by_role("button", name="Look at the file").click()
    expect(page.get_by_role("heading", name="Columns")).to_be_visible()
    page.get_by_label("Text").select_option("words")
    expect(page.get_by_text("has 2 columns, the header has 3")).to_be_visible()


def explained(page: Page) -> None:
    first_of("/jobs/")(page)
    page.get_by_role("link", name="Why this rank").first.click()
    expect(page.get_by_text("This is the stored score")).to_be_visible()


def answered(page: Page) -> None:
    page.goto("/try/?example")
    for name in ("minilm —", "minilm-late —"):
        page.get_by_role("group", name="Models").get_by_label(name).check()
    page.get_by_role("button", name="Rank").click()
    expect(page.locator(".hit").first).to_be_visible()


def tried(page: Page) -> None:
    page.goto("/jobs/new/")
    for label in ("Document set", "Query set"):
        page.get_by_label(label, exact=True).select_option(index=1)
    page.get_by_role("radio", name=re.compile("^minilm-late")).check()
    page.get_by_role("button", name="Try").click()
    expect(page.locator("#trial tbody tr").first).to_be_visible()


PAGES: Final[dict[str, Open]] = {
    "home": at("/"),
    "jobs": at("/jobs/"),
    "job-new": at("/jobs/new/"),
    "job-tried": tried,
    "job": first_of("/jobs/"),
    "job-details": first_of("/jobs/", tab="details/"),
    "job-evaluation": first_of("/jobs/", tab="evaluation/"),
    "evaluations": at("/evaluations/"),
    "evaluation": first_of("/evaluations/"),
    "evaluation-queries": first_of("/evaluations/", tab="queries/"),
    "leaderboard": at("/evaluations/leaderboard/"),
    "pools": at("/pools/"),
    "pool-new": at("/pools/new/"),
    "pool": first_of("/pools/"),
    "judging": first_of("/pools/", tab="judge/?terms"),
    "pool-bulk": first_of("/pools/", tab="bulk/"),
    "pool-agreement": first_of("/pools/", tab="agreement/"),
    "explanation": explained,
    "comparisons": at("/comparisons/"),
    "comparison-new": at("/comparisons/new/"),
    "comparison": first_of("/comparisons/"),
    "comparison-queries": first_of("/comparisons/", tab="queries/"),
    "comparison-query": first_of("/comparisons/", tab="queries/0/"),
    "comparison-settings": first_of("/comparisons/", tab="settings/"),
    "try": answered,
    "exports": at("/exports/"),
    "requests": at("/score-requests/"),
    "request": first_of("/score-requests/"),
    "document-sets": at("/document-sets/"),
    "document-set": first_of("/document-sets/"),
    "upload": at("/document-sets/upload/"),
    "import": import_of_a_bad_file,
    "query-set": first_of("/query-sets/"),
    "query-upload": at("/query-sets/upload/"),
    "judgement-set": first_of("/judgement-sets/"),
    "run-sets": at("/run-sets/"),
    "models": at("/models/"),
    "model": at("/models/minilm-late/"),
    "workers": at("/workers/"),
    "worker": first_of("/workers/", "main a[href^='/workers/']"),
    "model-new": at("/models/new/"),
    "queue": at("/queue/"),
    "usage": at("/usage/"),
    "tokens": at("/tokens/"),
    "token-new": at("/tokens/new/"),
    "webhooks": at("/webhooks/"),
    "webhook-new": at("/webhooks/new/"),
    "people": at("/people/"),
    "audit": at("/audit/"),
    "settings": at("/settings/"),
    "components": at("/components/"),
}


@contextmanager
def platform() -> Iterator[str]:
    """The platform on servers of its own; the address that logs an administrator in."""
    data_dir = tempfile.mkdtemp(prefix="assay-screens-")
    Path(data_dir).chmod(0o755)
    environment = os.environ | {"DATA_DIR": data_dir, "PYTHONUNBUFFERED": "1", "DEVICE": "cpu"}
    manage = [sys.executable, str(ROOT / "manage.py")]
    serve = subprocess.Popen(
        [*manage, "serve", "--empty", "--port", str(PORT)], env=environment, stdout=subprocess.PIPE, text=True
    )
    register: subprocess.Popen[bytes] | None = None
    try:
        assert serve.stdout is not None
        login = next((found[0] for line in serve.stdout if (found := re.search(r"http\S+/\S+/\S+", line))), None)
        if login is None:
            raise SystemExit(f"The platform did not start; its logs are in {data_dir}.")
        # Until the last model is served, the first ones are in use already.
        register = subprocess.Popen([*manage, "register_bundled_models"], env=environment)
        yield login
    finally:
        for process in filter(None, (register, serve)):
            process.terminate()
            process.wait(timeout=60)
        shutil.rmtree(data_dir, ignore_errors=True)


def prepare(page: Page) -> None:
    """The sample data, two jobs over it, a pool of the last one's documents and the comparison of both, by the way that
    a person takes."""
    page.set_viewport_size({"width": WIDTHS["wide"], "height": 860})
    page.get_by_role("button", name="Load the sample data").click()
    expect(page.get_by_text("The sample data is here")).to_be_visible()
    page.goto("/models/minilm-late/")
    while not page.get_by_text("Available", exact=True).count():
        page.wait_for_timeout(2000)
        page.reload()
    for model in ("minilm", "minilm-late"):
        run_job(page, model)
        job = page.url
        page.get_by_role("link", name="Evaluation", exact=True).click()
        page.get_by_label("Judgement set").select_option(index=1)
        page.get_by_role("button", name="Measure").click()
        expect(page.get_by_text("n = 12 of 12")).to_be_visible()
        page.goto(job)
    make_pool(page)
    page.goto(job)
    page.get_by_role("link", name="Compare", exact=True).click()
    for box in page.get_by_role("checkbox").all()[:2]:
        box.check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Biggest disagreements")).to_be_visible()


def run_job(page: Page, model: str) -> None:
    page.goto("/jobs/new/")
    for label in ("Document set", "Query set"):
        page.get_by_label(label, exact=True).select_option(index=1)
    page.get_by_role("radio", name=re.compile(f"^{model} ")).check()
    page.get_by_role("button", name="Start the job").click()
    expect(page.locator(".hit").first).to_be_visible(timeout=300_000)


def make_pool(page: Page) -> None:
    page.goto("/pools/new/")
    page.get_by_label("Job", exact=True).select_option(index=1)
    page.get_by_role("button", name="Go on").click()
    page.get_by_label("Without what is graded in").select_option(index=0)
    page.get_by_label("Name").fill("The first ten, judged once more")
    page.get_by_role("button", name="Make the pool").click()
    expect(page.get_by_role("heading", name="Progress")).to_be_visible()


def photograph(page: Page, name: str, show: Open, complaints: list[str]) -> None:
    """What ``show`` opens, at each width and in each theme."""
    for size, width in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": 860})
        show(page)
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if over > 0:
            complaints.append(f"{name} is {over} pixels wider than a window of {width}")
        height = int(page.evaluate("document.documentElement.scrollHeight"))
        page.set_viewport_size({"width": width, "height": min(height, TALLEST)})
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            (ALL / f"{name}-{size}-{theme}.webp").write_bytes(taken(page))
        if name in SHOWN and size == "wide":
            page.emulate_media(color_scheme="light")
            page.set_viewport_size({"width": width, "height": min(height, SHOWN_TALLEST)})
            (HERE / f"{name}.webp").write_bytes(taken(page))


def taken(page: Page) -> bytes:
    """What the window shows, as WebP, which Playwright itself cannot write."""
    found = page.context.new_cdp_session(page).send("Page.captureScreenshot", {"format": "webp", "quality": 70})
    return base64.b64decode(found["data"])


def note(page: Page, said: ConsoleMessage, complaints: list[str]) -> None:
    if said.type == "error":
        complaints.append(f"{page.url}: {said.text}")


def main(wanted: list[str]) -> int:
    chosen = {name: show for name, show in PAGES.items() if not wanted or any(part in name for part in wanted)}
    complaints: list[str] = []
    ALL.mkdir(parents=True, exist_ok=True)
    with platform() as login, sync_playwright() as playwright:
        browser: Browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-quic"]
        )
        context = browser.new_context(base_url=f"http://127.0.0.1:{PORT}")
        page = context.new_page()
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        page.goto(login)
        photograph(page, "home-empty", at("/"), complaints)
        prepare(page)
        page.on("console", lambda said: note(page, said, complaints))
        for name, show in chosen.items():
            try:
                photograph(page, name, show, complaints)
            except (AssertionError, PlaywrightError) as error:
                complaints.append(f"{name}: {error}")
        browser.close()
    print("\n".join(complaints))  # noqa: T201
    return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
