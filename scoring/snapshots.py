"""Readings that many tabs ask for again and again: made once in SNAPSHOT_SECONDS by each process, shown to all."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from django.conf import settings

Reading = TypeVar("Reading")


class Snapshot(Generic[Reading]):
    """Whoever comes while it is being read waits for that reading instead of making another one. Only for what does not
    depend on who asks."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read
        self._lock = Lock()
        self._kept: tuple[float, Reading] | None = None

    def get(self) -> Reading:
        with self._lock:
            if self._kept is None or time.monotonic() - self._kept[0] >= settings.SNAPSHOT_SECONDS:
                self._kept = (time.monotonic(), self._read())
            return self._kept[1]
