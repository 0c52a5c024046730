"""Threads by what their requests wait for: nobody who waits for a model stands before a probe or a page.

A lane is entered and left on the event loop alone, so counting needs no lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

from assay import metrics
from assay.errors import AssayError

QUEUE_PER_THREAD: Final = 3  # requests that may wait for each thread of a lane
PROBE_THREADS: Final = 2
UPLOAD_THREADS: Final = 8
PAGE_THREADS: Final = 16

Result = TypeVar("Result")


class Lane:
    """``threads`` that answer one kind of request, and how many requests may be there, running or not."""

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.inside = 0
        self._most = threads * (1 + QUEUE_PER_THREAD)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Raises AssayError 429 ``overloaded`` when the lane is full."""
        if self.inside >= self._most:
            raise AssayError(
                "overloaded",
                f"{self.inside} requests of this kind are in this process already, its limit; send this one later.",
                status=429,
                retry_after=1,
            )
        self.inside += 1
        metrics.lane_requests.labels(self.name).inc()
        try:
            yield
        finally:
            self.inside -= 1
            metrics.lane_requests.labels(self.name).dec()

    async def run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


class Lanes:
    """``waiting``: scoring at once. ``uploads``: bodies read while they come. ``pages``: all that is quick."""

    def __init__(self, waiting_threads: int) -> None:
        self.waiting = Lane("waiting", waiting_threads)
        self.uploads = Lane("uploads", UPLOAD_THREADS)
        self.pages = Lane("pages", PAGE_THREADS)
        self.probes = Lane("probes", PROBE_THREADS)
        self.all = (self.waiting, self.uploads, self.pages, self.probes)
