"""What this process did since its start, by outcome or kind of work. Shown in the worker's row."""

from __future__ import annotations

import threading


class Counters:
    """Counts by name that many threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, float] = {}

    def add(self, name: str, amount: float = 1) -> None:
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + amount

    def snapshot(self) -> dict[str, float]:
        with self._lock:
            return dict(self._counts)
