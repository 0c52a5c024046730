"""Which models this process is busy with: what may not be unloaded, and what is told to others."""

from __future__ import annotations

import uuid
from collections import Counter
from concurrent.futures import Future
from threading import Lock
from typing import Any


class Usage:
    """Thread-safe. Work counts from its submission until it is answered."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._in_flight: Counter[uuid.UUID] = Counter()
        self._used: set[uuid.UUID] = set()
        self._interactive: set[uuid.UUID] = set()

    def track(self, model_id: uuid.UUID, answer: Future[Any], *, interactive: bool) -> None:
        with self._lock:
            self._in_flight[model_id] += 1
            self._used.add(model_id)
            if interactive:
                self._interactive.add(model_id)
        answer.add_done_callback(lambda _: self._answered(model_id))

    def _answered(self, model_id: uuid.UUID) -> None:
        with self._lock:
            self._in_flight[model_id] -= 1
            self._used.add(model_id)

    def busy(self) -> set[uuid.UUID]:
        with self._lock:
            return {model_id for model_id, count in self._in_flight.items() if count}

    def report(self) -> tuple[dict[uuid.UUID, int], set[uuid.UUID]]:
        """In flight now, of every model used since the last report, and those used by synchronous requests."""
        with self._lock:
            self._used |= {model_id for model_id, count in self._in_flight.items() if count}
            used = {model_id: self._in_flight[model_id] for model_id in self._used}
            interactive = self._interactive & self._used
            self._used, self._interactive = set(), set()
            return used, interactive
