"""Which model is wanted on how many workers: people, demand and the reconciler write rows, workers claim them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring import dispatch
from scoring.models import Placement, ScoringModel, Worker
from scoring.selectors.demand import DOWN_SECONDS, UP_SECONDS, ModelDemand, model_demands, replicas_for
from scoring.selectors.placements import replicas_counted
from scoring.selectors.workers import workers_alive
from scoring.services.claims import NO_MEMORY
from scoring.services.transitions import RECONCILER, transition, transition_record
from scoring.states import SERVING, ModelState, PlacementDemand, PlacementState, WorkerState

FAILED_ELSEWHERE: Final = 3  # workers that a model may fail on before no other one tries
NO_FAILURE: Final[dict[str, Any]] = {"attempt": 0, "next_try_at": None, "failure_code": "", "cause": ""}


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
        placement_want(model=model, worker=worker, demand=PlacementDemand.PERSON, actor=principal.label)
    placements_retry(model=model, actor=principal.label)
    audit_record(verb="model.load_requested", principal=principal, target=model)
    holders_wake(model)
    return len(workers)


def model_unload(*, principal: Principal, model: ScoringModel) -> int:
    """Ask every worker to drop ``model``. It is loaded again when somebody uses it. Returns how many were asked."""
    for row in Placement.objects.filter(model=model, worker=None):
        placement_forget(placement=row, actor=principal.label, reason="unload requested")
    asked = Placement.objects.filter(model=model).update(present=False)
    audit_record(verb="model.unload_requested", principal=principal, target=model)
    holders_wake(model)
    return asked


def model_reload(*, principal: Principal, model: ScoringModel) -> int:
    """Ask every worker that holds ``model`` to read its files again; the old weights serve until then."""
    held = Placement.objects.filter(model=model, present=True, worker__isnull=False)
    asked = held.update(reload_requested=F("reload_requested") + 1)
    audit_record(verb="model.reload_requested", principal=principal, target=model)
    holders_wake(model)
    return asked


def model_demand(
    *, model: ScoringModel, seconds: float = 0.0, demand: PlacementDemand = PlacementDemand.INTERACTIVE
) -> bool:
    """Somebody needs ``model``: at least one replica is wanted, more if ``seconds`` of work wait for it.

    However many ask at once, the missing rows are written once; the workers are then woken. Returns whether any were.
    """
    workers = workers_alive().count()
    wanted = max(replicas_for(model, seconds=seconds), 1)
    return _missing_are_wanted(model, wanted, workers, demand=demand, actor="demand") > 0


def placements_reconcile() -> int:
    """The reconciler's part: as many replicas as demand and pins need. Returns how many rows it wrote or took back."""
    changed = _placements_of_the_lost()
    workers, demands = workers_alive().count(), model_demands()
    for model in ScoringModel.objects.all():
        if model.state != ModelState.AVAILABLE:
            changed += _unclaimed_forgotten(model, Q(), "not served")
            continue
        now = demands[model.pk]
        changed += _missing_are_wanted(model, _lasting(model, now), workers, demand=_why(now), actor=RECONCILER)
        if not now.replicas_wanted:  # whoever asked got its answer long ago
            old = Q(wanted_at__lt=Now() - timedelta(seconds=DOWN_SECONDS)) | Q(demand=PlacementDemand.BATCH)
            changed += _unclaimed_forgotten(model, old, "no demand")
        changed += _surplus_let_go(model, now)
    return changed


def _lasting(model: ScoringModel, now: ModelDemand) -> int:
    """More than one replica only for a demand that has lasted; a pin stays with its worker under maintenance."""
    kept = Placement.objects.filter(model=model, present=True, worker__state=WorkerState.MAINTENANCE).count()
    pins = max(model.replicas_at_least - kept, 0)
    if not now.has_work:
        return pins
    return now.replicas_wanted if now.oldest_seconds >= UP_SECONDS or now.in_flight else max(pins, 1)


def _why(now: ModelDemand) -> PlacementDemand:
    if now.in_flight:
        return PlacementDemand.INTERACTIVE
    return PlacementDemand.BATCH if now.backlog_seconds else PlacementDemand.PIN


def _missing_are_wanted(model: ScoringModel, wanted: int, workers: int, *, demand: PlacementDemand, actor: str) -> int:
    """Write the rows that are missing to ``wanted`` replicas. The common case, nothing missing, locks nothing."""
    if not _missing(model, wanted, workers):
        return 0
    with transaction.atomic():
        ScoringModel.objects.select_for_update(no_key=True).get(pk=model.pk)  # one at a time for each model
        missing = _missing(model, wanted, workers)
        for _ in range(missing):
            row = Placement.objects.create(model=model, demand=demand)
            transition_record(row, "", PlacementState.WANTED, actor=actor, reason=f"{demand} demand").save()
        if missing:
            transaction.on_commit(dispatch.workers_wake)
    return missing


