"""What keeps a worker from work: people drain it or take it into maintenance, bad results put it in quarantine."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Count, Exists, OuterRef
from django.db.models.functions import Now
from django.utils import timezone

from assay.api.principal import Principal
from assay.errors import AssayError
from assay.texts import has_visible
from audit.services import audit_record
from scoring import dispatch
from scoring.models import Chunk, Placement, Transition, Worker
from scoring.services.transitions import RECONCILER, transition
from scoring.states import COUNTED_CAUSES, HELD_STATES, SERVING, ChunkState, PlacementState, WorkerHold, WorkerState

FAULTS_TO_QUARANTINE: Final = 3  # distinct models, or distinct chunks, that failed here and succeeded elsewhere
FAULT_WINDOW: Final = timedelta(minutes=10)
NO_HOLD: Final[dict[str, Any]] = {"hold": "", "hold_reason": "", "hold_until": None}


def worker_drain(*, principal: Principal, worker: Worker, reason: str) -> Worker:
    """Have ``worker`` finish what it has begun and take nothing new. Its models are unloaded; it goes on reporting."""
    return _hold(principal, worker, WorkerHold.DRAIN, reason, verb="worker.drain_requested")


def worker_maintain(*, principal: Principal, worker: Worker, reason: str, until: datetime | None = None) -> Worker:
    """Like draining, but its silence is nothing to worry about and its pinned models stay its own. Ends at ``until``.

    Raises AssayError 422 for an end that has passed.
    """
    if until is not None and until <= timezone.now():
        message = f"'until' is {until:%Y-%m-%d %H:%M %Z}, which has passed; give a later moment, or none."
        raise AssayError("invalid_hold", message, status=422, param="until")
    return _hold(principal, worker, WorkerHold.MAINTENANCE, reason, until, verb="worker.maintenance_begun")


def worker_resume(*, principal: Principal, worker: Worker, reason: str) -> Worker:
    """End a drain or a maintenance."""
    _check_reason(reason)
    if worker.hold == WorkerHold.QUARANTINE:
        raise _conflict(worker, "in quarantine; look at why, then release it")
    return _lift(principal, worker, reason, verb="worker.resumed")


def worker_release(*, principal: Principal, worker: Worker, reason: str) -> Worker:
    """End a quarantine: somebody has seen to the device."""
    _check_reason(reason)
    if worker.hold != WorkerHold.QUARANTINE:
        raise _conflict(worker, "not in quarantine; resume is what ends a drain or a maintenance")
    return _lift(principal, worker, reason, verb="worker.released")


def worker_quarantine(*, worker: Worker, actor: str, reason: str, detail: dict[str, Any] | None = None) -> bool:
    """What this worker computes cannot be trusted. Returns whether it was not in quarantine before."""
    worker.refresh_from_db(fields=["state", "hold"])
    if worker.hold == WorkerHold.QUARANTINE:
        return False
    _write_hold(worker, WorkerHold.QUARANTINE, actor=actor, reason=reason, detail=detail)
    audit_record(verb="worker.quarantined", target=worker, detail={"reason": reason, **(detail or {})})
    return True


def workers_quarantine() -> int:
    """The reconciler's part: workers on which several models or chunks failed that succeed elsewhere."""
    suspects = {**_bad_at_models(), **_bad_at_chunks()}
    workers = Worker.objects.filter(name__in=suspects, state=WorkerState.READY)
    return sum(worker_quarantine(worker=worker, actor=RECONCILER, reason=suspects[worker.name]) for worker in workers)


def workers_end_maintenance() -> int:
    """The reconciler's part: maintenance that had an end is over."""
    over = Worker.objects.filter(hold=WorkerHold.MAINTENANCE, hold_until__lt=Now())
    for worker in over:
        _write_no_hold(worker, actor=RECONCILER, reason="end of maintenance")
    return len(over)


