"""What a team sees first: what runs, what ended, what failed and why, and what is missing to begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from assay.api.principal import Principal
from scoring.models import DocumentSet, Job
from scoring.models import QuerySet as QueriesSet
from scoring.selectors.jobs import jobs_of
from scoring.selectors.models import models_served
from scoring.states import FINAL_JOB_STATES, JobState, SetState

TROUBLED: Final = (JobState.FAILED, JobState.COMPLETED_WITH_ERRORS, JobState.EXPIRED)
FINE: Final = (JobState.COMPLETED, JobState.CANCELLED)
SHOWN: Final = 6


@dataclass(frozen=True, slots=True)
class Start:
    """The steps to a first result, each done or not."""

    has_documents: bool
    has_queries: bool
    has_model: bool
    has_job: bool

    @property
    def has_data(self) -> bool:
        return self.has_documents and self.has_queries


def jobs_running(principal: Principal) -> QuerySet[Any]:
    """Jobs that have not ended, the next to end first, each with ``pairs_done``, counted in the same query."""
    done = Sum("chunks__pair_count")
    running = jobs_of(principal).exclude(state__in=FINAL_JOB_STATES).annotate(pairs_done=Coalesce(done, 0))
    return running.order_by("-priority", "queued_at")[:SHOWN]


def jobs_ended(principal: Principal) -> QuerySet[Job]:
    return jobs_of(principal).filter(state__in=FINE).order_by("-finished_at")[:SHOWN]


def jobs_troubled(principal: Principal) -> QuerySet[Job]:
    return jobs_of(principal).filter(state__in=TROUBLED).order_by("-finished_at")[:SHOWN]


def start_of(principal: Principal) -> Start:
    ready = Q(team=principal.team, state=SetState.READY)
    return Start(
        has_documents=DocumentSet.objects.filter(ready).exists(),
        has_queries=QueriesSet.objects.filter(ready).exists(),
        has_model=models_served().exists(),
        has_job=Job.objects.for_team(principal.team).exists(),
    )
