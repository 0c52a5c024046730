"""Asking again until something has happened on the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from assay.client.errors import UnavailableError, UnreachableError, WaitTimeoutError
from assay.client.flows import Flow, Pause

T = TypeVar("T")
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 3.0
PATIENCE: Final = 120.0  # seconds for which the server may be away meanwhile, as in a restart


def until(
    ask: Callable[[], Flow[T]],
    reached: Callable[[T], bool],
    *,
    seconds: float | None = None,
    on_progress: Callable[[T], None] | None = None,
) -> Flow[T]:
    """The first answer that is ``reached``. ``on_progress`` is told every answer. Raises WaitTimeoutError."""
    began = answered = time.monotonic()
    pause = FIRST_PAUSE
    while True:
        try:
            found = yield from ask()
        except (UnreachableError, UnavailableError):
            if time.monotonic() - answered > PATIENCE:
                raise
        else:
            answered = time.monotonic()
            if on_progress is not None:
                on_progress(found)
            if reached(found):
                return found
        if seconds is not None and time.monotonic() - began + pause > seconds:
            raise WaitTimeoutError(f"It has not come about within {seconds:g} s; it goes on by itself.")
        yield Pause(pause)
        pause = min(LONGEST_PAUSE, 1.5 * pause)
