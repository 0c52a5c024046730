"""The rows that workers keep about themselves, and what the reconciler concludes from their silence."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now

from scoring.models import Job, Placement, ScoringModel, Worker
from scoring.services.chunks import RUNNABLE, liveness, worker_label
from scoring.services.claims import LOAD_CRASHED, placement_fail, placement_move
from scoring.services.transitions import RECONCILER, transition, transition_record
from scoring.states import CLAIMING, PlacementState, WorkerHold, WorkerState

GONE_AFTER: Final = timedelta(hours=6)
ALIVE_STATES: Final = (
    WorkerState.STARTING,
    WorkerState.READY,
    WorkerState.STALLED,
    WorkerState.DRAINING,
    WorkerState.DRAINED,
    WorkerState.QUARANTINED,
)


@dataclass(frozen=True, slots=True)
class WorkerNews:
    """What a heartbeat brings back: the worker's state as others may have changed it, and marks of what it acts upon.

    A mark differs from the last one when something did change: only then need the rows themselves be read.
    """

    state: WorkerState
    placements: str
    jobs: int


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
    for placement in Placement.objects.filter(worker=worker).select_related("worker", "model"):
        _start_over(placement)
    worker.refresh_from_db()
    return worker


def _start_over(placement: Placement) -> None:
    state = PlacementState(placement.state)
    if state in (PlacementState.LOADING, PlacementState.WARMING):  # what ends its worker's process must not do so again
        placement_fail(placement=placement, code=LOAD_CRASHED, cause="The worker's process ended during the load.")
    elif state == PlacementState.UNKNOWN:  # by now it is wanted elsewhere
        placement_move(placement=placement, to=PlacementState.UNLOADED, reason="process started")
    elif state in CLAIMING:
        placement_move(placement=placement, to=PlacementState.WANTED, reason="process started")


def worker_equip(*, worker: Worker, device_class: str, memory_budget_bytes: int) -> None:
    """What the process found itself on."""
    worker.device_class, worker.memory_budget_bytes = device_class, memory_budget_bytes
    worker.save(update_fields=["device_class", "memory_budget_bytes"])


def worker_move(*, worker: Worker, to: WorkerState, reason: str) -> bool:
    """A worker's own move. True also when it is in that state already."""
    worker.refresh_from_db(fields=["state"])
    return worker.state == to or transition(worker, to, actor=worker_label(worker), reason=reason, heartbeat_at=Now())


def worker_started(*, worker: Worker) -> bool:
    """The process is complete: ready, unless somebody keeps the worker from work, over restarts too."""
    worker.refresh_from_db(fields=["state", "hold"])
    return worker_move(worker=worker, to=_state_after_silence(worker), reason="started")


def worker_heartbeat(
    *,
    worker: Worker,
    progress: int,
    memory_bytes: int,
    in_hand: list[str],
    statistics: dict[str, Any],
    memory_free_bytes: int = 0,
) -> WorkerNews | None:
    """One statement that reports and asks. None: this process no longer owns the slot (another one started in it).

    A worker that was called lost while it could not reach the database is back by its own heartbeat.
    """
    values: dict[str, Any] = {
        "worker": worker.pk,
        "boot": worker.boot_id,
        "progress": progress,
        "memory": memory_bytes,
        "free": memory_free_bytes,
        "in_hand": json.dumps(in_hand),
        "statistics": json.dumps(statistics),
        "runnable": list(RUNNABLE),
    }
    with connection.cursor() as cursor:
        cursor.execute(_HEARTBEAT, values)
        row = cursor.fetchone()
    if row is None:
        return None
    worker.state, worker.hold = row[:2]
    if worker.state == WorkerState.LOST:
        transition(worker, _state_after_silence(worker), actor=worker_label(worker), reason="heard again")
    return WorkerNews(WorkerState(worker.state), *row[2:])


# What a worker acts upon is small: its own rows, those that nobody has claimed, the registered models.
_HEARTBEAT: Final = """
UPDATE {worker} AS me SET
    heartbeat_at = statement_timestamp(),
    progress_at = CASE WHEN progress <> %(progress)s THEN statement_timestamp() ELSE progress_at END,
    progress = %(progress)s, memory_bytes = %(memory)s, memory_free_bytes = %(free)s,
    in_hand = %(in_hand)s::jsonb, statistics = %(statistics)s::jsonb
WHERE id = %(worker)s AND boot_id = %(boot)s
RETURNING state, hold,
    concat_ws('/',
        (SELECT sum(hashtext(concat_ws(' ', p.id, p.state, p.present, p.reload_requested))::bigint)
            FROM {placement} p WHERE p.worker_id = me.id),
        (SELECT sum(p.id) FROM {placement} p WHERE p.worker_id IS NULL),
        (SELECT sum(hashtext(concat_ws(' ', m.id, m.state, m.generation))::bigint) FROM {model} m)),
    (SELECT count(*) FROM {job} j WHERE j.state = ANY(%(runnable)s))
""".format(  # noqa: UP032 - braces of f-strings and of named parameters would be hard to tell apart
    worker=Worker._meta.db_table,
    placement=Placement._meta.db_table,
    model=ScoringModel._meta.db_table,
    job=Job._meta.db_table,
)


def workers_mark_lost() -> int:
    """The reconciler's part: silent workers are lost, and after GONE_AFTER gone. Their placements no longer count."""
    silent = Worker.objects.filter(state__in=ALIVE_STATES, heartbeat_at__lt=Now() - liveness())
    lost = sum(
        transition(
            worker,
            WorkerState.LOST,
            actor=RECONCILER,
            reason="no heartbeat",
            where=Q(heartbeat_at__lt=Now() - liveness()),
        )
        for worker in silent
    )
    forgotten = Worker.objects.filter(state=WorkerState.LOST, heartbeat_at__lt=Now() - GONE_AFTER)
    for worker in forgotten:
        transition(worker, WorkerState.GONE, actor=RECONCILER, reason="silent for hours")
    return lost


def _state_after_silence(worker: Worker) -> WorkerState:
    return WorkerHold(worker.hold).state if worker.hold else WorkerState.READY
