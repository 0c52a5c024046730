"""Celery's part of a worker: its consumer in a thread of ours, so that signals and the end of the process stay ours."""

from __future__ import annotations

import logging
import threading
from typing import Final

from celery.worker import WorkController, state
from django.conf import settings

from assay.celery import app
from scoring.dispatch import BATCH_QUEUE, SYNC_QUEUE

logger = logging.getLogger(__name__)

RESTART_SECONDS: Final = 5.0


class Consumer:
    """Receives messages and runs their tasks in threads; connects again for as long as it takes."""

    def __init__(self, *, name: str) -> None:
        self._name = name
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="celery", daemon=True)
        self.start = self._thread.start

    def stop(self, seconds: float) -> None:
        """Receive nothing more; tasks in hand end by themselves."""
        self._stopping.set()
        state.should_stop = 0  # type: ignore[assignment] # Celery's own switch, looked at between messages and between attempts to connect
        self._thread.join(seconds)

    def _run(self) -> None:
        for chatty in ("celery.worker.strategy", "celery.app.trace"):  # two lines for every message
            logging.getLogger(chatty).setLevel(logging.WARNING)
        app.conf.update(
            broker_connection_max_retries=None,
            worker_enable_remote_control=False,  # nobody asks by Redis: the worker's row tells
            CELERY_DB_REUSE_MAX=2**31,  # Celery would close the thread's connection after each task
        )
        while not self._stopping.is_set():
            self._controller().start()
            if not self._stopping.wait(RESTART_SECONDS):
                logger.error("Celery's consumer ended; starting it again")

    def _controller(self) -> WorkController:
        return WorkController(
            app=app,
            hostname=f"{self._name}@%h",
            pool="threads",
            concurrency=settings.WORKER_THREADS,
            queues=[SYNC_QUEUE, BATCH_QUEUE],
            loglevel="INFO",
            without_mingle=True,
            without_gossip=True,
            without_heartbeat=True,
        )
