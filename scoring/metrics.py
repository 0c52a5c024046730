"""What the domain adds to ``/metrics``: read from rows at each scrape, so any web process answers for all workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from django.db import DatabaseError
from django.db.models import Count, Min, Model
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis import RedisError

from scoring import dispatch
from scoring.models import (
    BatchLine,
    Chunk,
    ChunkReturn,
    Job,
    RequestBatch,
    ScoringModel,
    WebhookDelivery,
    Worker,
)
from scoring.selectors.demand import model_demand_seconds
from scoring.selectors.workers import workers_alive
from scoring.states import (
    BatchState,
    ChunkCause,
    ChunkState,
    DeliveryState,
    JobState,
    LineState,
    ModelState,
    WorkerState,
)

OPEN_CHUNKS: Final = (ChunkState.PENDING, ChunkState.LEASED)
# The engine's figures that rise and fall; its others only grow.
ENGINE_GAUGES: Final = frozenset(
    {"waiting_requests", "waiting_tokens", "running_sequences", "requests_in_flight", "reservations", "reserved_bytes"}
)
CACHE_GAUGES: Final = frozenset({"bytes", "entries"})


class DomainCollector(Collector):
    """Label sets are closed: states, models served, workers alive. A gone worker's series go with it."""

    def describe(self) -> list[Metric]:
        return []  # asked at registration, when there may be no database yet

    def collect(self) -> Iterator[Metric]:
        try:
            yield from (*_states(), *_queue(), *_demand(), *_workers(), *_messages())
        except (DatabaseError, RedisError):
            return  # /readyz says so; the web's own metrics are answered all the same


def _states() -> Iterator[Metric]:
    tables: tuple[tuple[str, type[Model], list[str]], ...] = (
        ("jobs", Job, JobState.values),
        ("models", ScoringModel, ModelState.values),
        ("workers", Worker, WorkerState.values),
        ("request_batches", RequestBatch, BatchState.values),
        ("batch_lines", BatchLine, LineState.values),  # of batches that have not ended
        ("webhook_deliveries", WebhookDelivery, DeliveryState.values),
    )
    for name, table, states in tables:
        counted = dict(table._default_manager.values_list("state").order_by().annotate(Count("pk")))
        family = GaugeMetricFamily(f"assay_{name}", f"Rows of {name.replace('_', ' ')} by state.", labels=["state"])
        for state in states:
            family.add_metric([state], counted.get(state, 0))
        yield family


def _queue() -> Iterator[Metric]:
    """Only open chunks are counted: the done ones may be millions."""
    open_chunks = Chunk.objects.filter(state__in=OPEN_CHUNKS).order_by()
    counted = dict(open_chunks.values_list("state").annotate(Count("pk")))
    family = GaugeMetricFamily("assay_open_chunks", "Chunks not ended, by state.", labels=["state"])
    for state in OPEN_CHUNKS:
        family.add_metric([state], counted.get(state, 0))
    yield family
    returned = GaugeMetricFamily(
        "assay_returned_chunks", "Chunks not ended that came back, by cause.", labels=["cause"]
    )
    causes = dict(open_chunks.exclude(cause="").values_list("cause").annotate(Count("pk")))
    for cause in ChunkCause.values:
        returned.add_metric([cause], causes.get(cause, 0))
    yield returned
    ever = CounterMetricFamily("assay_chunks_returned", "Chunks that came back, by cause.", labels=["cause"])
    counts = dict(ChunkReturn.objects.values_list("cause", "count"))
    for cause in ChunkCause.values:
        ever.add_metric([cause], counts.get(cause, 0))
    yield ever
    oldest = Job.objects.filter(state=JobState.QUEUED).aggregate(Min("queued_at"))["queued_at__min"]
    age = (timezone.now() - oldest).total_seconds() if oldest else 0.0
    yield GaugeMetricFamily("assay_oldest_queued_job_seconds", "How long the oldest queued job has waited.", value=age)


