from __future__ import annotations

from django.db.models import QuerySet
from django.db.models.functions import Now

from scoring.models import Worker
from scoring.services.chunks import liveness
from scoring.states import WorkerState


def workers_alive() -> QuerySet[Worker]:
    """Workers that reported lately, whatever they do: starting, busy or draining ones cannot take new work."""
    return Worker.objects.filter(state=WorkerState.READY, heartbeat_at__gt=Now() - liveness())
