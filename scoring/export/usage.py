"""What was used, day by day, as a table."""

from __future__ import annotations

from datetime import date
from typing import Final

from assay.api.principal import Principal
from assay.api.sentences import shortened
from assay.errors import AssayError
from scoring.export.formats import ExportTable
from scoring.export.parameters import Parameters, parameters_check
from scoring.selectors.counting import RowCount
from scoring.selectors.usage import ALL_TEAMS_GROUPS, FIGURES, GROUPS, usage_totals

NAMES: Final = ("first", "last", "by")
MOST_DAYS: Final = 366
TYPES: Final = {"compute_seconds": "double"}


def usage_table(principal: Principal, parameters: Parameters) -> ExportTable:
    """``first`` to ``last``, every day for itself, and by ``by``; who runs the installation sees all teams."""
    parameters_check(parameters, NAMES, needed="first")
    first, last = _day(parameters, "first"), _day(parameters, "last")
    if not 0 <= (last - first).days < MOST_DAYS:
        raise _refused(f"From {first} to {last} must be 1 to {MOST_DAYS} days; ask for less.", "last")
    all_teams = principal.user is not None and principal.token is None and principal.user.is_superuser
    groups, by = (ALL_TEAMS_GROUPS if all_teams else GROUPS), str(parameters.get("by", "model"))
    if by not in groups:
        raise _refused(f"'by' is '{shortened(by)}'; give one of {', '.join(groups)}.", "by")
    apart = ("day",) if by == "day" else ("day", by)
    lines = usage_totals(team=None if all_teams else principal.team, first=first, last=last, group_by=apart)
    columns = {"day": "date32"} | dict.fromkeys(apart[1:], "string")
    columns |= {figure: TYPES.get(figure, "int64") for figure in FIGURES}
    return ExportTable(
        name=f"assay-usage-{first}-{last}",
        columns=columns,
        rows=lambda: ({name: line[name] for name in columns} for line in lines),
        count=RowCount(len(lines)),
    )


def _day(parameters: Parameters, name: str) -> date:
    given = str(parameters.get(name, ""))
    try:
        return date.fromisoformat(given)
    except ValueError as error:
        raise _refused(f"'{name}' is '{shortened(given)}'; give a day such as 2026-11-30.", name) from error


def _refused(message: str, name: str) -> AssayError:
    return AssayError("invalid", message, status=422, param=f"parameters.{name}")