def _hold(
    principal: Principal, worker: Worker, hold: WorkerHold, reason: str, until: datetime | None = None, *, verb: str
) -> Worker:
    _check_reason(reason)
    if worker.state == WorkerState.GONE:
        raise _conflict(worker, "gone")
    if worker.hold == WorkerHold.QUARANTINE:
        raise _conflict(worker, "in quarantine, which keeps it from work already")
    with transaction.atomic():
        _write_hold(worker, hold, actor=principal.label, reason=reason, until=until)
        detail = {"reason": reason, **({"until": until.isoformat()} if until else {})}
        audit_record(verb=verb, principal=principal, target=worker, detail=detail)
        transaction.on_commit(dispatch.workers_wake)
    return worker


def _lift(principal: Principal, worker: Worker, reason: str, *, verb: str) -> Worker:
    if not worker.hold:
        raise _conflict(worker, "not kept from work")
    with transaction.atomic():
        _write_no_hold(worker, actor=principal.label, reason=reason)
        audit_record(verb=verb, principal=principal, target=worker, detail={"reason": reason})
        transaction.on_commit(dispatch.workers_wake)
    return worker


def _write_hold(
    worker: Worker,
    hold: WorkerHold,
    *,
    actor: str,
    reason: str,
    until: datetime | None = None,
    detail: dict[str, Any] | None = None,
) -> None:
    """The wish stands in any case; a worker that is lost or starting follows it when it is back."""
    fields: dict[str, Any] = {"hold": hold, "hold_reason": reason[:200], "hold_until": until}
    worker.refresh_from_db(fields=["state", "hold"])
    follows = worker.hold != hold and worker.state not in (WorkerState.LOST, WorkerState.STARTING)
    if not follows or not transition(worker, hold.state, actor=actor, reason=reason[:64], detail=detail, **fields):
        Worker.objects.filter(pk=worker.pk).update(**fields)
    worker.refresh_from_db()


def _write_no_hold(worker: Worker, *, actor: str, reason: str) -> None:
    if worker.state in HELD_STATES:
        transition(worker, WorkerState.READY, actor=actor, reason=reason[:64], **NO_HOLD)
    else:
        Worker.objects.filter(pk=worker.pk).update(**NO_HOLD)
    worker.refresh_from_db()


def _bad_at_models() -> dict[str, str]:
    elsewhere = Placement.objects.filter(model=OuterRef("model"), state__in=SERVING, worker__state=WorkerState.READY)
    failed = Placement.objects.filter(
        Exists(elsewhere), state=PlacementState.FAILED, updated_at__gt=Now() - FAULT_WINDOW
    )
    counted = failed.order_by().values_list("worker__name").annotate(Count("model", distinct=True))
    return {name: f"{count} models failed here" for name, count in counted if count >= FAULTS_TO_QUARANTINE}


def _bad_at_chunks() -> dict[str, str]:
    faults = Transition.objects.filter(entity="chunk", reason__in=sorted(COUNTED_CAUSES), at__gt=Now() - FAULT_WINDOW)
    chunks: dict[str, set[str]] = defaultdict(set)
    for actor, chunk_id in faults.values_list("actor", "entity_id"):
        kind, _, name = actor.partition(":")
        if kind == "worker":
            chunks[name].add(chunk_id)
    counted = {
        name: Chunk.objects.filter(pk__in=ids, state=ChunkState.DONE).exclude(report__worker=name).count()
        for name, ids in chunks.items()
        if len(ids) >= FAULTS_TO_QUARANTINE
    }
    return {name: f"{count} chunks failed here" for name, count in counted.items() if count >= FAULTS_TO_QUARANTINE}


def _check_reason(reason: str) -> None:
    if not has_visible(reason) or len(reason) > 200:
        given = f"has {len(reason):,} characters" if has_visible(reason) else "shows nothing"
        message = f"'reason' {given}; give 1 to 200 characters, for whoever looks at the worker next."
        raise AssayError("invalid_hold", message, status=422, param="reason")


def _conflict(worker: Worker, why: str) -> AssayError:
    return AssayError("worker_state", f"Worker '{worker.name}' is {why}.", status=409)
