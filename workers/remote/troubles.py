"""A model whose remote engine fails is degraded until a call succeeds, and its placements say why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from scoring.models import Placement
from scoring.services.claims import placement_move
from scoring.states import PlacementState
from workers.held_models import HeldModels
from workers.remote.spec import RemoteSpec

if TYPE_CHECKING:  # importing it brings torch in
    from workers.remote.engine import EngineWithRemotes


def troubles_note(engine: EngineWithRemotes, held_models: HeldModels, mine: Iterable[Placement]) -> None:
    for placement in mine:
        held = held_models.get(placement.model_id)
        if held is None or not isinstance(held.spec, RemoteSpec):
            continue
        cause = engine.trouble(held.spec.name)
        if cause and placement.state == PlacementState.READY:
            placement_move(placement=placement, to=PlacementState.DEGRADED, reason="remote engine", cause=cause)
        elif not cause and placement.state == PlacementState.DEGRADED:
            placement_move(placement=placement, to=PlacementState.READY, reason="remote engine is back", cause="")
