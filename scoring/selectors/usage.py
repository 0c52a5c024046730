"""What teams used, as it was rolled up by day."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Sum

from scoring.models import Usage

if TYPE_CHECKING:
    from accounts.models import Team

FIGURES: Final = ("requests", "errors", "documents", "tokens", "compute_seconds")
# What usage can be told apart by, and the columns that do it.
GROUPS: Final = {
    "day": ("day",),
    "model": ("model_name",),
    "token": ("token__name", "token"),
    "source": ("source",),
}
ALL_TEAMS_GROUPS: Final = {**GROUPS, "team": ("team__name", "team")}
NAMES: Final = {"day": "day", "team": "team__name", "model": "model_name", "token": "token__name", "source": "source"}


def usage_totals(*, team: Team | None, first: date, last: date, group_by: Collection[str]) -> list[dict[str, Any]]:
    """Of a team, or (None) of all: ``first`` to ``last`` inclusive, in the order of ``group_by`` (none: one line)."""
    columns = [column for group in group_by for column in ALL_TEAMS_GROUPS[group]]
    rows = Usage.objects.filter(day__range=(first, last))
    if team is not None:
        rows = rows.filter(team=team)
    sums = {f"{figure}_sum": Sum(figure, default=0) for figure in FIGURES}
    if not columns:
        return [_line(rows.aggregate(**sums))]
    return [_line(row) for row in rows.values(*columns).annotate(**sums).order_by(*columns)]


def _line(row: dict[str, Any]) -> dict[str, Any]:
    line: dict[str, Any] = {figure: row[f"{figure}_sum"] for figure in FIGURES}
    line["compute_seconds"] = round(line["compute_seconds"], 6)
    return line | {name: row[column] for name, column in NAMES.items() if column in row}
