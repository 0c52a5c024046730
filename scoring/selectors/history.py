"""How a worker and a model fared, as charts show it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from django.db.models import Sum
from django.db.models.functions import Now

from scoring.models import ModelSample, ScoringModel, Usage, Worker, WorkerSample

SHOWN: Final = timedelta(hours=24)
Points = Sequence[tuple[datetime, float | None]]


def worker_history(worker: Worker) -> dict[str, Points]:
    """The last day: bytes, requests in flight, and texts encoded per second."""
    rows = list(WorkerSample.objects.filter(worker=worker, at__gt=Now() - SHOWN).order_by("at"))
    return {
        "memory": [(row.at, row.memory_bytes) for row in rows],
        "claimed": [(row.at, row.claimed_bytes) for row in rows],
        "in_flight": [(row.at, row.in_flight) for row in rows],
        "rate": [(after.at, _rate(before, after)) for before, after in pairwise(rows)],
    }


def _rate(before: WorkerSample, after: WorkerSample) -> float | None:
    """None over a restart: the counter began anew."""
    texts, seconds = after.sequences - before.sequences, (after.at - before.at).total_seconds()
    return texts / seconds if texts >= 0 and seconds > 0 else None


def model_history(model: ScoringModel) -> dict[str, Points]:
    """The last day: bytes as estimated from the checkpoint, as reserved, and as measured, of all replicas together."""
    rows = list(ModelSample.objects.filter(model=model, at__gt=Now() - SHOWN).order_by("at"))
    return {
        "estimated": [(row.at, row.estimated_bytes) for row in rows],
        "reserved": [(row.at, row.claimed_bytes) for row in rows],
        "measured": [(row.at, row.measured_bytes) for row in rows],
    }


def model_speed(model: ScoringModel) -> float | None:
    """Documents per second of compute over the last 30 days, of requests and jobs together; None before any."""
    recent = Usage.objects.filter(model_name=model.name, day__gt=Now() - timedelta(days=30))
    sums = recent.aggregate(documents=Sum("documents"), seconds=Sum("compute_seconds"))
    return sums["documents"] / sums["seconds"] if sums["documents"] and sums["seconds"] else None
