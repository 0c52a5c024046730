"""The settings in force, each with its source. Secrets, and addresses that may hold one, are only said to be set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings

from assay.settings import env


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """``value`` None: not shown."""

    name: str
    value: str | None
    source: str


def settings_in_force() -> list[SettingInForce]:
    """By name. Those that another way of running reads are not among them."""
    found = []
    for name, source in sorted(env.sources().items()):
        hidden = env.may_hold_secret(name)
        if hidden or hasattr(settings, name):
            found.append(SettingInForce(name, None if hidden else _plain(getattr(settings, name)), source))
    return found


def _plain(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return ", ".join(map(str, value)) or "none"
        case None | "":
            return "none"
        case _:
            return str(value)
