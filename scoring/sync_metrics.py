"""How synchronous requests went, as the web process saw it. The worker's own counters come with its row."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from assay.metrics import registry

PHASES: Final = ("queue", "tokenise", "forward", "maxsim", "total")
OTHER: Final = "other"
MOST_MODELS: Final = 50  # names that get series of their own; a process that sees more calls the rest "other"

sync_seconds = Histogram(
    "assay_sync_phase_seconds",
    "Seconds of answered synchronous requests by phase; of a request in parts, the slowest part's.",
    ["model", "phase"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120),
    registry=registry,
)
sync_retries = Counter("assay_sync_retries", "Parts of requests that were asked again elsewhere.", registry=registry)
sync_parts = Histogram(
    "assay_sync_parts", "Workers that a request was split over.", buckets=(1, 2, 4, 8, 16, 32, 64), registry=registry
)
cold_start_seconds = Histogram(
    "assay_sync_cold_start_seconds",
    "Seconds that requests waited for their model to be loaded; warm ones are not counted.",
    buckets=(0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
    registry=registry,
)
sync_refused = Counter(
    "assay_sync_refused",
    "Requests not taken on: their model has its share of the process, or its queue is longer than their deadline.",
    ["reason"],
    registry=registry,
)
_in_flight = Gauge(
    "assay_sync_in_flight",
    "Synchronous requests in hand, by model.",
    ["model"],
    registry=registry,
    multiprocess_mode="livesum",
)

_lock = threading.Lock()
_names: set[str] = set()


def sync_observe(*, model_name: str, timings_ms: Mapping[str, float], parts: int, retries: int, cold: float) -> None:
    label = _label(model_name)
    for phase in PHASES:
        sync_seconds.labels(label, phase).observe(timings_ms.get(phase, 0.0) / 1000)
    sync_parts.observe(parts)
    sync_retries.inc(retries)
    if cold:
        cold_start_seconds.observe(cold)


def sync_in_flight(model_name: str) -> Gauge:
    return _in_flight.labels(_label(model_name))


def _label(model_name: str) -> str:
    """Only names of registered models come here; who registers without end must not make series without end."""
    with _lock:
        if len(_names) < MOST_MODELS:
            _names.add(model_name)
        return model_name if model_name in _names else OTHER
