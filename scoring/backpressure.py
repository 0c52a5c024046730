"""How much of one model this process takes on: no more than is answered in time, and never all of its threads.

Each process goes by what it saw itself. The pace of a model is what a request waited, divided by the pairs that were
asked for when it came, its own included: whatever else keeps the workers busy, other processes and jobs, is in it.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from django.conf import settings

from assay.errors import AssayError
from scoring.models import ScoringModel
from scoring.sync_metrics import sync_in_flight, sync_refused

SHARE: Final = 0.75  # of the threads that may wait, for one model: one that hangs leaves the others the rest
NEWEST: Final = 0.2  # weight of the newest request in the pace
FEWEST: Final = 5  # answers before the pace counts: the first ones pay for warming up


@dataclass(slots=True)
class _Load:
    requests: int = 0
    pairs: int = 0
    answers: int = 0
    pace: float = 0.0  # seconds a pair


_lock = threading.Lock()
_loads: dict[uuid.UUID, _Load] = {}


class Admitted:
    """A request taken on."""

    def __init__(self, load: _Load) -> None:
        self._load, self._ahead, self._since = load, load.pairs, time.monotonic()

    def answered(self, *, cold_seconds: float) -> None:
        """``cold_seconds``: what of the waiting was for a load of the model and says nothing about its pace."""
        pace = (time.monotonic() - self._since - cold_seconds) / max(self._ahead, 1)
        with _lock:
            self._load.answers += 1
            self._load.pace += (pace - self._load.pace) * max(NEWEST, 1 / self._load.answers)


@contextmanager
def model_admit(*, model: ScoringModel, pairs: int, seconds: float) -> Iterator[Admitted]:
    """Take on a request that may wait ``seconds``.

    Raises AssayError 429 ``overloaded`` when the model has its share of this process, or when what is in hand takes
    longer than that by the measured pace.
    """
    with _lock:
        load = _loads.setdefault(model.pk, _Load())
        _check(model, load, seconds)
        load.requests, load.pairs = load.requests + 1, load.pairs + pairs
        admitted = Admitted(load)
    gauge = sync_in_flight(model.name)
    gauge.inc()
    try:
        yield admitted
    finally:
        gauge.dec()
        with _lock:
            load.requests, load.pairs = load.requests - 1, load.pairs - pairs


def concurrency_in_force(model: ScoringModel) -> int:
    """How many requests for ``model`` one web process has under way at once."""
    share = max(1, int(settings.WEB_THREADS * SHARE))
    return share if model.max_concurrency is None else min(share, model.max_concurrency)


def _check(model: ScoringModel, load: _Load, seconds: float) -> None:
    most, needed = concurrency_in_force(model), load.pairs * load.pace
    if load.requests >= most:
        why, retry_after = f"{load.requests} requests for it are in this process already, its limit", needed
    elif load.requests and load.answers >= FEWEST and needed > seconds:
        why = f"what waits for it takes {needed:.1f} s at its present pace, longer than this request's {seconds:g} s"
        retry_after = needed - seconds
    else:
        return
    sync_refused.labels("model_share" if load.requests >= most else "deadline").inc()
    raise AssayError(
        "overloaded",
        f"Model '{model.name}' has too much to do: {why}. Send this one later.",
        status=429,
        retry_after=math.ceil(min(max(retry_after, 1.0), 60.0)),
        extra={"model": model.name},
    )
