"""Reads about which model is where, and what of the wanted is in force."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Prefetch, QuerySet

from scoring.models import Placement, ScoringModel, Worker
from scoring.states import PlacementState, WorkerState


@dataclass(frozen=True, slots=True)
class PlacementView:
    """One placement as people read it."""

    placement: Placement

    @property
    def worker_is_up(self) -> bool:
        return self.placement.worker.state not in (WorkerState.LOST, WorkerState.GONE)

    @property
    def in_force(self) -> bool:
        """Whether the worker runs the model as it is wanted now."""
        placement = self.placement
        return (
            placement.state == PlacementState.READY
            and placement.present
            and placement.generation == placement.model.generation
            and placement.reloaded == placement.reload_requested
        )

    @property
    def pending(self) -> str:
        """What the worker still has to do, in words; empty when nothing."""
        placement = self.placement
        if placement.state == PlacementState.READY and not placement.present:
            return "about to be unloaded"
        if placement.state == PlacementState.READY and not self.in_force:
            return "a change is on its way"
        return ""


def placements_of_model(model: ScoringModel) -> list[PlacementView]:
    rows = Placement.objects.filter(model=model).exclude(worker__state=WorkerState.GONE)
    return [PlacementView(row) for row in rows.select_related("model", "worker").order_by("worker__name")]


def workers_with_placements() -> QuerySet[Worker]:
    """Every worker but those gone for long, with its placements and their models."""
    placements = Prefetch("placements", Placement.objects.select_related("model", "worker").order_by("model__name"))
    return Worker.objects.exclude(state=WorkerState.GONE).prefetch_related(placements).order_by("name")
