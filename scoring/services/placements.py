"""Which model is on which worker: people write what is wanted, each worker writes what is."""

from __future__ import annotations

from typing import Any

from django.db.models import F
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring import dispatch
from scoring.models import Placement, ScoringModel, Worker
from scoring.selectors.workers import workers_alive
from scoring.services.chunks import worker_label
from scoring.services.transitions import transition
from scoring.states import ModelState, PlacementState


def model_load(*, principal: Principal, model: ScoringModel) -> int:
    """Ask every live worker to load ``model`` ahead of its first use. Returns how many were asked.

    Raises AssayError 409 for a model that is not served, 503 when no worker is alive.
    """
    if model.state != ModelState.AVAILABLE:
        raise AssayError(
            "model_not_served",
            f"Model '{model.name}' is not served ({model.get_state_display()}); it must pass its self-test first.",
            status=409,
        )
    workers = list(workers_alive())
    if not workers:
        raise dispatch.no_worker(model.name, "no worker is alive")
    for worker in workers:
        Placement.objects.update_or_create(model=model, worker=worker, defaults={"present": True})
    # A failed load backs off for a person's sake too: asking again is the retry.
    for placement in Placement.objects.filter(model=model, worker__in=workers, state=PlacementState.FAILED):
        transition(placement, PlacementState.WANTED, actor=principal.label, reason="load requested")
    audit_record(verb="model.load_requested", principal=principal, target=model)
    dispatch.workers_wake()
    return len(workers)


def model_unload(*, principal: Principal, model: ScoringModel) -> int:
    """Ask every worker to drop ``model``. It is loaded again when somebody uses it. Returns how many were asked."""
    asked = Placement.objects.filter(model=model).update(present=False)
    audit_record(verb="model.unload_requested", principal=principal, target=model)
    dispatch.workers_wake()
    return asked


def model_reload(*, principal: Principal, model: ScoringModel) -> int:
    """Ask every worker that holds ``model`` to read its files again; the old weights serve until then."""
    asked = Placement.objects.filter(model=model, present=True).update(reload_requested=F("reload_requested") + 1)
    audit_record(verb="model.reload_requested", principal=principal, target=model)
    dispatch.workers_wake()
    return asked


# The worker's side


def placement_demand(*, model: ScoringModel, worker: Worker) -> Placement:
    """Somebody uses ``model`` here: it is wanted on this worker."""
    placement, _ = Placement.objects.get_or_create(model=model, worker=worker)
    if not placement.present:
        Placement.objects.filter(pk=placement.pk).update(present=True)
        placement.present = True
    return placement


def placement_move(*, placement: Placement, to: PlacementState, reason: str, cause: str = "", **observed: Any) -> bool:
    """Write the observed side."""
    actor = worker_label(placement.worker)
    return transition(placement, to, actor=actor, reason=reason, cause=cause, updated_at=Now(), **observed)


def placement_observe(*, placement: Placement, **observed: Any) -> None:
    """Write observed facts that change no state, such as a toggle that came into force."""
    Placement.objects.filter(pk=placement.pk).update(updated_at=Now(), **observed)
    for name, value in observed.items():
        setattr(placement, name, value)
