"""What this process did since its start, by outcome. Shown in the worker's row."""

from __future__ import annotations

import threading
from collections import Counter


class Counters:
    """Counts by name that many threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def snapshot(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)
