"""Limits of a person's jobs, checked while nobody else of the team can pass the same check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.db import transaction

from accounts.limits import Quota
from accounts.models import Team
from accounts.quotas import QuotaState, over_quota
from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring.models import Job, JobLimit
from scoring.selectors.job_limits import JobUsage, job_usage, open_pairs

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LIMITS: Final = ("running_jobs", "waiting_jobs", "open_pairs")


def usage_lock(*, team: Team, user: User | None) -> JobUsage:
    """What ``user`` has open; it stays so until the transaction ends, as everybody who opens more waits here."""
    Team.objects.select_for_update(no_key=True).get(pk=team.pk)
    return job_usage(team=team, user=user)


def running_check(usage: JobUsage) -> None:
    """Raises AssayError 429 ``running_jobs_limit`` when no further job may be given to the workers."""
    if not usage.room:
        raise _over(
            "running_jobs",
            f"{usage.running_jobs:,} of your jobs are queued or running, and the limit for one person is "
            f"{usage.running_limit:,}. Wait until one ends, or pause or cancel one.",
            allowed=usage.running_limit,
            used=usage.running_jobs,
            asked=1,
        )


def waiting_check(usage: JobUsage) -> None:
    """Raises AssayError 429 ``waiting_jobs_limit`` when no further job may wait."""
    if usage.waiting_jobs >= usage.waiting_limit:
        raise _over(
            "waiting_jobs",
            f"{usage.waiting_jobs:,} of your jobs are scheduled, held back or paused, and the limit for one person is "
            f"{usage.waiting_limit:,}, beside {usage.running_limit:,} that are queued or running. Wait until one of "
            "them starts, or cancel one.",
            allowed=usage.waiting_limit,
            used=usage.waiting_jobs,
            asked=1,
        )


def pairs_check(usage: JobUsage, pairs: int) -> None:
    """Raises AssayError 429 ``open_pairs_limit`` when ``pairs`` more would be too many."""
    if usage.open_pairs + pairs > usage.pairs_limit:
        raise _over(
            "open_pairs",
            f"This job has {pairs:,} pairs; your open jobs have {usage.open_pairs:,} already, and the limit for one "
            f"person is {usage.pairs_limit:,} in all. Wait until a job ends, cancel one, or score fewer candidates.",
            allowed=usage.pairs_limit,
            used=usage.open_pairs,
            asked=pairs,
        )


def quotas_check(job: Job) -> None:
    """Raises AssayError 429 ``quota_exceeded`` when the pairs of ``job`` are too many beside those of its token's other
    open jobs, or its team's. Counted from rows, under the lock of ``usage_lock``: Redis has no say in it."""
    all_of = {"token": Job.objects.filter(token=job.token), "team": Job.objects.filter(team=job.team)}
    for of, holder in (("token", job.token), ("team", job.team)):
        if holder is None or (limit := holder.open_pairs) is None:
            continue
        used = open_pairs(all_of[of].exclude(pk=job.pk))
        if used + job.pair_count > limit:
            state = QuotaState(of, Quota.PAIRS, limit, used, reset=None)
            raise over_quota(state, asked=job.pair_count, noun="job")


def job_limit_set(*, principal: Principal, limit: JobLimit) -> None:
    """Write ``limit``, new or changed."""
    new = limit._state.adding
    before = {} if new else JobLimit.objects.filter(pk=limit.pk).values(*LIMITS).get()
    with transaction.atomic():
        limit.save(force_insert=new)
        detail = {name: [before.get(name), getattr(limit, name)] for name in LIMITS}
        audit_record(verb="job_limit.set", principal=principal, target=limit, detail=detail)


def job_limit_delete(*, principal: Principal, limit: JobLimit) -> None:
    with transaction.atomic():
        detail = {name: [getattr(limit, name), None] for name in LIMITS}
        audit_record(verb="job_limit.deleted", principal=principal, target=limit, detail=detail)
        limit.delete()


def _over(limit: str, message: str, *, allowed: int, used: int, asked: int) -> AssayError:
    extra = {"limit": limit, "allowed": allowed, "used": used, "asked": asked}
    return AssayError(f"{limit}_limit", message, status=429, extra=extra)
