"""What waits: for each model, in each message queue, and which jobs are in the queue of all teams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import redis
from django.db.models import Count, Q, QuerySet

from assay.api.principal import Principal
from scoring import dispatch
from scoring.models import Job
from scoring.selectors.demand import ModelDemand, model_demands
from scoring.snapshots import Snapshot
from scoring.states import FINAL_JOB_STATES, ChunkState, JobState

JOBS_SHOWN: Final = 50
IN_QUEUE: Final = (JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING, JobState.FINALIZING)


@dataclass(frozen=True, slots=True)
class QueueReading:
    """``unread``: messages that no process has taken yet; None when Redis does not answer. ``jobs``: by state."""

    models: list[ModelDemand]
    unread: int | None
    jobs: dict[JobState, int]

    @property
    def backlog_seconds(self) -> float:
        return sum(demand.backlog_seconds for demand in self.models)


def _read() -> QueueReading:
    demands = sorted(model_demands().values(), key=lambda demand: (not demand.has_work, demand.name))
    try:
        unread: int | None = sum(dispatch.queue_depths().values())
    except redis.RedisError:
        unread = None
    open_jobs = Job.objects.exclude(state__in=FINAL_JOB_STATES).order_by()
    counted = dict(open_jobs.values_list("state").annotate(Count("pk")))
    return QueueReading(demands, unread, {state: counted[state] for state in JobState if state in counted})


queue_reading: Final = Snapshot(_read)


def jobs_in_queue(principal: Principal) -> QuerySet[Any]:
    """In the order in which they are served, each with its chunks counted: those of the own team, of all teams for who
    runs the installation."""
    jobs = Job.objects.filter(state__in=IN_QUEUE)
    if principal.user is None or not principal.user.is_superuser:
        jobs = jobs.filter(team=principal.team)
    counts = {
        f"chunks_{state.value}": Count("chunks", filter=Q(chunks__state=state))
        for state in (ChunkState.PENDING, ChunkState.LEASED, ChunkState.DONE, ChunkState.FAILED)
    }
    return jobs.select_related("team", "created_by").annotate(**counts).order_by("-priority", "queued_at")[:JOBS_SHOWN]
