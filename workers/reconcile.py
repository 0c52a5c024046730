"""What no worker can do for itself: take back what dead ones held, and end jobs. Only one process ticks at a time."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Final

import redis
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from assay.database import only_one
from scoring import dispatch
from scoring.models import Chunk, Job, Worker
from scoring.services.chunks import RUNNABLE, chunks_reclaim_expired, liveness
from scoring.services.finalize import jobs_advance
from scoring.services.holds import workers_end_maintenance, workers_quarantine
from scoring.services.jobs import chunks_cancel
from scoring.services.placements import placements_reconcile
from scoring.services.queues import queues_sweep
from scoring.services.registry import self_tests_reclaim
from scoring.services.workers import ALIVE_STATES, workers_mark_lost
from scoring.states import ChunkState, JobState

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 2.0
GAP_SECONDS: Final = 3 * TICK_SECONDS
ADVISORY_LOCK: Final = 0x41737361_79  # "Assay"; any number that nothing else in this database uses
ACTOR: Final = "reconciler"


class Reconciler:
    def __init__(self) -> None:
        self._held_since: float | None = None
        self._watching_since = self._last_tick = time.monotonic()

    def tick(self) -> None:
        """One round. Another reconciler at work: nothing to do."""
        with only_one(ADVISORY_LOCK, wait=False) as ours:
            if not ours:
                return
            watched = self._watched()
            if not self._hold():
                workers_mark_lost(watched=watched)
                chunks_reclaim_expired()
                self_tests_reclaim()
            workers_end_maintenance()
            workers_quarantine()
            placements_reconcile()
            for job in Job.objects.filter(state=JobState.CANCELLING):
                with transaction.atomic():
                    chunks_cancel(job, actor=ACTOR)  # what came back to pending while the job was being cancelled
            jobs_advance()
            queues_sweep()
            wake_if_work_waits()

    def _watched(self) -> timedelta:
        """How long this process has been listening without a gap: whoever was away heard no heartbeat."""
        now = time.monotonic()
        if now - self._last_tick > GAP_SECONDS:
            self._watching_since = now
        self._last_tick = now
        return timedelta(seconds=now - self._watching_since)

    def _hold(self) -> bool:
        """More than half of the workers silent at once is likely our fault, not theirs: wait for one lease time."""
        silent = Q(heartbeat_at__lt=Now() - liveness())
        workers = Worker.objects.filter(state__in=ALIVE_STATES)
        if workers.filter(silent).count() * 2 <= workers.count():
            self._held_since = None
            return False
        if self._held_since is None:
            self._held_since = time.monotonic()
            logger.warning("more than half of the workers fell silent at once; holding for one lease time")
        return time.monotonic() - self._held_since < settings.LEASE_SECONDS


def wake_if_work_waits() -> None:
    """Wake-ups may get lost. One in the queue is enough: with no worker running they would pile up."""
    if not Chunk.objects.filter(state=ChunkState.PENDING, job__state__in=RUNNABLE).exists():
        return
    try:
        unread = dispatch.connection().llen(dispatch.BATCH_QUEUE)
    except redis.RedisError:
        return  # workers poll the database as well
    if not unread:
        dispatch.workers_wake()
