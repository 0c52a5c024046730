"""How much a person may have open, and how much they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.conf import settings
from django.db.models import Count, Q, QuerySet, Sum

from scoring.models import Job, JobLimit
from scoring.states import ADMITTED_JOB_STATES, FINAL_JOB_STATES, WAITING_JOB_STATES

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from accounts.models import Team


@dataclass(frozen=True, slots=True)
class JobUsage:
    """Of one person in one team; jobs of tokens that nobody in particular made count together."""

    running_jobs: int
    waiting_jobs: int
    open_pairs: int
    running_limit: int
    waiting_limit: int
    pairs_limit: int

    @property
    def room(self) -> int:
        """How many more jobs may be given to the workers now."""
        return max(self.running_limit - self.running_jobs, 0)


def job_usage(*, team: Team, user: User | None) -> JobUsage:
    own = Job.objects.for_team(team).filter(created_by=user).exclude(state__in=FINAL_JOB_STATES)
    used = own.aggregate(
        running=Count("pk", filter=Q(state__in=ADMITTED_JOB_STATES)),
        waiting=Count("pk", filter=Q(state__in=WAITING_JOB_STATES)),
        pairs=Sum("pair_count", default=0),
    )
    # The person's own row first, then the one for everybody of the team, then the installation.
    rows = JobLimit.objects.filter(Q(user=user) | Q(user=None), team=team)
    nearest = sorted(rows, key=lambda row: row.user_id is None)

    def limit(field: str, otherwise: int) -> int:
        return next((value for row in nearest if (value := getattr(row, field)) is not None), otherwise)

    return JobUsage(
        running_jobs=used["running"],
        waiting_jobs=used["waiting"],
        open_pairs=used["pairs"],
        running_limit=limit("running_jobs", settings.JOBS_RUNNING_PER_USER),
        waiting_limit=limit("waiting_jobs", settings.JOBS_WAITING_PER_USER),
        pairs_limit=limit("open_pairs", settings.PAIRS_OPEN_PER_USER),
    )


def open_pairs(jobs: QuerySet[Job]) -> int:
    """Of those that have not ended."""
    pairs: int = jobs.exclude(state__in=FINAL_JOB_STATES).aggregate(pairs=Sum("pair_count", default=0))["pairs"]
    return pairs
