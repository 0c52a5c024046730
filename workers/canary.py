"""Scores the self-test's pairs of idle models again and again: a device that computes otherwise is found out.

A drift degrades the placement and has the model read again; if it drifts after that too, the worker is quarantined.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.db.models.functions import Now

from scoring.models import Placement, Worker
from scoring.services.chunks import worker_label
from scoring.services.claims import placement_move, placement_observe
from scoring.services.holds import worker_quarantine
from scoring.states import PlacementState
from workers.engine.errors import EngineError
from workers.held_models import HeldModel
from workers.self_tests import golden_scores

if TYPE_CHECKING:  # importing it brings torch in
    from workers.engine import Engine

logger = logging.getLogger(__name__)

DRIFTS_TO_QUARANTINE: Final = 2


class Canary:
    def __init__(self, *, engine: Engine, worker: Worker) -> None:
        self._engine = engine
        self._worker = worker
        self._proved: dict[uuid.UUID, float] = {}  # time.monotonic(), by model

    def proved(self, model_id: uuid.UUID) -> None:
        """A load's warm-up has just compared its scores."""
        self._proved[model_id] = time.monotonic()

    def forget(self, model_id: uuid.UUID) -> None:
        self._proved.pop(model_id, None)

    def due(self, model_id: uuid.UUID) -> bool:
        return time.monotonic() - self._proved.get(model_id, 0.0) >= settings.CANARY_SECONDS

    def check(self, placement: Placement, held: HeldModel) -> None:
        """Score once more, and write what came of it."""
        self.proved(placement.model_id)
        cause = self._drift(placement, held)
        if not cause:
            placement_observe(placement=placement, drifts=0, canary_at=Now())
            if placement.state == PlacementState.DEGRADED:
                placement_move(placement=placement, to=PlacementState.READY, reason="canary passed")
            return
        self.drifted(placement, cause)

    def drifted(self, placement: Placement, cause: str) -> None:
        """Also a reload after a drift that is no better."""
        logger.error("model %s drifted on %s: %s", placement.model.name, self._worker.name, cause)
        placement_observe(placement=placement, drifts=placement.drifts + 1, canary_at=Now())
        if placement.state == PlacementState.READY:
            placement_move(placement=placement, to=PlacementState.DEGRADED, reason="canary", cause=cause)
        if placement.drifts >= DRIFTS_TO_QUARANTINE:
            worker_quarantine(
                worker=self._worker,
                actor=worker_label(self._worker),
                reason=f"canary of {placement.model.name}",
                detail={"model": placement.model.name, "cause": cause},
            )

    def _drift(self, placement: Placement, held: HeldModel) -> str:
        """Why the scores are not those of the registration; empty where they are."""
        try:
            report = self._engine.canary(held.spec.name, golden_scores(placement.model, held.info))
        except EngineError as error:
            return str(error)
        return "" if report.agrees else report.detail
