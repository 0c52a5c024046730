"""Ends a process that has work and makes no progress: a thread that hangs in a kernel cannot be ended alone.

The process's supervisor starts it again, and the chunk it held is counted as crashed.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from workers.loop import Loop

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 1.0
LAST_WORDS_SECONDS: Final = 5.0
EXIT_STALLED: Final = 70


class Watchdog:
    """``limit`` gives the seconds that the work in hand may take without ``progress`` changing; None of either: there
    is no work of that kind."""

    def __init__(
        self, *, progress: Callable[[], object], limit: Callable[[], float | None], last_words: Callable[[], None]
    ) -> None:
        self._progress = progress
        self._limit = limit
        self._last_words = last_words
        self._seen: object = None
        self._since = time.monotonic()
        self._loop = Loop("watchdog", self._check, seconds=CHECK_SECONDS)
        self.start, self.stop = self._loop.start, self._loop.stop

    def _check(self) -> None:
        progress, limit, now = self._progress(), self._limit(), time.monotonic()
        if limit is None or progress is None or progress != self._seen:
            self._seen, self._since = progress, now
        elif now - self._since > limit:
            self._end(now - self._since)

    def _end(self, seconds: float) -> None:
        logger.critical(
            "work in hand and no progress for %.0f s: the process ends; the stacks of its threads:", seconds
        )
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        # In a thread of its own: a database that hangs must not keep us alive.
        words = threading.Thread(target=self._last_words, name="last-words", daemon=True)
        words.start()
        words.join(LAST_WORDS_SECONDS)
        os._exit(EXIT_STALLED)
