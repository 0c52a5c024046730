"""What administrators do, done in a browser: a model registered and switched, a token made and used."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import Visit
from tests.engine.tiny import build
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack]

PAGES = (
    "/models/new/", "/queue/", "/usage/", "/tokens/", "/tokens/new/", "/webhooks/", "/webhooks/new/", "/people/",
    "/audit/", "/settings/", "/admin/", "/admin/scoring/scoringmodel/", "/admin/scoring/scoringmodel/add/",
    "/admin/accounts/apitoken/add/", "/admin/audit/auditevent/",
)  # fmt: skip


def test_a_model_is_registered_and_its_switch_comes_into_force(visit: Visit, stack: Stack) -> None:
    page, name = visit.page, f"tiny-{uuid.uuid4().hex[:8]}"
    folder = build("bert", Path(stack.environment["MODEL_ROOTS"]) / name)
    visit.open("/models/")
    page.get_by_role("link", name="Register a model").click()
    page.get_by_label("Where the model is").fill(str(folder))
    page.get_by_role("button", name="Look into it").click()
    expect(page.get_by_role("heading", name=re.compile("What .* found"))).to_be_visible(timeout=60_000)
    expect(page.get_by_label("Name", exact=True)).to_have_value(name)
    page.get_by_label("Kind", exact=True).select_option("late-interaction")
    page.get_by_text("Of certain kinds only, and the self-test").click()
    page.get_by_label("Self test mode").select_option("numbers")
    page.get_by_role("button", name="Register", exact=True).click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    row = page.locator("#placements tbody tr", has_text="Ready").first
    expect(row).to_contain_text("with a fallback", timeout=60_000)
    page.get_by_role("switch", name="GPU MaxSim").click()
    expect(page.locator("#placements tbody tr", has_text="Ready").first).to_contain_text("as wanted", timeout=30_000)
    assert visit.complaints == []


def test_a_token_is_made_and_used_by_curl(visit: Visit) -> None:
    page = visit.page
    visit.open("/tokens/new/")
    page.get_by_label("What it is for").fill("a browser test")
    page.get_by_label("see models and workers").check()
    page.get_by_role("button", name="Make the token").click()
    # As the page says it, in a shell.
    command = page.locator("#curl").inner_text()
    assert json.loads(shell(command))["object"] == "list"
    page.get_by_role("link", name="I have it").click()
    page.get_by_role("link", name="a browser test").first.click()
    page.locator("summary", has_text="Revoke").click()
    page.get_by_role("button", name="Revoke it").click()
    expect(page.get_by_text("can no longer be used")).to_be_visible()
    assert "401" in shell(f"{command} --include")
    assert visit.complaints == []


def shell(command: str) -> str:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_complains_or_is_wider_than_the_window(visit: Visit, width: int) -> None:
    visit.page.set_viewport_size({"width": width, "height": 844})
    for path in PAGES:
        visit.open(path)
        assert visit.sideways() <= 0, path
        assert visit.complaints == [], path
