from __future__ import annotations

import uuid
from datetime import timedelta

from django.conf import settings
from django.db.models import Count, QuerySet
from django.db.models.functions import Now

from scoring.models import Worker
from scoring.services.chunks import liveness
from scoring.states import WorkerState


def workers_alive() -> QuerySet[Worker]:
    """Workers that reported lately, whatever they do: starting, busy or draining ones cannot take new work."""
    return Worker.objects.filter(state=WorkerState.READY, heartbeat_at__gt=Now() - liveness())


def workers_returning() -> QuerySet[Worker]:
    """Workers that are starting, or were stopped so lately that whoever stopped them may be restarting them; none that
    somebody keeps from work, none that was killed."""
    states = (WorkerState.STARTING, WorkerState.DRAINING, WorkerState.GONE)
    since = Now() - timedelta(seconds=settings.WORKER_RETURN_SECONDS)
    return Worker.objects.filter(state__in=states, hold="", heartbeat_at__gt=since)


def worker_states() -> dict[WorkerState, int]:
    """How many workers are in which state, those gone for long aside; only states that occur, in their own order."""
    counted = dict(Worker.objects.exclude(state=WorkerState.GONE).order_by().values_list("state").annotate(Count("pk")))
    return {state: counted[state] for state in WorkerState if state in counted}


def workers_answering() -> dict[uuid.UUID, uuid.UUID]:
    """The processes that may still send a reply, also while they are drained: of each worker its boot."""
    heard = Worker.objects.filter(heartbeat_at__gt=Now() - liveness())
    return dict(heard.exclude(state__in=(WorkerState.LOST, WorkerState.GONE)).values_list("pk", "boot_id"))
