"""What a team used, as it was rolled up by day."""

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


def usage_totals(*, team: Team, first: date, last: date, group_by: Collection[str]) -> list[dict[str, Any]]:
    """``first`` to ``last`` inclusive, in the order of ``group_by`` (names of GROUPS; none: one line for all)."""
    columns = [column for group in group_by for column in GROUPS[group]]
    rows = Usage.objects.filter(team=team, day__range=(first, last))
    sums = {f"{figure}_sum": Sum(figure, default=0) for figure in FIGURES}
    if not columns:
        return [_line(rows.aggregate(**sums))]
    return [_line(row) for row in rows.values(*columns).annotate(**sums).order_by(*columns)]


def _line(row: dict[str, Any]) -> dict[str, Any]:
    line: dict[str, Any] = {figure: row[f"{figure}_sum"] for figure in FIGURES}
    line["compute_seconds"] = round(line["compute_seconds"], 6)
    for name, column in (("day", "day"), ("model", "model_name"), ("token", "token__name"), ("source", "source")):
        if column in row:
            line[name] = row[column]
    return line
