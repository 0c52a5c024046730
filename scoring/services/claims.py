"""What a worker writes into a placement's row: it claims one, says why it cannot, and reports what becomes of it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now

from scoring.models import Chunk, Placement, ScoringModel, Worker
from scoring.services.chunks import worker_label
from scoring.services.transitions import transition
from scoring.states import CLAIMING, SETTLED, ChunkState, MemorySource, PlacementDemand, PlacementState

BACK_OFF_SECONDS: Final = 10.0
BACK_OFF_MAX_SECONDS: Final = 300.0
EVICTED_LATELY: Final = timedelta(seconds=60)
INTERACTIVE_LATELY: Final = timedelta(minutes=5)
LOAD_CRASHED: Final = "load_crashed"
NO_MEMORY: Final[dict[str, Any]] = {"claimed_bytes": 0, "claim_source": "", "in_flight": 0}
NOT_IN_FORCE: Final[dict[str, Any]] = {"generation": 0, "maxsim_backend": ""}


def placement_claim(*, placement: Placement, worker: Worker, claimed_bytes: int, source: MemorySource) -> bool:
    """Take a wanted replica, or one that failed here before: one conditional UPDATE, which one worker wins.

    False: another worker was faster, or this one has the model already. ``claimed_bytes`` are reserved from now on.
    """
    unclaimed = placement.worker_id is None
    with transaction.atomic():
        facts: dict[str, Any] = {}
        if unclaimed:
            # The row that an earlier stay here left makes room, and hands on when that stay was ended.
            before = Placement.objects.filter(
                model=placement.model_id, worker=worker, state=PlacementState.UNLOADED
            ).select_for_update(skip_locked=True)
            facts = dict(before.values("evicted_at", "facts", "measured_bytes").first() or {})
            before.delete()
            if Placement.objects.filter(model=placement.model_id, worker=worker).exists():
                return False
        won = transition(
            placement,
            PlacementState.CLAIMED,
            actor=worker_label(worker),
            reason="claimed",
            detail={"bytes": claimed_bytes, "source": source},
            where=Q(worker=None) if unclaimed else Q(worker=worker),
            worker=worker,
            claimed_bytes=claimed_bytes,
            claim_source=source,
            refusals={},
            updated_at=Now(),
            **facts,
        )
        if not won:
            transaction.set_rollback(True)
    return won


def placement_refuse(*, placement: Placement, worker: Worker, why: str) -> None:
    """Say in the wanted row why ``worker`` cannot have it; several workers write there."""
    with transaction.atomic():
        row = Placement.objects.select_for_update().filter(pk=placement.pk, state=PlacementState.WANTED).first()
        if row is not None and row.refusals.get(worker.name) != why:
            row.refusals[worker.name] = why
            row.save(update_fields=["refusals"])
            placement.refusals = row.refusals


def placement_move(*, placement: Placement, to: PlacementState, reason: str, cause: str = "", **observed: Any) -> bool:
    """Write the observed side. What holds no memory any more claims none, and has nothing in force."""
    assert placement.worker is not None
    if to not in CLAIMING:
        observed = {**NO_MEMORY, **NOT_IN_FORCE, **observed}
    actor = worker_label(placement.worker)
    return transition(placement, to, actor=actor, reason=reason, cause=cause, updated_at=Now(), **observed)


def placement_observe(*, placement: Placement, **observed: Any) -> None:
    """Write observed facts that change no state, such as a toggle that came into force."""
    Placement.objects.filter(pk=placement.pk).update(updated_at=Now(), **observed)
    for name, value in observed.items():
        setattr(placement, name, value)


def placement_fail(*, placement: Placement, code: str, cause: str) -> bool:
    """A load failed: what it claimed is free again, and the next try waits longer each time."""
    attempt = placement.attempt + 1
    pause = min(BACK_OFF_SECONDS * 2 ** (attempt - 1), BACK_OFF_MAX_SECONDS)
    return placement_move(
        placement=placement,
        to=PlacementState.FAILED,
        reason=code[:64],
        cause=cause,
        failure_code=code[:64],
        attempt=attempt,
        next_try_at=Now() + timedelta(seconds=pause),
    )


def placements_used(*, worker: Worker, in_flight: dict[Any, int], interactive: Collection[Any]) -> None:
    """What the worker's models have been doing since the last report: ``in_flight`` by model, as it is now."""
    mine = Placement.objects.filter(worker=worker)
    for model_id, count in in_flight.items():
        since = {"interactive_at": Now()} if model_id in interactive else {}
        mine.filter(model=model_id, state__in=CLAIMING).update(in_flight=count, used_at=Now(), **since)


def model_estimated(*, model: ScoringModel, estimated_bytes: int | None) -> None:
    """What ``model`` will take, from its checkpoint alone."""
    model.estimated_bytes = estimated_bytes
    ScoringModel.objects.filter(pk=model.pk, generation=model.generation).update(estimated_bytes=estimated_bytes)


def model_measured(*, model: ScoringModel, device_class: str, measured_bytes: int) -> None:
    """What a load and warm-up of ``model`` took on that class of device: the next claim's figure."""
    model.measured_bytes = {**model.measured_bytes, device_class: measured_bytes}
    ScoringModel.objects.filter(pk=model.pk, generation=model.generation).update(measured_bytes=model.measured_bytes)


def evicted_lately(*, model: ScoringModel, wanted: Placement) -> bool:
    """Whether ``model`` was itself evicted a moment ago and has not waited for longer than that: two models that do
    not fit together must not push each other out."""
    moment = Now() - EVICTED_LATELY
    if not Placement.objects.filter(model=model, evicted_at__gt=moment).exists():
        return False
    return Placement.objects.filter(pk=wanted.pk, wanted_at__gt=moment).exists()


def placements_evictable(
    *, worker: Worker, demand: PlacementDemand, min_residency: int, busy: Collection[Any]
) -> list[Placement]:
    """Of what ``worker`` holds, what may go for a model wanted by ``demand``; the least recently used first.

    Nothing pinned, nothing with a request in flight (``busy``: ids of models) or a chunk leased, nothing that came a
    moment ago; for batch work nothing that a person used lately.
    """
    leased = Chunk.objects.filter(lease_owner=worker, state=ChunkState.LEASED).values("stage__model")
    rows = Placement.objects.filter(
        worker=worker,
        state__in=SETTLED,
        model__pinned=False,
        model__min_replicas=0,
        loaded_at__isnull=False,
    )
    if demand == PlacementDemand.BATCH:
        rows = rows.filter(Q(interactive_at=None) | Q(interactive_at__lt=Now() - INTERACTIVE_LATELY))
    rows = rows.exclude(model__in=list(busy)).exclude(model__in=leased)
    rows = rows.select_related("model", "worker").order_by(Coalesce("used_at", "loaded_at"), "pk")
    rows = rows.annotate(stay=Now() - F("loaded_at"))
    return [row for row in rows if row.stay >= _residency(row.model, min_residency)]


def _residency(model: ScoringModel, default: int) -> timedelta:
    return timedelta(seconds=default if model.min_residency is None else model.min_residency)
