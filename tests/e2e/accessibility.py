"""Whether a page can be used by everybody: axe's serious and critical faults, and nothing wider than the window."""

from __future__ import annotations

from typing import Any, Final, Literal

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

Theme = Literal["light", "dark"]
HEIGHT: Final = 900
LOOKS_APART: Final = 100  # ms
ALL: Final[dict[str, Any]] = {"resultTypes": ["violations"]}
OVER: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
COLOURS: Final = ALL | {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
# By width and theme. A theme changes nothing but colours, so that all rules are asked once per width.
LOOKS: Final[dict[int, dict[Theme, dict[str, Any]]]] = {
    1280: {"light": ALL, "dark": COLOURS},
    390: {"dark": ALL, "light": COLOURS},
}


def faults_of(page: Page) -> list[str]:
    """Faults of the open page at both widths and in both themes."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found: list[str] = []
    for width, themes in LOOKS.items():
        page.set_viewport_size({"width": width, "height": HEIGHT})
        if (over := _over(page)) > 0:
            found.append(f"{width} px: the page is {over} pixels wider than the window")
        for theme, options in themes.items():
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            found += [f"{width} px, {theme}: {fault}" for fault in _axe(page, options)]
    page.set_viewport_size({"width": 1280, "height": HEIGHT})
    return found


def _over(page: Page) -> int:
    """By how many pixels the page is wider than the window. Charts follow a moment after it."""
    over = 0
    for _ in range(50):
        over = int(page.evaluate(OVER))
        if over <= 0:
            break
        page.wait_for_timeout(LOOKS_APART)
    return over


def _axe(page: Page, options: dict[str, Any]) -> list[str]:
    expect(page.locator(".htmx-request")).to_have_count(0)  # what waits for an answer is shown faded
    result = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{violation['id']}: {violation['help']}: {node['target'][0]} {node['html'][:200]} {node['failureSummary']}"
        for violation in result["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
