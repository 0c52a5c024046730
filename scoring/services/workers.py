"""The rows that workers keep about themselves, and what the reconciler concludes from their silence."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any, Final

from django.db.models import Q
from django.db.models.functions import Now

from scoring.models import Placement, Worker
from scoring.services.chunks import liveness, worker_label
from scoring.services.transitions import transition, transition_record
from scoring.states import PlacementState, WorkerState

GONE_AFTER: Final = timedelta(hours=6)
ALIVE_STATES: Final = (WorkerState.STARTING, WorkerState.READY, WorkerState.STALLED, WorkerState.DRAINING)


def worker_register(*, worker_id: uuid.UUID, boot_id: uuid.UUID, name: str, host: str, pid: int, device: str) -> Worker:
    """A process starts in the slot ``worker_id``. What an earlier process had loaded there is wanted, not loaded."""
    values = {
        "boot_id": boot_id,
        "name": name,
        "host": host,
        "pid": pid,
        "device": device,
        "state": WorkerState.STARTING,
        "started_at": Now(),
        "heartbeat_at": Now(),
        "progress_at": None,
        "progress": 0,
        "in_hand": [],
    }
    before = Worker.objects.filter(pk=worker_id).values_list("state", flat=True).first()
    worker, _ = Worker.objects.update_or_create(pk=worker_id, defaults=values)
    actor = worker_label(worker)
    transition_record(worker, before or "", WorkerState.STARTING, actor=actor, reason="process started").save()
    Placement.objects.filter(worker=worker).exclude(state=PlacementState.UNLOADED).update(
        state=PlacementState.WANTED, generation=0, cause="", maxsim_backend=""
    )
    worker.refresh_from_db()
    return worker


def worker_move(*, worker: Worker, to: WorkerState, reason: str) -> bool:
    """A worker's own move. True also when it is in that state already."""
    worker.refresh_from_db(fields=["state"])
    return worker.state == to or transition(worker, to, actor=worker_label(worker), reason=reason, heartbeat_at=Now())


def worker_heartbeat(
    *, worker: Worker, progress: int, memory_bytes: int, in_hand: list[str], statistics: dict[str, Any]
) -> bool:
    """False: this process no longer owns the slot (another one started in it), and must end.

    A worker that was called lost while it could not reach the database is ready again by its own heartbeat.
    """
    mine = Worker.objects.filter(pk=worker.pk, boot_id=worker.boot_id)
    mine.filter(~Q(progress=progress)).update(progress=progress, progress_at=Now())
    if not mine.update(heartbeat_at=Now(), memory_bytes=memory_bytes, in_hand=in_hand, statistics=statistics):
        return False
    worker.refresh_from_db(fields=["state"])
    if worker.state == WorkerState.LOST:
        transition(worker, WorkerState.READY, actor=worker_label(worker), reason="heard again")
    return True


def workers_mark_lost() -> int:
    """The reconciler's part: silent workers are lost, and after GONE_AFTER gone. Their placements no longer count."""
    silent = Worker.objects.filter(state__in=ALIVE_STATES, heartbeat_at__lt=Now() - liveness())
    lost = sum(
        transition(
            worker,
            WorkerState.LOST,
            actor="reconciler",
            reason="no heartbeat",
            where=Q(heartbeat_at__lt=Now() - liveness()),
        )
        for worker in silent
    )
    forgotten = Worker.objects.filter(state=WorkerState.LOST, heartbeat_at__lt=Now() - GONE_AFTER)
    for worker in forgotten:
        transition(worker, WorkerState.GONE, actor="reconciler", reason="silent for hours")
    return lost
