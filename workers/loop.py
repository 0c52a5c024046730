"""A thread that does one small step again and again, and outlives what a step may raise."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from django.db import Error as AnyDatabaseError
from django.db import close_old_connections, connections

logger = logging.getLogger(__name__)

PAUSE_AFTER_ERROR: Final = 2.0  # seconds


class Loop:
    """Calls ``step`` every ``seconds`` (a function: as it says after each step), at once after ``wake``, and at once
    again when the step returns True.

    An error ends the step, never the loop: a worker whose loop died would look alive and do nothing.
    """

    def __init__(self, name: str, step: Callable[[], bool | None], *, seconds: float | Callable[[], float]) -> None:
        self._step = step
        self._seconds = seconds if callable(seconds) else lambda: seconds
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self, timeout: float | None = 0.0) -> bool:
        """Let the step in hand be the last one and wait ``timeout`` seconds for its end. Returns whether it ended."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            # Cleared before the step looks, so that a wake-up during the step is not lost.
            self._wake.clear()
            if not self._one_step() and not self._stopping.is_set():
                self._wake.wait(self._seconds())
        connections.close_all()

    def _one_step(self) -> bool:
        try:
            return bool(self._step())
        except AnyDatabaseError as error:
            logger.warning("%s: the database does not answer, trying again: %s", self._thread.name, error)
            # Only now: a check of the connection before each step would double the queries of an idle worker.
            close_old_connections()
        except Exception:
            logger.exception("%s: a step failed, going on with the next", self._thread.name)
        self._stopping.wait(PAUSE_AFTER_ERROR)
        return False
