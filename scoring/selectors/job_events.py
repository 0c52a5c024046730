"""A job's log: every move of the job, of its stages and of its chunks, the newest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from scoring.models import Chunk, Job, Stage, Transition
from scoring.models.transition import NOTEWORTHY
from scoring.states import JobState, StageState

# What somebody who looks for a fault wants to see: chunks that came back or failed, stages left out, jobs stopped.
PROBLEMS = NOTEWORTHY & (
    Q(entity="chunk")
    | Q(entity="stage", to_state=StageState.SKIPPED)
    | Q(
        entity="job",
        to_state__in=(JobState.CANCELLING, JobState.FAILED, JobState.EXPIRED, JobState.COMPLETED_WITH_ERRORS),
    )
)
KINDS = {"main": NOTEWORTHY, "problems": PROBLEMS, "all": Q()}
WORKER = "worker:"


@dataclass(frozen=True, slots=True)
class LogPage:
    """Events of one of ``KINDS``, those before the event ``before`` if given; ``older`` asks for the next page."""

    kind: str
    before: int | None
    events: list[JobEvent]
    older: int | None


@dataclass(frozen=True, slots=True)
class JobEvent:
    """``what`` names the job, stage or chunk in words; ``attempt`` counts a chunk's faults, or a job's retries."""

    id: int
    at: datetime
    entity: str
    what: str
    from_state: str
    to_state: str
    actor: str
    worker: str | None
    reason: str
    attempt: int | None
    error: str
    detail: dict[str, Any]


def job_log(job: Job) -> QuerySet[Transition]:
    """The moves of the job itself."""
    return Transition.objects.filter(job=job, entity="job")


def job_transitions(job: Job) -> QuerySet[Transition]:
    """Of the job and all its parts; one index serves it, however many chunks there are."""
    return Transition.objects.filter(job=job).order_by("-id")


def job_events(rows: Iterable[Transition]) -> list[JobEvent]:
    """A page of ``job_transitions`` in words. Two queries more, whatever the length of the page."""
    rows = list(rows)
    names = _names("stage", rows) | _names("chunk", rows)
    return [
        JobEvent(
            id=row.pk,
            at=row.at,
            entity=row.entity,
            what="job" if row.entity == "job" else names.get((row.entity, row.entity_id), f"{row.entity} of old"),
            from_state=row.from_state,
            to_state=row.to_state,
            actor=row.actor,
            worker=row.actor.removeprefix(WORKER) if row.actor.startswith(WORKER) else None,
            reason=row.reason,
            attempt=row.detail.get("attempts", row.detail.get("attempt")),
            error=row.detail.get("error", ""),
            detail=row.detail,
        )
        for row in rows
    ]


def log_page(job: Job, *, kind: str = "main", before: int | None = None, limit: int = 50) -> LogPage:
    rows = job_transitions(job).filter(KINDS[kind])
    if before is not None:
        rows = rows.filter(pk__lt=before)
    events = job_events(rows[: limit + 1])
    return LogPage(kind, before, events[:limit], events[limit - 1].id if len(events) > limit else None)


def _names(entity: str, rows: list[Transition]) -> dict[tuple[str, str], str]:
    """By kind and id. A stage that was cut anew has other chunks than before: those are not there any more."""
    ids = {row.entity_id for row in rows if row.entity == entity}
    if entity == "stage":
        return {
            (entity, str(pk)): f"stage {n + 1}" for pk, n in Stage.objects.filter(pk__in=ids).values_list("pk", "index")
        }
    found = Chunk.objects.filter(pk__in=ids).values_list("pk", "stage__index", "index")
    return {(entity, str(pk)): f"stage {stage + 1}, chunk {n}" for pk, stage, n in found}
