"""What the domain adds to ``manage.py doctor``: does somebody work, and does the work get done?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from django.db.models import Exists, OuterRef
from django.utils import timezone

from assay.doctor import Finding, Status
from scoring import dispatch
from scoring.models import Chunk, Job, Worker
from scoring.selectors.workers import workers_alive
from scoring.services.chunks import RUNNABLE
from scoring.states import ChunkState, WorkerState

DEEP_QUEUE: Final = 100
PATIENCE_SECONDS: Final = 120.0
NO_NEWS: Final = (WorkerState.STARTING, WorkerState.GONE)


def queue_findings() -> Iterator[Finding]:
    """Messages not yet taken, and jobs that nobody works on."""
    for queue, depth in dispatch.queue_depths().items():
        message = f"{depth} messages wait in queue '{queue}'"
        if depth > DEEP_QUEUE:
            advice = "Workers do not keep up: start more of them, or look at the log of one."
            yield Finding("queues", Status.WARNING, message, advice)
        else:
            yield Finding("queues", Status.OK, message)
    yield _oldest_job()


def _oldest_job() -> Finding:
    of_job = Chunk.objects.filter(job=OuterRef("pk"))
    waiting = Job.objects.filter(
        Exists(of_job.filter(state=ChunkState.PENDING)),
        ~Exists(of_job.filter(state=ChunkState.LEASED)),
        state__in=RUNNABLE,
    )
    oldest = waiting.order_by("queued_at").first()
    if oldest is None:
        return Finding("jobs", Status.OK, "every job that may run has a chunk in hand")
    age = (timezone.now() - oldest.queued_at).total_seconds()
    message = f"job {oldest.pk} was queued {age:.0f} s ago and nobody works on it"
    if age < PATIENCE_SECONDS:
        return Finding("jobs", Status.OK, message)
    advice = "Open its page, and those of its models: they say on which workers a model is, or why on none."
    return Finding("jobs", Status.WARNING, message, advice)


def worker_findings() -> Iterator[Finding]:
    """Who is there, who is not well, and who is of another release."""
    alive = list(workers_alive())
    if not alive:
        advice = "Start one with `manage.py gpu_worker`: requests are refused and jobs wait."
        yield Finding("workers", Status.PROBLEM, "No worker is ready.", advice)
    for worker in alive:
        if problem := worker.statistics.get("problem"):
            yield Finding("workers", Status.PROBLEM, f"{worker.name}: {problem}", "Restart it as its sentence says.")
    for worker in Worker.objects.exclude(pk__in=[worker.pk for worker in alive]).exclude(state__in=NO_NEWS):
        yield _unwell(worker)
    versions = sorted({str(worker.statistics.get("payload_version", "unknown")) for worker in alive})
    if len(versions) > 1:
        message = f"workers speak payload versions {' and '.join(versions)}"
        yield Finding(
            "workers", Status.WARNING, message, "Finish the upgrade: only neighbouring versions work together."
        )
    if alive:
        yield Finding("workers", Status.OK, f"{len(alive)} ready")


def _unwell(worker: Worker) -> Finding:
    if worker.state == WorkerState.READY:
        message = f"{worker.name} on {worker.host} fell silent and nobody took its chunks back"
        advice = "Start `manage.py reconciler`; if one runs, it acts within the lease time."
    else:
        message = f"{worker.name} on {worker.host} is {worker.state}"
        advice = "Its log says why; it counts again as soon as it reports."
    return Finding("workers", Status.WARNING, message, advice)
