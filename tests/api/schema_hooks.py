"""What schemathesis calls while ``test_schemathesis`` runs it."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Final

import schemathesis
from schemathesis.generation.meta import TestPhase

MODEL: Final = "of-the-schema"
SAME_FAULT: Final = 2  # of the many values that are of a wrong type for one field, and the like
tried: Counter[tuple[str, str]] = Counter()


@schemathesis.hook
def filter_case(context: schemathesis.HookContext, case: schemathesis.Case) -> bool:
    if case.meta is None or case.meta.phase.name is not TestPhase.COVERAGE:
        return True
    fault = case.operation.label, str(getattr(case.meta.phase.data, "description", ""))
    tried[fault] += 1
    return tried[fault] <= SAME_FAULT


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, object]) -> None:
    """Models and workers belong to all teams: none that others need is changed."""
    path = case.operation.path
    if path.startswith("/api/v1/models/{name}"):
        case.path_parameters["name"] = MODEL
    if path.startswith("/api/v1/workers/{id}/"):
        case.path_parameters["id"] = str(uuid.uuid4())
