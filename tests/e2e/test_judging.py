"""A pool judged in a browser by keyboard, then many on a page, and published."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import Visit
from tests.integration.running import checked
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack]

DOCUMENTS = "id,title,text\n" + "".join(
    f"d{i},Kettle {i},Descale the kettle number {i} with citric acid; rinse it twice.\n" for i in range(6)
)
QUERIES = "id\ttext\tnarrative\nq1\tdescale a kettle\tOnly what says how.\n"
RUN = "".join(f"q1 Q0 d{i} {i + 1} {9 - i} bm25\n" for i in range(6))


@pytest.fixture
def pool(stack: Stack) -> str:
    """The path of a pool of six pairs."""
    sets = {}
    for kind, field, name, content in (
        ("document-sets", "document_set", "kettles.csv", DOCUMENTS),
        ("query-sets", "query_set", "kettles.tsv", QUERIES),
        ("runs", "run_set", "kettles.run", RUN),
    ):
        answer = stack.client.post(
            f"/api/v1/{kind}", files={"file": (name, content)}, data={"name": name, "use_existing": "true"}
        )
        sets[field] = checked(answer)["id"]
    body = {**sets, "name": "Kettles", "guidelines": "Relevant: it says how."}
    return f"/pools/{checked(stack.client.post('/api/v1/pools', json=body))['id']}/"


def test_a_pool_is_judged_by_keyboard_and_published(visit: Visit, pool: str) -> None:
    page = visit.page
    visit.open(pool)
    page.get_by_role("link", name="Judge", exact=True).click()
    page.wait_for_load_state()  # keys are shortcuts from then on

    def said(pattern: str) -> None:
        expect(page.get_by_role("status").filter(has_text=re.compile(pattern))).to_be_visible()

    expect(page.get_by_text("Only what says how.")).to_be_visible()
    page.keyboard.press("2")
    said(r"^Saved: d\d – relevant\.$")
    page.keyboard.press("z")
    said(r"^Taken back")
    page.keyboard.press("3")
    said("highly relevant")
    page.keyboard.press("u")
    said("cannot be judged")
    page.keyboard.press("l")
    said("^Put off")
    page.keyboard.press("e")
    expect(page.get_by_text("Relevant: it says how.")).to_be_visible()
    page.keyboard.press("0")
    said("not relevant")
    expect(page.get_by_text("Relevant: it says how.")).to_be_visible()  # for the next pair too
    expect(page.get_by_text("3 of 6, yours 3")).to_be_visible()

    page.route("**/judge/**", lambda route: route.abort())
    page.keyboard.press("1")
    expect(page.get_by_text("Not saved.")).to_be_visible()
    page.unroute("**/judge/**")
    page.keyboard.press("Enter")  # the button that sends it again has the focus
    expect(page.get_by_text("4 of 6, yours 4")).to_be_visible()
    visit.complaints.clear()  # of the request that was stopped here

    page.keyboard.press("?")
    page.get_by_label("Single keys are shortcuts").uncheck()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("1")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_text("4 of 6, yours 4")).to_be_visible()
    page.evaluate("localStorage.removeItem('keys')")

    visit.open(f"{pool}bulk/")
    expect(page.locator(".bulk-row")).to_have_count(2)
    page.keyboard.press("j")
    page.keyboard.press("2")
    expect(page.locator(".bulk-row .save-state").first).to_have_text("saved")
    page.keyboard.press("j")
    page.keyboard.press("u")
    expect(page.locator(".bulk-row .save-state").last).to_have_text("saved")

    visit.open(pool)
    page.get_by_role("button", name="Publish as version 1 (4 new grades)").click()
    expect(page.get_by_text("Version 1 is there, with 4 new grades.")).to_be_visible()
    for address in (pool, f"{pool}judge/", f"{pool}bulk/", "/pools/"):
        page.set_viewport_size({"width": 390, "height": 844})
        visit.open(address)
        assert visit.sideways() == 0, address
    assert visit.complaints == []
