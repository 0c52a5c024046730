"""Numbers that only grow, added to from every thread of the engine."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any


class Counters:
    """``add(dropped=1)``; names are those of ``EngineStatistics``."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, **amounts: int) -> None:
        with self._lock:
            self._counts.update(amounts)

    def snapshot(self, names: Iterable[str]) -> dict[str, Any]:
        with self._lock:
            return {name: self._counts[name] for name in names}

    def __getitem__(self, name: str) -> int:
        return self._counts[name]
