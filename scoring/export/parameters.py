"""What an export is asked for beside its table: filters, or the id of what its rows are of."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet

from assay.api.sentences import shortened
from assay.errors import AssayError

Parameters = Mapping[str, Any]


def parameters_check(parameters: Parameters, known: Sequence[str], *, needed: str | None = None) -> None:
    """Raises AssayError 422 for a parameter that is not ``known``, and without the ``needed`` one."""
    for name in parameters:
        if name not in known:
            message = f"There is no parameter '{shortened(name)}' here; the parameters are: {', '.join(known)}."
            raise _refused("unknown_parameter", message, shortened(name))
    if needed is not None and not parameters.get(needed):
        raise _refused("missing_parameter", f"'{needed}' was not given: the id of what the rows are of.", needed)


def row_named(rows: QuerySet[Any], parameters: Parameters, name: str) -> Any:
    """Of ``rows`` the one whose id ``name`` is. Raises AssayError 404: another team's is not found."""
    given = str(parameters[name])
    try:
        found = rows.filter(pk=uuid.UUID(given)).first()
    except ValueError:
        found = None
    if found is None:
        noun = rows.model._meta.verbose_name
        message = f"There is no {noun} {shortened(given)} in your team."
        raise AssayError("not_found", message, status=404, param=f"parameters.{name}")
    return found


def whole_number(parameters: Parameters, name: str) -> int | None:
    """None where it was not given. Raises AssayError 422."""
    given = str(parameters.get(name, ""))
    if given and not (given.isascii() and given.isdecimal() and len(given) < 10):
        raise _refused("invalid", f"'{name}' is '{shortened(given)}'; give a whole number from 0.", name)
    return int(given) if given else None


def _refused(code: str, message: str, name: str) -> AssayError:
    return AssayError(code, message, status=422, param=f"parameters.{name}")
