"""Request batches go on: files are checked, lines answered a few at a time, results written."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from django.db import Error as AnyDatabaseError
from django.db import close_old_connections

from scoring.models import BatchLine
from scoring.services.batch_lines import line_answer, line_release, lines_extend, lines_lease
from scoring.services.request_batches import batches_advance
from workers.loop import Loop

logger = logging.getLogger(__name__)

IN_FLIGHT: Final = 8
SECONDS: Final = 2.0


class LineRunner:
    """Any number may run: a line is leased by one of them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="line")
        self._busy: dict[int, BatchLine] = {}
        self._batches = Loop("batches", self._advance, seconds=SECONDS)
        self._lines = Loop("lines", self._lease, seconds=SECONDS)

    def start(self) -> None:
        for loop in (self._batches, self._lines):
            loop.start()

    def stop(self, timeout: float) -> None:
        """Begin nothing more; what is not answered in time comes back when its lease ends."""
        self._lines.stop(timeout)
        self._batches.stop(timeout)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _advance(self) -> None:
        """Apart from the leasing, which goes on with every line that is answered."""
        if self._busy:
            lines_extend(list(self._busy.values()))
        if batches_advance():
            self._lines.wake()

    def _lease(self) -> None:
        for line in lines_lease(IN_FLIGHT - len(self._busy)):
            self._busy[line.pk] = line
            self._threads.submit(self._answer, line)

    def _answer(self, line: BatchLine) -> None:
        try:
            line_answer(line)
        except AnyDatabaseError as error:
            logger.warning("%s is answered again when its lease ends: %s", line, error)
            close_old_connections()
        except Exception:
            logger.exception("%s could not be answered", line)
            line_release(line)
        finally:
            self._busy.pop(line.pk, None)
            self._lines.wake()
