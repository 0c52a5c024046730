"""The client of a request, as the thread that answers it sees it: since when it waits, and whether it still does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.http import HttpRequest

CALLER = "assay.caller"  # its key in the environ of a request


class Caller:
    """``arrived`` is on the clock of ``time.monotonic``."""

    def __init__(self) -> None:
        self.arrived = time.monotonic()
        self._lock = threading.Lock()
        self._left = False
        self._hook: Callable[[], None] | None = None

    @property
    def left(self) -> bool:
        return self._left

    @property
    def waited(self) -> float:
        """Seconds since it asked."""
        return time.monotonic() - self.arrived

    def leave(self) -> None:
        """The client hung up, or nobody may wait for it any longer. May be called from any thread, and twice."""
        with self._lock:
            hook, self._hook, self._left = self._hook, None, True
        if hook is not None:
            hook()

    @contextmanager
    def watched(self, hook: Callable[[], None]) -> Iterator[None]:
        """``hook`` runs once if the caller leaves within the block; at once, if it has left before."""
        with self._lock:
            self._hook = None if self._left else hook
            left = self._left
        if left:
            hook()
        try:
            yield
        finally:
            with self._lock:
                self._hook = None


def caller_of(request: HttpRequest) -> Caller:
    """Of a request that came by another way than the server (a test's), one who never leaves."""
    caller = request.META.get(CALLER)
    return caller if isinstance(caller, Caller) else Caller()
