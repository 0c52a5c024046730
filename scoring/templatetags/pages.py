"""What the pages' templates may call: how numbers, times and states look, and the navigation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as distribution_version
from typing import Any

from django import template
from django.db.models import Model
from django.template import Context
from django.template.defaultfilters import filesizeformat
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince

from scoring.ingest.kinds import NAMED
from scoring.ingest.tags import tags_of
from scoring.states import (
    ExportState,
    ItemStatus,
    JobState,
    ModelState,
    PlacementState,
    PoolState,
    SetState,
    WorkerState,
)
from scoring.web.navigation import Group, navigation_for

register = template.Library()

# The look of a state; the text is what tells, the tone only helps.
TONES: dict[str, str] = {
    JobState.SCHEDULED: "wait",
    JobState.QUEUED: "wait",
    JobState.PAUSED: "wait",
    JobState.RUNNING: "live",
    JobState.CANCELLING: "warn",
    JobState.FINALIZING: "live",
    JobState.COMPLETED: "ok",
    JobState.COMPLETED_WITH_ERRORS: "warn",
    JobState.CANCELLED: "",
    JobState.EXPIRED: "warn",
    JobState.FAILED: "bad",
    ModelState.REGISTERED: "wait",
    ModelState.TESTING: "live",
    ModelState.AVAILABLE: "ok",
    ModelState.REJECTED: "bad",
    ModelState.DISABLED: "",
    SetState.RECEIVING: "live",
    SetState.READY: "ok",
    WorkerState.STARTING: "live",
    WorkerState.STALLED: "bad",
    WorkerState.DRAINING: "warn",
    WorkerState.DRAINED: "wait",
    WorkerState.MAINTENANCE: "wait",
    WorkerState.QUARANTINED: "bad",
    WorkerState.LOST: "bad",
    WorkerState.GONE: "",
    PlacementState.WANTED: "wait",
    PlacementState.LOADING: "live",
    PlacementState.WARMING: "live",
    PlacementState.CLAIMED: "live",
    PlacementState.DEGRADED: "warn",
    PlacementState.UPDATING: "live",
    PlacementState.UNKNOWN: "bad",
    PlacementState.UNLOADED: "",
    ExportState.WAITING: "wait",
    ExportState.RUNNING: "live",
    ExportState.DONE: "ok",
    ExportState.FAILED: "bad",
    PoolState.OPEN: "live",
    PoolState.CLOSED: "",
    ItemStatus.OK: "ok",
    ItemStatus.TRUNCATED: "warn",
    ItemStatus.EMPTY: "wait",
}

PHASES = ("queue", "tokenise", "forward", "maxsim", "total")


@register.simple_tag
def version() -> str:
    return _version()


@cache
def _version() -> str:
    try:
        return distribution_version("assay")
    except PackageNotFoundError:
        return "(not installed)"


@register.simple_tag(takes_context=True)
def navigation(context: Context) -> list[Group]:
    return navigation_for(context.get("request"), getattr(context.get("view"), "principal", None))


@register.simple_tag(takes_context=True)
def page_link(context: Context, name: str, value: object, drop: str = "") -> str:
    """The present address with one parameter changed, and another gone that made sense only with the old value."""
    parameters = context["request"].GET.copy()
    parameters.pop(drop, None)
    parameters[name] = str(value)
    return f"?{parameters.urlencode()}"


@register.simple_tag
def state(instance: Model) -> SafeString:
    """The state of a row as a chip."""
    value = instance.state  # type: ignore[attr-defined]
    return chip(instance.get_state_display(), TONES.get(value, ""))  # type: ignore[attr-defined]


@register.simple_tag
def status(value: str) -> SafeString:
    return chip(str(value), TONES.get(value, ""))


@register.simple_tag
def chip(text: str, tone: str = "") -> SafeString:
    return format_html('<span class="chip {}">{}</span>', tone, text)


@register.filter
def ago(moment: datetime | None) -> SafeString | str:
    """A moment as a person says it, with the exact time behind it."""
    if moment is None:
        return "never"
    seconds = (timezone.now() - moment).total_seconds()
    words = (
        "just now" if seconds < 5 else f"{int(seconds)} s ago" if seconds < 60 else f"{timesince(moment, depth=1)} ago"
    )
    exact = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(), exact, words)


@register.filter
def clock(moment: datetime) -> SafeString:
    return format_html('<time datetime="{}">{}</time>', moment.isoformat(), f"{moment:%Y-%m-%d %H:%M:%S}")


@register.filter
def duration(seconds: float | None) -> str:
    """Seconds in words: ``< 0.1 s``, ``8.4 s``, ``2 min 5 s``, ``3 h 20 min``."""
    if seconds is None:
        return "—"
    if seconds < 0.1:
        return "< 0.1 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@register.filter
def memory(count: int | None) -> str:
    """Bytes in the binary units, and by the names, that workers give them in their reasons."""
    text = filesizeformat(count or 0)
    return f"{text[:-1]}iB" if text.endswith("B") else text


@register.filter
def milliseconds(value: float | None) -> str:
    if value is None:
        return "—"
    return f"{value:,.1f} ms" if value < 100 else f"{value:,.0f} ms"


@register.filter
def by_phase(timings: dict[str, float]) -> list[tuple[str, float]]:
    """Timings in the order of the phases: the database keeps no order of an object's members."""
    return [(name, timings[name]) for name in PHASES if name in timings]


@register.filter
def score(value: float | None) -> str:
    """Four decimals, or four significant digits for what would vanish in them."""
    if value is None:
        return "no score"
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.3e}"


@register.filter
def rate(value: float | None) -> str:
    if value is None:
        return "—"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


@register.filter
def percent(value: float) -> str:
    """Rounded down, so that 100 % means done."""
    return f"{math.floor(value)}"


@register.filter
def tens(value: float) -> int:
    """For announcements: they should not come every two seconds."""
    return int(value // 10 * 10)


@register.filter
def timesince_seconds(moment: datetime) -> float:
    return max((timezone.now() - moment).total_seconds(), 0.0)


@register.filter
def state_words(value: str) -> str:
    return value.replace("_", " ")


@register.filter
def at(values: Sequence[Any], index: int) -> Any:
    return values[index]


@register.filter
def item(mapping: dict[str, Any], key: str) -> Any:
    return mapping.get(key)


@register.filter
def tags(metadata: dict[str, Any]) -> list[str]:
    """Of a query."""
    return tags_of(metadata)


@register.filter
def beside_text(metadata: dict[str, Any], noun: str) -> dict[str, Any]:
    """What of a row's metadata has no place of its own on the page of such a set."""
    placed = NAMED if noun == "query set" else ()
    return {name: value for name, value in metadata.items() if name not in placed}