def _messages() -> Iterator[Metric]:
    """By worker and model, in their names; a queue of neither is ``other``."""
    names = {dispatch.worker_queue(pk): name for pk, name in workers_alive().values_list("pk", "name")}
    names |= {dispatch.model_queue(pk): name for pk, name in ScoringModel.objects.values_list("pk", "name")}
    depths: dict[tuple[str, str], int] = {}
    for queue, depth in dispatch.queue_depths().items():
        kind = {dispatch.WORKER_QUEUES: "worker", dispatch.MODEL_QUEUES: "model"}.get(queue[:2], queue)
        label = (kind, "" if kind == queue else names.get(queue, "other"))
        depths[label] = depths.get(label, 0) + depth
    family = GaugeMetricFamily("assay_queued_messages", "Messages not yet taken.", labels=["queue", "of"])
    for labels, depth in depths.items():
        family.add_metric(labels, depth)
    yield family


def _demand() -> Iterator[Metric]:
    """What somebody who starts and stops workers goes by; see docs/placement.md."""
    families = {
        "seconds_behind": GaugeMetricFamily(
            "assay_model_demand_seconds",
            "What waits, in seconds of the replicas that are ready; of each stage of a job its next 1,000 chunks.",
            labels=["model"],
        ),
        "oldest_seconds": GaugeMetricFamily(
            "assay_model_oldest_seconds", "How long the oldest work of the model has waited.", labels=["model"]
        ),
        "replicas_wanted": GaugeMetricFamily(
            "assay_model_replicas_wanted",
            "Replicas that demand and pins need, with or without workers for them.",
            labels=["model"],
        ),
        "replicas_ready": GaugeMetricFamily(
            "assay_model_replicas_ready", "Replicas that answer requests.", labels=["model"]
        ),
    }
    for name, demand in model_demand_seconds().items():
        for figure, family in families.items():
            family.add_metric([name], getattr(demand, figure))
    yield from families.values()


def _workers() -> Iterator[Metric]:
    families: dict[str, Metric] = {}
    for worker in workers_alive():
        _add(families, "worker_memory_bytes", "Resident memory.", worker.memory_bytes, gauge=True, worker=worker.name)
        budget = worker.memory_budget_bytes
        _add(families, "worker_memory_budget_bytes", "For models.", budget, gauge=True, worker=worker.name)
        for name, value in worker.statistics.get("engine", {}).items():
            if isinstance(value, dict):
                for part, number in value.items():
                    labels = {"worker": worker.name, "cache": name.removesuffix("_cache")}
                    _add(families, f"cache_{part}", f"Caches by tier: {part}.", number, part in CACHE_GAUGES, **labels)
            else:
                what = f"Engine: {name.replace('_', ' ')}."
                _add(families, f"engine_{name}", what, value, name in ENGINE_GAUGES, worker=worker.name)
        for unit, number in worker.statistics.get("chunk_work", {}).items():
            _add(families, f"worker_chunk_{unit}", f"Of chunks done: {unit}.", number, worker=worker.name)
        _add_remotes(families, worker)
        for model, kept in worker.statistics.get("documents_kept", {}).items():
            what = "Encodings of documents that the model keeps; models of one encoder share them."
            for memory, number in (("host", kept["bytes"]), ("device", kept["device_bytes"])):
                labels = {"worker": worker.name, "model": model, "memory": memory}
                _add(families, "model_documents_kept_bytes", what, number, gauge=True, **labels)
        for kind in ("sync", "chunks"):
            for outcome, number in worker.statistics.get(kind, {}).items():
                what = f"Outcomes of {'synchronous requests' if kind == 'sync' else 'chunks'}."
                _add(families, f"worker_{kind}", what, number, worker=worker.name, outcome=outcome)
    yield from families.values()


def _add_remotes(families: dict[str, Metric], worker: Worker) -> None:
    for model, figures in worker.statistics.get("remote", {}).items():
        labels = {"worker": worker.name, "model": model}
        for name, number in figures.items():
            if name == "shut":
                _add(families, "remote_shut", "1: nothing is sent to the remote engine.", number, gauge=True, **labels)
            elif name == "seconds":
                _add(families, "remote_seconds", "Spent on waiting for the remote engine.", number, **labels)
            else:
                _add(families, "remote_calls", "Calls of the remote engine.", number, **labels, outcome=name)


def _add(families: dict[str, Metric], name: str, what: str, value: Any, gauge: bool = False, **labels: str) -> None:
    kind = GaugeMetricFamily if gauge else CounterMetricFamily
    family: Any = families.setdefault(name, kind(f"assay_{name}", what, labels=list(labels)))
    family.add_metric(list(labels.values()), value)
