"""What a team said about the columns of a file is remembered for the next file that has the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from assay.api.principal import Principal
from scoring.models import ImportPreset


def preset_keep(*, principal: Principal, kind_name: str, columns: Sequence[str], mapping: dict[str, Any]) -> None:
    ImportPreset.objects.update_or_create(
        team=principal.team,
        kind=kind_name,
        layout=layout_of(columns),
        defaults={"mapping": mapping, "created_by": principal.user},
    )


def preset_of(*, principal: Principal, kind_name: str, columns: Sequence[str]) -> dict[str, Any] | None:
    """The mapping that such a file got last, or None."""
    presets = ImportPreset.objects.for_team(principal.team).filter(kind=kind_name, layout=layout_of(columns))
    return presets.values_list("mapping", flat=True).first()


def layout_of(columns: Sequence[str]) -> str:
    """Two files have the same layout if they have the same columns, in whatever order."""
    return hashlib.sha256(json.dumps(sorted(columns)).encode()).hexdigest()
