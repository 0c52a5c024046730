"""Samples of workers and models, one a minute, kept for two days: what their charts are drawn from."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db import connection
from django.db.models.functions import Now

from scoring.models import ModelSample, Placement, Worker, WorkerSample
from scoring.states import CLAIMING, SERVING, WorkerState

KEEP: Final = timedelta(days=2)

_WORKERS: Final = """
INSERT INTO {sample} (worker_id, memory_bytes, claimed_bytes, free_bytes, in_flight, sequences)
SELECT w.id, w.memory_bytes, coalesce(sum(p.claimed_bytes), 0), w.memory_free_bytes, coalesce(sum(p.in_flight), 0),
    coalesce((w.statistics -> 'engine' ->> 'sequences')::bigint, 0)
FROM {worker} w LEFT JOIN {placement} p ON p.worker_id = w.id
WHERE w.state <> ALL(%(silent)s) GROUP BY w.id
""".format(  # noqa: UP032 - braces of f-strings and of named parameters would be hard to tell apart
    sample=WorkerSample._meta.db_table, worker=Worker._meta.db_table, placement=Placement._meta.db_table
)
_MODELS: Final = """
INSERT INTO {sample} (model_id, replicas, estimated_bytes, claimed_bytes, measured_bytes, in_flight)
SELECT p.model_id, count(*) FILTER (WHERE p.state = ANY(%(serving)s)), coalesce(sum(p.estimated_bytes), 0),
    coalesce(sum(p.claimed_bytes), 0), coalesce(sum(p.measured_bytes), 0), coalesce(sum(p.in_flight), 0)
FROM {placement} p WHERE p.state = ANY(%(claiming)s) GROUP BY p.model_id
""".format(  # noqa: UP032
    sample=ModelSample._meta.db_table, placement=Placement._meta.db_table
)


def samples_take() -> None:
    """One of each worker that is there and of each model that takes memory; those older than ``KEEP`` go."""
    with connection.cursor() as cursor:
        cursor.execute(_WORKERS, {"silent": [WorkerState.LOST, WorkerState.GONE]})
        cursor.execute(_MODELS, {"serving": list(SERVING), "claiming": list(CLAIMING)})
    WorkerSample.objects.filter(at__lt=Now() - KEEP).delete()
    ModelSample.objects.filter(at__lt=Now() - KEEP).delete()
