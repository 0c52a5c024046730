"""Numbers that only grow, added to from every thread of the engine."""

from __future__ import annotations

import threading
from collections import Counter


class Counters:
    """``add(dropped=1)``; names are those of ``EngineStatistics``."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, **amounts: int) -> None:
        with self._lock:
            self._counts.update(amounts)

    def __getitem__(self, name: str) -> int:
        return self._counts[name]
