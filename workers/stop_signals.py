"""SIGTERM and SIGINT as a question that the main thread asks when it is ready for it."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Final

LOOK_SECONDS: Final = 0.2


class StopSignals:
    """From its making on, neither signal ends the process: they only set ``asked``.

    The handler does nothing that could meet a lock held by the code it interrupts, and ``wait`` looks instead of
    waiting for an event: a signal may arrive in a library's thread, where it interrupts nobody.
    """

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def wait(self) -> None:
        while not self.asked:
            time.sleep(LOOK_SECONDS)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
