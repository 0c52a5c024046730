from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from accounts.models import Team
from accounts.scopes import ALL_SCOPES
from assay.api.principal import Principal
from scoring.models import ScoringModel
from scoring.services.imports import set_import
from scoring.states import ModelState

Upload = Callable[..., Any]  # the set that fits the kind


@pytest.fixture
def principal(team: Team) -> Principal:
    return Principal(user=None, team=team, token=None, scopes=ALL_SCOPES)


@pytest.fixture
def upload(principal: Principal) -> Upload:
    """Import bytes: ``upload("documents", b"id,text\\n1,a\\n")``."""

    def run(kind: str, content: bytes, **options: Any) -> Any:
        uploaded, _ = set_import(
            principal=principal, kind_name=kind, name=kind, file=io.BytesIO(content), file_name=f"{kind}.csv", **options
        )
        return uploaded

    return run


@pytest.fixture
def model(db: None) -> ScoringModel:
    """A model row as its passed self-test leaves it; nothing here loads it."""
    return ScoringModel.objects.create(
        name="late",
        kind="late-interaction",
        source="package:x/y",
        state=ModelState.AVAILABLE,
        revision="r1",
        facts={"max_length": 256, "scale": "maxsim"},
    )
