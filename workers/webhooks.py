"""Sends what webhooks are to be told, beside the reconciler's rounds: a slow receiver holds up no round."""

from __future__ import annotations

import logging
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from django.db import connections

from scoring.models import WebhookDelivery
from scoring.services.webhook_deliveries import deliveries_claim, deliveries_purge, delivery_send
from workers.loop import Loop

logger = logging.getLogger(__name__)

AT_ONCE: Final = 8
LOOK_SECONDS: Final = 1.0
PURGE_SECONDS: Final = 3600.0


class WebhookSender:
    """Any number may run: what one has claimed no other sends."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(AT_ONCE)
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webhook")
        self._next_purge = -math.inf
        self._loop = Loop("webhooks", self.step, seconds=LOOK_SECONDS)
        self.start = self._loop.start

    def stop(self, timeout: float) -> None:
        """Begin nothing more and wait for what is being sent; what is not sent by then is sent again by the next."""
        end = time.monotonic() + timeout
        self._loop.stop(timeout)
        self._pool.shutdown(wait=False, cancel_futures=True)
        for _ in range(AT_ONCE):
            self._free.acquire(timeout=max(end - time.monotonic(), 0.0))

    def step(self) -> bool:
        """Send as many as there are threads free. True: there may be more."""
        if time.monotonic() >= self._next_purge:
            self._next_purge = time.monotonic() + PURGE_SECONDS
            deliveries_purge()
        free = 0
        while free < AT_ONCE and self._free.acquire(blocking=False):
            free += 1
        rows = deliveries_claim(limit=free) if free else []
        for row in rows:
            self._pool.submit(self._send, row)
        for _ in range(free - len(rows)):
            self._free.release()
        return bool(rows)

    def _send(self, delivery: WebhookDelivery) -> None:
        try:
            delivery_send(delivery)
        except Exception:  # of one delivery: its claim ends, then it is tried again
            logger.exception("webhook delivery %s could not be sent", delivery.pk)
        finally:
            connections.close_all()
            self._free.release()
            self._loop.wake()
