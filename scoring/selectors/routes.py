"""Reads for the routing of synchronous requests. Each is one query, whatever the size of the fleet."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models.functions import Now

from scoring.dispatch import worker_queue
from scoring.models import Placement, Worker
from scoring.services.chunks import liveness
from scoring.states import SERVING, WorkerState

ANSWERING = (WorkerState.READY, WorkerState.STALLED, WorkerState.DRAINING)


@dataclass(frozen=True, slots=True)
class Route:
    """A worker that has the model in force. Those of one ``version`` give the same scores, within the dtype's
    tolerance."""

    worker_id: str
    name: str
    version: str

    @property
    def queue(self) -> str:
        return worker_queue(self.worker_id)


def routes_ready(*, model_id: str) -> list[Route]:
    rows = (
        Placement.objects.filter(model=model_id, present=True, state__in=SERVING)
        .filter(worker__state=WorkerState.READY, worker__heartbeat_at__gt=Now() - liveness())
        .order_by("worker")
        .values_list("worker_id", "worker__name", "generation", "facts__dtype", "facts__device")
    )
    return [
        Route(str(worker), name, f"{generation} {dtype} {str(device).partition(':')[0]}")
        for worker, name, generation, dtype, device in rows
    ]


def workers_answering() -> dict[str, str]:
    """The processes that may still send a reply: of each worker its boot."""
    rows = Worker.objects.filter(heartbeat_at__gt=Now() - liveness()).exclude(
        state__in=(WorkerState.LOST, WorkerState.GONE)
    )
    return {str(worker): str(boot) for worker, boot in rows.values_list("pk", "boot_id")}
