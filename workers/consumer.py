"""Celery's part of a worker: its consumer in a thread of ours, so that signals and the end of the process stay ours.

The worker's own queue is read all the time. A model's queue is read only while the worker holds the model ready, so
that nothing in it waits for a load. Which queues are read is compared with which are wanted every moment, and changed
in Celery's own thread: whatever happened to the connection meanwhile, they become the same again.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection
from typing import Any, Final

from celery.worker import WorkController, state
from django.conf import settings

from assay.celery import app
from assay.kept import FRESH_SECONDS
from scoring.dispatch import BATCH_QUEUE, model_queue, plain_queue, worker_queue
from workers.loop import Loop

logger = logging.getLogger(__name__)

RESTART_SECONDS: Final = 5.0
FOLLOW_SECONDS: Final = 0.25
LEAVE_SECONDS: Final = 2 * FRESH_SECONDS  # until no web process takes this worker for ready any more


class Consumer:
    """Receives messages and runs their tasks in threads; connects again for as long as it takes."""

    def __init__(self, *, name: str, worker_id: uuid.UUID, models: Callable[[], Collection[uuid.UUID]]) -> None:
        """``models``: those that the worker can answer for now. Called every moment, so it looks into memory only."""
        self._name = name
        self._own = worker_queue(worker_id)
        self._models = models
        self._leaving = False
        self._controller: WorkController | None = None
        self._reading = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="celery", daemon=True)
        self._follower = Loop("queues", self._follow, seconds=FOLLOW_SECONDS)
        self.wake = self._follower.wake

    def start(self, *, patience: float = 0.0) -> bool:
        """Whether messages are read within ``patience`` seconds; if not, it goes on trying."""
        self._thread.start()
        self._follower.start()
        return self._reading.wait(patience)

    def stop(self, seconds: float) -> None:
        """Leave the models' queues at once, and the worker's own when nobody writes to it any more: the row that says
        so was written before. Tasks in hand end by themselves."""
        end = time.monotonic() + seconds
        self._leaving = True
        self.wake()
        self._stopping.wait(min(LEAVE_SECONDS, seconds / 2))
        self._stopping.set()
        state.should_stop = 0  # type: ignore[assignment] # Celery's own switch, looked at between messages and between attempts to connect
        self._thread.join(max(end - time.monotonic(), 0.0))
        self._follower.stop()

    def _run(self) -> None:
        for chatty in ("celery.worker.strategy", "celery.app.trace"):  # two lines for every message
            logging.getLogger(chatty).setLevel(logging.WARNING)
        app.conf.update(
            broker_connection_max_retries=None,
            worker_enable_remote_control=False,  # nobody asks by Redis: the worker's row tells
            CELERY_DB_REUSE_MAX=2**31,  # Celery would close the thread's connection after each task
        )
        app.amqp.queues[self._own] = plain_queue(self._own)
        while not self._stopping.is_set():
            self._controller = self._new_controller()
            self._controller.start()
            if not self._stopping.wait(RESTART_SECONDS):
                logger.error("Celery's consumer ended; starting it again")

    def _new_controller(self) -> WorkController:
        return WorkController(
            app=app,
            hostname=f"{self._name}@%h",
            pool="threads",
            concurrency=settings.WORKER_THREADS,
            queues=[BATCH_QUEUE, self._own],
            ready_callback=lambda consumer: self._reading.set(),
            loglevel="INFO",
            without_mingle=True,
            without_gossip=True,
            without_heartbeat=True,
        )

    def _wanted(self) -> set[str]:
        models = () if self._leaving else self._models()
        return {BATCH_QUEUE, self._own, *map(model_queue, models)}

    def _follow(self) -> None:
        consumer: Any = getattr(self._controller, "consumer", None)
        tasks = getattr(consumer, "task_consumer", None)  # none while it connects
        if tasks is not None and consumer.hub and {queue.name for queue in tasks.queues} != self._wanted():
            consumer.call_soon(self._change, consumer)

    def _change(self, consumer: Any) -> None:
        """In Celery's thread. An error of the connection there makes it connect anew, and the follower tries again."""
        tasks = consumer.task_consumer
        if tasks is None:
            return
        wanted, read = self._wanted(), {queue.name for queue in tasks.queues}
        for name in read - wanted:
            tasks.cancel_by_queue(name)
        for name in wanted - read:
            tasks.add_queue(plain_queue(name))
        if wanted - read:
            tasks.consume()
