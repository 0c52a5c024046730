"""Reads about which model is where, why not yet, and what of the wanted is in force."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db.models import Count, F, Prefetch, Q, QuerySet
from django.db.models.functions import Now

from scoring.models import Placement, ScoringModel, Worker
from scoring.selectors.workers import workers_alive, workers_returning
from scoring.services.chunks import liveness
from scoring.states import COMING, SERVING, SETTLED, PlacementState, WorkerState

UP = (WorkerState.STARTING, WorkerState.READY, WorkerState.STALLED)


@dataclass(frozen=True, slots=True)
class ReadyPlacement:
    """A replica that answers requests now. ``in_flight``: requests and chunks there at the worker's last report.
    Those of one ``version`` give the same scores, within the dtype's tolerance."""

    id: int
    worker_id: uuid.UUID
    worker_name: str
    in_flight: int
    version: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """Why a model answers nobody now, and in how many seconds it will (None: nobody knows)."""

    reason: str
    seconds: float | None
    coming: bool  # a worker has claimed it and is loading, or is expected back


@dataclass(frozen=True, slots=True)
class PlacementView:
    """One placement as people read it."""

    placement: Placement

    @property
    def worker_name(self) -> str:
        return self.placement.worker.name if self.placement.worker else "no worker yet"

    @property
    def worker_is_up(self) -> bool:
        worker = self.placement.worker
        return worker is None or worker.state not in (WorkerState.LOST, WorkerState.GONE)

    @property
    def in_force(self) -> bool:
        """Whether the worker runs the model as it is wanted now."""
        placement = self.placement
        return (
            placement.state in SETTLED
            and placement.present
            and placement.generation == placement.model.generation
            and placement.reloaded == placement.reload_requested
        )

    @property
    def pending(self) -> str:
        """What is still to be done, in words; empty when nothing."""
        placement = self.placement
        if placement.worker is None:
            return "waits for a worker"
        if placement.state in SERVING and not placement.present:
            return "about to be unloaded"
        if placement.state in SERVING and not self.in_force:
            return "a change is on its way"
        return ""

    @property
    def cause(self) -> str:
        """Why it is not as wanted: by the worker that holds it, else by those that could not claim it."""
        return self.placement.cause or " ".join(self.placement.refusals.values())


def placements_ready(model: ScoringModel) -> list[ReadyPlacement]:
    """Where a request for ``model`` can be answered now, in a stable order. One query."""
    rows = (
        _serving(model)
        .order_by("pk")
        .values_list("pk", "worker_id", "worker__name", "in_flight", "generation", "facts__dtype", "facts__device")
    )
    return [
        ReadyPlacement(pk, worker_id, name, in_flight, f"{generation} {dtype} {str(device).partition(':')[0]}")
        for pk, worker_id, name, in_flight, generation, dtype, device in rows
        if worker_id
    ]


def placement_outlook(model: ScoringModel) -> Outlook:
    """For a model that is ready nowhere: the words for a 503 and for a waiting job."""
    rows = list(Placement.objects.filter(model=model, present=True).select_related("worker"))
    up = [row for row in rows if row.worker is not None and row.worker.state in UP]
    seconds = load_seconds(model)
    if any(row.state in SERVING for row in up):
        return Outlook(f"Model '{model.name}' is ready.", 0.0, True)
    if coming := next((row for row in up if row.state in COMING), None):
        return Outlook(f"Model '{model.name}' is being loaded on {coming.worker}.", seconds, True)
    if not workers_alive().exists():
        if workers_returning().exists():
            return Outlook(f"Model '{model.name}' waits for a worker that is being restarted.", seconds, True)
        return Outlook(f"No worker is alive that could load model '{model.name}'.", None, False)
    refusals = [sentence for row in rows for sentence in row.refusals.values()]
    if refusals and any(row.state == PlacementState.WANTED for row in rows):
        return Outlook(f"Model '{model.name}' waits for a worker: {' '.join(refusals)}", None, False)
    failures = [f"{row.worker}: {row.cause}" for row in up if row.state == PlacementState.FAILED]
    if failures and len(failures) == len(up):
        return Outlook(f"Model '{model.name}' could not be loaded. {' '.join(failures)}", None, False)
    return Outlook(f"Model '{model.name}' waits for a worker to load it.", seconds, False)


def load_seconds(model: ScoringModel) -> float | None:
    """How long a load took at most, of those on record; None before the first."""
    loads = Placement.objects.filter(model=model).values_list("facts", flat=True)
    known = [facts["load_seconds"] for facts in (model.facts, *loads) if "load_seconds" in facts]
    return max(map(float, known), default=None)


def replicas_counted(model: ScoringModel) -> int:
    """Replicas that are there, on their way, or waiting for a worker: what need not be asked for again.

    What is on a worker that is kept from work, or failed to load, is no replica.
    """
    unclaimed = Q(worker=None)
    held = Q(worker__state__in=UP, state__in=(PlacementState.WANTED, *COMING, *SERVING))
    return Placement.objects.filter(unclaimed | held, model=model, present=True).count()


def placements_of_model(model: ScoringModel) -> list[PlacementView]:
    rows = Placement.objects.filter(model=model).exclude(worker__state=WorkerState.GONE)
    return [PlacementView(row) for row in rows.select_related("model", "worker").order_by("worker__name", "pk")]


def maxsim_in_force() -> dict[uuid.UUID, str]:
    """By model: what MaxSim runs on where the model serves now, such as ``cpu on 2, cuda on 1``. One query."""
    rows = Placement.objects.filter(state__in=SERVING, present=True, worker__state=WorkerState.READY)
    counted = (
        rows.exclude(maxsim_backend="")
        .order_by("model", "maxsim_backend")
        .values_list("model", "maxsim_backend")
        .annotate(
            workers=Count("pk"),
            behind=Count("pk", filter=~Q(generation=F("model__generation"))),
            fallen=Count("pk", filter=~Q(cause="")),
        )
    )
    found: dict[uuid.UUID, list[str]] = {}
    for model_id, backend, workers, behind, fallen in counted:
        notes = [f"{count} {word}" for count, word in ((fallen, "as fallback"), (behind, "still to follow")) if count]
        told = f"{backend} on {workers}" + (f" ({', '.join(notes)})" if notes else "")
        found.setdefault(model_id, []).append(told)
    return {model_id: ", ".join(parts) for model_id, parts in found.items()}


def placements_unclaimed() -> list[PlacementView]:
    """Wanted replicas that no worker has claimed, the oldest first."""
    rows = Placement.objects.filter(worker=None).select_related("model").order_by("wanted_at")
    return [PlacementView(row) for row in rows]


def workers_with_placements() -> QuerySet[Worker]:
    """Every worker but those gone for long, with its placements and their models."""
    placements = Prefetch("placements", Placement.objects.select_related("model", "worker").order_by("model__name"))
    return Worker.objects.exclude(state=WorkerState.GONE).prefetch_related(placements).order_by("name")


def _serving(model: ScoringModel) -> QuerySet[Placement]:
    return Placement.objects.filter(
        model=model,
        present=True,
        state__in=SERVING,
        worker__state=WorkerState.READY,
        worker__heartbeat_at__gt=Now() - liveness(),
    )
