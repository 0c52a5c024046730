"""Leaves a server alone that fails again and again, and tries it again after a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

FAILURES_TO_OPEN: Final = 3  # calls in a row, each with its retries
FIRST_PAUSE: Final = 5.0  # seconds; doubled with every failed trial
LONGEST_PAUSE: Final = 300.0


class Breaker:
    """Thread-safe. While it is open nothing is sent; then one call is the trial that closes it, or opens it again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._open_until = 0.0
        self._cause = ""

    @property
    def cause(self) -> str:
        """Why it is open, or was until its next trial; empty once a call succeeded."""
        with self._lock:
            return self._cause

    def admit(self) -> str:
        """Empty: the call may be made. Else the reason why not. One that is admitted while others wait is the trial."""
        with self._lock:
            if self._clock() < self._open_until:
                return self._cause
            if self._cause:  # whoever comes next waits for how this one ends
                self._open_until = self._clock() + self._pause
            return ""

    @property
    def is_open(self) -> bool:
        with self._lock:
            return self._clock() < self._open_until

    def succeeded(self) -> None:
        with self._lock:
            self._failures, self._pause, self._open_until, self._cause = 0, FIRST_PAUSE, 0.0, ""

    def failed(self, cause: str, *, for_good: bool = False, pause: float = 0.0) -> None:
        """``for_good``: no retry can help, as with a refused credential; open at once. So it does with a ``pause``, the
        seconds that the server wants to be left alone."""
        with self._lock:
            self._failures += 1
            if not (for_good or pause or self._cause or self._failures >= FAILURES_TO_OPEN):
                return
            if self._cause:
                self._pause = min(self._pause * 2, LONGEST_PAUSE)
            self._cause = cause
            self._open_until = self._clock() + max(self._pause, min(pause, LONGEST_PAUSE))
