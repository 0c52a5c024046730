"""What concerns other people and programs, done in a browser: the queue, webhooks, roles, what belongs to others."""

from __future__ import annotations

import re
import uuid

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.accessibility import faults_of
from tests.e2e.conftest import Visit, logged_in
from tests.e2e.test_job_pages import nobody_works as nobody_works
from tests.e2e.test_job_pages import sets as sets
from tests.e2e.test_job_pages import submitted
from tests.integration.running import checked
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack]


@pytest.mark.usefixtures("served", "nobody_works")
def test_a_job_is_raised_in_the_queue_and_cancelled(visit: Visit, stack: Stack, sets: tuple[str, str]) -> None:
    page, jobs = visit.page, [submitted(stack, sets) for _ in range(2)]
    names = [f"{when} {uuid.uuid4().hex[:8]}" for when in ("earlier", "later")]
    for job, name in zip(jobs, names, strict=True):
        checked(stack.client.patch(f"/api/v1/jobs/{job}", json={"name": name}))
    visit.open("/queue/")
    assert in_order(page, names) == names
    page.get_by_role("link", name=names[1]).click()
    page.locator("summary", has_text="Change").click()
    page.get_by_label("Priority").fill("7")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("is changed")
    page.get_by_role("link", name="Queue").click()
    expect(page.locator("tbody tr", has_text=names[1])).to_contain_text("7")
    assert in_order(page, names) == names[::-1]
    for name in names:
        page.get_by_role("link", name=name).click()
        page.locator("summary", has_text="Cancel the job").click()
        page.get_by_role("button", name="Yes, cancel the job").click()
        expect(page.get_by_role("status")).to_contain_text("is being cancelled")
        page.get_by_role("link", name="Queue").click()
        # The page renews itself.
        expect(page.locator("tbody tr", has_text=name)).to_have_count(0, timeout=60_000)
    assert visit.complaints == []


def test_a_webhook_is_added_and_its_secret_shown_once(visit: Visit) -> None:
    page, purpose = visit.page, f"nightly {uuid.uuid4().hex[:8]}"
    visit.open("/webhooks/")
    page.get_by_role("link", name="New webhook").click()
    page.get_by_label("Address").fill("http://192.0.2.1/ended")
    page.get_by_label("What it is for").fill(purpose)
    page.get_by_role("button", name="Add it").click()
    expect(page.locator(".errorlist")).to_contain_text("not a public address")
    page.get_by_label("Address").fill("http://127.0.0.1:9/ended")
    page.get_by_role("button", name="Add it").click()
    secret = page.locator("#secret").inner_text()
    assert secret.startswith("whsec_") and faults_of(page) == []
    page.get_by_role("link", name="I have it").click()
    expect(page.get_by_role("heading", name=purpose, level=1)).to_be_visible()
    assert secret not in page.content()
    visit.open("/webhooks/")
    page.locator("tbody tr", has_text=purpose).get_by_role("link").first.click()
    page.get_by_role("button", name="Disable").click()
    expect(page.locator(".title-line")).to_contain_text("disabled")
    page.locator("summary", has_text="Delete").click()
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_role("status")).to_contain_text("is deleted")
    expect(page.locator("tbody tr", has_text=purpose)).to_have_count(0)


def test_a_role_decides_what_a_person_may(visit: Visit, stack: Stack, browser: Browser) -> None:
    name = f"person-{uuid.uuid4().hex[:8]}"
    password = stack.manage("create_user", name, "--role", "analyst").strip()
    person = logged_in(browser, stack.base_url, name, password)
    expect(person.get_by_role("link", name="Jobs", exact=True)).to_be_visible()
    expect(person.get_by_role("link", name="API tokens")).to_have_count(0)
    visit.open("/people/")
    row = visit.page.locator("tbody tr", has_text=name)
    row.get_by_label(f"Role of {name}").select_option("admin")
    row.get_by_role("button", name="Change").click()
    expect(visit.page.get_by_role("status")).to_contain_text(f"“{name}” is admin now")
    person.reload()
    expect(person.get_by_role("link", name="API tokens")).to_be_visible()
    row.get_by_role("button", name="Remove").click()
    expect(visit.page.get_by_role("status")).to_contain_text("belongs to this team no longer")
    assert visit.complaints == []


def test_what_belongs_to_another_team_is_not_found(visit: Visit, stack: Stack, browser: Browser) -> None:
    salt = uuid.uuid4().hex[:8]
    file = ("rows.csv", f"id,text\nd1,of one team alone {salt}\n")
    response = stack.client.post("/api/v1/document-sets", data={"name": f"ours {salt}"}, files={"file": file})
    ours = f"/document-sets/{checked(response)['id']}/"
    stack.manage("create_team", f"others {salt}")
    password = stack.manage("create_user", f"stranger-{salt}", "--team", f"others {salt}").strip()
    stranger = logged_in(browser, stack.base_url, f"stranger-{salt}", password)
    for path in (ours, f"/jobs/{uuid.uuid4()}/", "/nowhere/"):
        answer = stranger.goto(path)
        assert answer is not None and answer.status == 404, path
        assert salt not in stranger.content()
    assert faults_of(stranger) == []
    stranger.get_by_role("link", name="Go home").click()
    expect(stranger).to_have_url(re.compile(f"{stack.base_url}/$"))


def in_order(page: Page, names: list[str]) -> list[str]:
    """These jobs as the queue has them."""
    shown = page.locator("section[aria-labelledby=jobs-title] .main-link").all_inner_texts()
    return [name for name in shown if name in names]
