"""How much work waits for each model, and how many replicas that needs: read from rows, published, never guessed."""

from __future__ import annotations

import math
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, Func, IntegerField, Min, OuterRef, Q, Sum
from django.utils import timezone

from scoring.models import Chunk, Placement, ScoringModel, Stage
from scoring.states import SERVING, ChunkState, JobState, ModelState, PlacementState, WorkerState

BACKLOG_SECONDS: Final = 30.0  # of one replica's work: more than that is worth another one
IN_FLIGHT: Final = 8  # synchronous requests at a replica that keep it busy
UP_SECONDS: Final = 4.0  # a need must last so long before it is more than one replica
DOWN_SECONDS: Final = 600.0  # a replica idle for so long, above what is wanted, is let go
CHUNK_SECONDS: Final = 5.0  # what a chunk is aimed at; counts until the first ones are measured
PACED_CHUNKS: Final = 4
COUNTED_CHUNKS: Final = 1000  # of a stage; what waits behind them changes nothing that is decided by the backlog
RUNNABLE: Final = (JobState.QUEUED, JobState.RUNNING)


@dataclass(slots=True)
class ModelDemand:
    """Of one model. Seconds are of one replica's work."""

    name: str
    backlog_seconds: float = 0.0
    in_flight: int = 0
    oldest: datetime | None = None  # since when the oldest of what waits does
    replicas_ready: int = 0
    replicas_wanted: int = 0

    @property
    def has_work(self) -> bool:
        return self.backlog_seconds > 0 or self.in_flight > 0

    @property
    def oldest_seconds(self) -> float:
        return max((timezone.now() - self.oldest).total_seconds(), 0.0) if self.oldest else 0.0

    @property
    def seconds_behind(self) -> float:
        """How long the replicas that are ready need for what waits."""
        return self.backlog_seconds / max(self.replicas_ready, 1)


@dataclass(slots=True)
class _Backlog:
    seconds: float = 0.0
    oldest: datetime | None = None
    jobs: list[uuid.UUID] = field(default_factory=list)


def replicas_for(model: ScoringModel, *, seconds: float, in_flight: int = 0) -> int:
    """clamp(demand ÷ what one replica is for, least, most), however many workers there are: more may be started."""
    needed = max(math.ceil(seconds / BACKLOG_SECONDS), math.ceil(in_flight / IN_FLIGHT), model.replicas_at_least)
    return needed if model.max_replicas is None else min(needed, model.max_replicas)


def model_demands() -> dict[uuid.UUID, ModelDemand]:
    """Of every registered model."""
    models = list(ScoringModel.objects.all())
    demands = {model.pk: ModelDemand(model.name) for model in models}
    for row in _replicas():
        demand = demands[row["model"]]
        demand.in_flight, demand.replicas_ready, demand.oldest = row["flying"] or 0, row["ready"], row["waiting"]
    for model_id, backlog in _backlogs().items():
        demand = demands[model_id]
        demand.backlog_seconds = backlog.seconds
        demand.oldest = min(filter(None, (demand.oldest, backlog.oldest)), default=None)
    for model in models:
        if model.state == ModelState.AVAILABLE:
            demand = demands[model.pk]
            demand.replicas_wanted = replicas_for(model, seconds=demand.backlog_seconds, in_flight=demand.in_flight)
    return demands


def model_demand_seconds() -> dict[str, ModelDemand]:
    """The scaling signal of every model that is served, by its name."""
    served = set(ScoringModel.objects.filter(state=ModelState.AVAILABLE).values_list("name", flat=True))
    return {demand.name: demand for demand in model_demands().values() if demand.name in served}


def _replicas() -> Any:
    serving = Q(state__in=SERVING, present=True, worker__state=WorkerState.READY)
    return (
        Placement.objects.order_by()
        .values("model")
        .annotate(
            ready=Count("pk", filter=serving),
            flying=Sum("in_flight", filter=serving),
            waiting=Min("wanted_at", filter=Q(state=PlacementState.WANTED, present=True)),
        )
    )


def _backlogs() -> dict[uuid.UUID, _Backlog]:
    """Chunks of running jobs that nobody has taken yet, in seconds by the pace of the chunks that are done; of a stage
    COUNTED_CHUNKS at most, so that a round of the reconciler does not grow with what waits."""
    chunks = Chunk.objects.filter(stage=OuterRef("pk"), state=ChunkState.PENDING).order_by().values("stage")
    waiting = Func(ArraySubquery(chunks[:COUNTED_CHUNKS]), function="cardinality", output_field=IntegerField())
    stages = (
        Stage.objects.filter(job__state__in=RUNNABLE, model__isnull=False)
        .order_by()
        .annotate(pending=waiting)
        .values_list("pk", "model", "pending", "job__queued_at")
    )
    backlogs: dict[uuid.UUID, _Backlog] = defaultdict(_Backlog)
    for stage_id, model_id, pending, queued_at in stages:
        if not pending:
            continue
        backlog = backlogs[model_id]
        backlog.seconds += pending * _chunk_seconds(stage_id)
        backlog.oldest = min(backlog.oldest or queued_at, queued_at)
    return backlogs


def _chunk_seconds(stage_id: int) -> float:
    """What one chunk of the stage takes a replica, from the first that are done: on the device, not in a queue."""
    done = Chunk.objects.filter(stage=stage_id, state=ChunkState.DONE).order_by("index")
    reports = list(done.values_list("report", flat=True)[:PACED_CHUNKS])
    timings = [report.get("timings") or {} for report in reports]
    measured = [sum(timing.get(phase, 0.0) for phase in ("tokenise", "forward", "maxsim")) / 1000 for timing in timings]
    return sum(measured) / len(measured) if measured else CHUNK_SECONDS