def _missing(model: ScoringModel, wanted: int, workers: int) -> int:
    """Rows to add. A worker where the model failed does not count, and nobody else tries once it failed on several."""
    counted = replicas_counted(model)
    failed = Placement.objects.filter(
        model=model, state=PlacementState.FAILED, present=True, worker__state=WorkerState.READY
    ).count()
    if failed >= FAILED_ELSEWHERE:
        return 0
    able = workers - failed if workers else 1  # without any worker, one row says that somebody waits
    return max(min(wanted, able) - counted, 0)


def _placements_of_the_lost() -> int:
    """What was on a lost worker counts no more, neither as a replica nor in bytes; a gone worker's rows go."""
    Placement.objects.filter(worker__state=WorkerState.GONE).delete()
    rows = Placement.objects.filter(worker__state=WorkerState.LOST).exclude(
        state__in=(PlacementState.UNKNOWN, PlacementState.UNLOADED)
    )
    return sum(
        transition(row, PlacementState.UNKNOWN, actor=RECONCILER, reason="worker lost", updated_at=Now(), **NO_MEMORY)
        for row in rows
    )


def _unclaimed_forgotten(model: ScoringModel, which: Q, reason: str) -> int:
    unclaimed = Placement.objects.filter(which, model=model, worker=None)
    return sum(placement_forget(placement=row, actor=RECONCILER, reason=reason) for row in unclaimed)


def _surplus_let_go(model: ScoringModel, now: ModelDemand) -> int:
    """Of replicas idle for long, those that nothing asks for. The last one stays until its room is needed."""
    long_ago = Now() - timedelta(seconds=DOWN_SECONDS)
    rows = Placement.objects.filter(model=model, present=True, state__in=SERVING)
    idle = rows.filter(Q(used_at=None) | Q(used_at__lt=long_ago), loaded_at__lt=long_ago, in_flight=0)
    too_many = now.replicas_ready - (model.max_replicas or now.replicas_ready)
    surplus = now.replicas_ready - max(now.replicas_wanted, 1)
    chosen: list[int] = []
    for candidates, count in ((rows, too_many), (idle, surplus)):
        oldest_first = candidates.order_by(F("used_at").asc(nulls_first=True))
        chosen += oldest_first.values_list("pk", flat=True)[: max(count, 0)]
    return Placement.objects.filter(pk__in=chosen).update(present=False, updated_at=Now()) if chosen else 0


# What several of the above, and the workers, do with one row.


def holders_wake(model: ScoringModel) -> None:
    """Every worker that has a row of ``model`` looks at it at once, instead of at its next heartbeat."""
    held = Placement.objects.filter(model=model, worker__isnull=False).values_list("worker_id", flat=True)
    dispatch.workers_wake({worker_id for worker_id in held if worker_id})


def placement_want(*, model: ScoringModel, worker: Worker, demand: PlacementDemand, actor: str) -> Placement:
    """``model`` is wanted on this very worker."""
    placement, new = Placement.objects.get_or_create(model=model, worker=worker, defaults={"demand": demand})
    if new:
        transition_record(placement, "", PlacementState.WANTED, actor=actor, reason=f"{demand} demand").save()
    wish: dict[str, Any] = {"present": True, "demand": demand, "wanted_at": Now(), "updated_at": Now()}
    if placement.state == PlacementState.UNLOADED:
        transition(placement, PlacementState.WANTED, actor=actor, reason=f"{demand} demand", **wish)
    elif not placement.present:
        Placement.objects.filter(pk=placement.pk).update(**wish)
        placement.present, placement.demand = True, demand
    return placement


def placement_forget(*, placement: Placement, actor: str, reason: str) -> bool:
    """Take back a row that nobody has claimed. False: somebody was faster."""
    with transaction.atomic():
        taken = transition(placement, PlacementState.UNLOADED, actor=actor, reason=reason, where=Q(worker=None))
        if taken:
            placement.delete()
    return taken


def placements_retry(*, model: ScoringModel, actor: str) -> int:
    """Forget the back-off after failed loads: a person asked, or the model changed."""
    failed = Placement.objects.filter(model=model, state=PlacementState.FAILED)
    return sum(
        transition(row, PlacementState.WANTED, actor=actor, reason="retry", updated_at=Now(), **NO_FAILURE)
        for row in failed
    )
