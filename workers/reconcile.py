"""What no worker can do for itself: take back what dead ones held, and end jobs. Only one process ticks at a time."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import redis
from django.conf import settings
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from assay.database import only_one
from scoring import dispatch
from scoring.models import Chunk, Stage, Worker
from scoring.services.chunk_sizes import stages_fit_chunks
from scoring.services.chunks import RUNNABLE, chunks_reclaim_expired, liveness
from scoring.services.encodings import encodings_reclaim
from scoring.services.errands import errands_reclaim
from scoring.services.exports import exports_expire, exports_reclaim
from scoring.services.finalize import jobs_advance
from scoring.services.history import samples_take
from scoring.services.holds import workers_end_maintenance, workers_quarantine
from scoring.services.job_watch import jobs_expire, jobs_start_due, jobs_stop_finish, jobs_stop_hopeless
from scoring.services.model_judges import model_judgings_store
from scoring.services.placements import placements_reconcile
from scoring.services.queues import queues_sweep
from scoring.services.registry import self_tests_reclaim
from scoring.services.retention import retention_apply
from scoring.services.uploads import uploads_sweep
from scoring.services.usage import usage_roll_up
from scoring.services.workers import ALIVE_STATES, workers_mark_lost
from scoring.states import ChunkState, StageState

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 2.0
SWEEP_SECONDS: Final = 3600.0
USAGE_SECONDS: Final = 60.0
SAMPLE_SECONDS: Final = 60.0
USAGE_SHARE: Final = 20  # it rests this many times as long as it took
ADVISORY_LOCK: Final = 0x41737361_79  # "Assay"; any number that nothing else in this database uses


class Reconciler:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds, of which only differences count."""
        self._clock = clock
        self._seen_at = -math.inf
        self._watching_since = 0.0
        self._held_since: float | None = None
        self._next_sweep = -math.inf
        self._next_usage = -math.inf
        self._next_sample = -math.inf

    def tick(self) -> None:
        """One round. Another reconciler at work: nothing to do."""
        self._note_gap()
        with only_one(ADVISORY_LOCK, wait=False) as ours:
            if ours:
                self._round()
        self._seen_at = self._clock()  # reached only if the database answered all the time

    def _note_gap(self) -> None:
        """Who was away, or without the database, cannot say that others were silent meanwhile."""
        if self._clock() - self._seen_at > max(3 * TICK_SECONDS, settings.LEASE_SECONDS / 2):
            self._watching_since = self._clock()

    def _watched(self) -> timedelta:
        """How long it has been here without a gap."""
        return timedelta(seconds=self._clock() - self._watching_since)

    def _round(self) -> None:
        if not self._hold():
            if self._watched() >= liveness():
                workers_mark_lost()
                self_tests_reclaim()
                errands_reclaim()
                encodings_reclaim()
            chunks_reclaim_expired(blame=self._watched() >= timedelta(seconds=settings.LEASE_SECONDS))
        workers_end_maintenance()
        workers_quarantine()
        placements_reconcile()
        jobs_start_due()
        jobs_expire()
        jobs_stop_hopeless()
        jobs_stop_finish()
        stages_fit_chunks()
        jobs_advance()
        model_judgings_store()
        queues_sweep()
        retention_apply()
        exports_reclaim()
        exports_expire()
        self._sweep_uploads()
        self._roll_usage_up()
        self._take_samples()
        wake_if_work_waits()

    def _sweep_uploads(self) -> None:
        """Now and then: it lists the storage folder."""
        if self._clock() >= self._next_sweep:
            self._next_sweep = self._clock() + SWEEP_SECONDS
            uploads_sweep()

    def _roll_usage_up(self) -> None:
        """Once a minute; less often where a day holds so much that counting it takes long."""
        started = self._clock()
        if started >= self._next_usage:
            usage_roll_up()
            self._next_usage = started + max(USAGE_SECONDS, USAGE_SHARE * (self._clock() - started))

    def _take_samples(self) -> None:
        if self._clock() >= self._next_sample:
            self._next_sample = self._clock() + SAMPLE_SECONDS
            samples_take()

    def _hold(self) -> bool:
        """More than half of the workers silent at once is likely our fault, not theirs: wait for one lease time."""
        silent = Q(heartbeat_at__lt=Now() - liveness())
        workers = Worker.objects.filter(state__in=ALIVE_STATES)
        if workers.filter(silent).count() * 2 <= workers.count():
            self._held_since = None
            return False
        if self._held_since is None:
            self._held_since = self._clock()
            logger.warning("more than half of the workers fell silent at once; holding for one lease time")
        return self._clock() - self._held_since < settings.LEASE_SECONDS


def wake_if_work_waits() -> None:
    """Wake-ups may get lost. One in the queue is enough: with no worker running they would pile up."""
    pending = Chunk.objects.filter(stage=OuterRef("pk"), state=ChunkState.PENDING)
    if not Stage.objects.filter(Exists(pending), state=StageState.RUNNING, job__state__in=RUNNABLE).exists():
        return
    try:
        unread = dispatch.connection().llen(dispatch.BATCH_QUEUE)
    except redis.RedisError:
        return  # workers poll the database as well
    if not unread:
        dispatch.workers_wake()
