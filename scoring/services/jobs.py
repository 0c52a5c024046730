"""A job as a row: submitted, changed, deleted. What moves it in between is in ``job_control`` and ``job_watch``."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import models, transaction
from django.db.models.functions import Now
from django.utils import timezone

from assay.api.principal import Principal
from assay.errors import AssayError
from assay.texts import has_visible
from assay.token_form import tokens_hidden
from audit.services import audit_record
from scoring import dispatch
from scoring.models import Chunk, DocumentSet, Job, QuerySet
from scoring.models.base import UploadedSet
from scoring.selectors.job_waiting import paused_before_start
from scoring.services.job_limits import pairs_check, quotas_check, usage_lock, waiting_check
from scoring.services.retention import texts_demand
from scoring.services.stage_plan import StagePlan, candidate_limits, plans_check
from scoring.services.stages import stage_open, stages_create
from scoring.services.transitions import transition_record
from scoring.services.usage import usage_carry
from scoring.states import STOPPABLE_JOB_STATES, TIMED_JOB_STATES, JobState, SetState

MAX_PAIRS: Final = 100_000_000
MAX_NAME: Final = 200
PRIORITIES: Final = range(-100, 101)
MAX_COMPLETE_WITHIN: Final = 366 * 24 * 3600
MAX_AHEAD: Final = timedelta(days=366)
DEFAULT_MAX_ERROR_RATE: Final = 0.5


class Kept(enum.Enum):
    """A value that was not given, where None is one that may be."""

    KEPT = enum.auto()


KEPT: Final = Kept.KEPT


def job_submit(
    *,
    principal: Principal,
    name: str,
    document_set: DocumentSet,
    query_set: QuerySet,
    stages: Sequence[StagePlan],
    priority: int = 0,
    start_at: datetime | None = None,
    complete_within: int | None = None,
    max_error_rate: float | None = None,
    cloned_from: Job | None = None,
    idempotency_key: str | None = None,
) -> tuple[Job, bool]:
    """Write the job and its first chunks in one transaction, then wake the workers.

    Returns the job and whether it is new.

    It joins the queue at once; at ``start_at``, if that is to come; or, with too many jobs of the person in the queue,
    when one of them has ended. ``complete_within`` seconds after that it is stopped and what is done is ranked.
    ``max_error_rate`` is the share of failed pairs that stops it (None: half of them; 1: it goes on regardless).

    Raises AssayError 422 for stages that cannot be (``plans_check``), a set that is not ready, has no texts or nothing
    to rank, a number out of range, too many pairs; 429 over one of the person's limits, or a quota of the token or the
    team; 409 ``idempotency_conflict`` when the key was used for something else. PermissionDenied for a model that the
    principal's token is not for.
    """
    for plan in stages:
        if plan.model is not None:
            principal.require_model(plan.model.name)
    asked = request_fingerprint(
        name, document_set, query_set, stages, priority, start_at, complete_within, max_error_rate, cloned_from
    )
    with transaction.atomic():
        usage = usage_lock(team=principal.team, user=principal.user)  # two requests with one key wait for each other
        if idempotency_key and (existing := Job.objects.filter(team=principal.team, idempotency_key=idempotency_key)):
            return _same_or_refused(existing[0], asked), False
        limits = _checked_limits(stages, document_set, query_set)
        _check_priority(priority)
        _check_times(start_at, complete_within)
        texts_demand(document_set=document_set, query_set=query_set)
        waits = not usage.room or (start_at is not None and start_at > timezone.now())
        if waits:
            waiting_check(usage)
        job = Job.objects.create(
            team=principal.team,
            created_by=principal.user,
            token=principal.token,
            name=_named(name.strip() or f"{query_set.name} on {document_set.name} by {_by(stages)}"),
            document_set=document_set,
            query_set=query_set,
            priority=priority,
            start_at=start_at,
            complete_within=complete_within,
            max_error_rate=_checked_error_rate(max_error_rate),
            cloned_from=cloned_from,
            state=JobState.SCHEDULED if waits else JobState.QUEUED,
            expires_at=None if waits else expiry(complete_within),
            query_count=query_set.counts["kept"],
            document_count=document_set.counts["kept"],
            pair_count=0,
            idempotency_key=idempotency_key or None,
            request_fingerprint=asked if idempotency_key else "",
        )
        rows = stages_create(job=job, plans=stages, limits=limits)
        job.pair_count = sum(stage.pair_count for stage in rows)
        job.save(update_fields=["pair_count"])
        pairs_check(usage, job.pair_count)
        quotas_check(job)
        for stage in rows:
            if stage.source is None:
                stage_open(stage=stage, actor=principal.label)
        transition_record(job, "", job.state, actor=principal.label, reason="submitted").save()
        audit_record(verb="job.submitted", principal=principal, target=job, detail={"pairs": job.pair_count})
        transaction.on_commit(dispatch.workers_wake)
    job.refresh_from_db(fields=["queued_at", "expires_at"])
    return job, True


def job_change(
    *,
    principal: Principal,
    job: Job,
    name: str | Kept = KEPT,
    priority: int | Kept = KEPT,
    complete_within: int | Kept | None = KEPT,
) -> Job:
    """Give the job another name, place in the queue or time to be done in (None: any); what is not given is kept.

    Raises AssayError 422 for a value that cannot be; 409 ``job_ended`` for all but the name once it cannot matter.
    """
    asked = {"name": name, "priority": priority, "complete_within": complete_within}
    changed = {field: value for field, value in asked.items() if value is not KEPT and value != getattr(job, field)}
    if not changed:
        return job
    fields: dict[str, Any] = dict(changed)
    if "name" in changed:
        fields["name"] = _named(str(name))
    if "priority" in changed:
        _check_priority(priority)
    if "complete_within" in changed:
        _check_complete_within(complete_within)
        fields["expires_at"] = _until(job, complete_within)
    rows = Job.objects.filter(pk=job.pk)
    if changed.keys() != {"name"}:
        rows = rows.filter(state__in=STOPPABLE_JOB_STATES)
    with transaction.atomic():
        if not rows.update(**fields):
            job_reread(job)
            message = f"Job '{job.name}' is {job.get_state_display().lower()}; only its name can still be changed."
            raise AssayError("job_ended", message, status=409)
        detail = {field: {"from": getattr(job, field), "to": value} for field, value in changed.items()}
        transition_record(job, job.state, job.state, actor=principal.label, reason="changed", detail=detail).save()
        audit_record(verb="job.changed", principal=principal, target=job, detail=detail)
    return job_reread(job)


def job_delete(*, principal: Principal, job: Job) -> None:
    """Remove an ended job with its rankings, scores and log. Raises AssayError 409 ``job_not_ended`` before its end."""
    with transaction.atomic():
        state = Job.objects.select_for_update().filter(pk=job.pk).values_list("state", flat=True).first()
        if state is None:
            raise _gone(job)
        if not JobState(state).is_final:
            message = (
                f"Job '{job.name}' is {JobState(state).label.lower()}; cancel it, and delete it when it has ended."
            )
            raise AssayError("job_not_ended", message, status=409)
        audit_record(verb="job.deleted", principal=principal, target=job, detail={"pairs": job.pair_count})
        usage_carry(chunks=Chunk.objects.filter(job=job))
        job.delete()


def job_reread(job: Job) -> Job:
    """The job as it is now. Raises AssayError 404 when somebody deleted it meanwhile."""
    try:
        job.refresh_from_db()
    except Job.DoesNotExist:
        raise _gone(job) from None
    return job


def expiry(complete_within: int | None) -> Any:
    """The moment until which a job that joins the queue now must be done, by the database's clock."""
    return Now() + timedelta(seconds=complete_within) if complete_within else None


def _until(job: Job, complete_within: Any) -> datetime | None:
    """The end of the time that the job may take; a scheduled job's begins when it joins the queue."""
    if complete_within is None or job.state not in TIMED_JOB_STATES or paused_before_start(job):
        return None
    until = job.queued_at + timedelta(seconds=complete_within)
    if until <= timezone.now():
        raise _refusal(
            "bad_complete_within",
            f"complete_within is {complete_within:,}, but the job joined the queue longer ago than that. "
            "Give more seconds, or cancel the job.",
            "complete_within",
        )
    return until


def _checked_limits(stages: Sequence[StagePlan], document_set: DocumentSet, query_set: QuerySet) -> list[int]:
    """The stages' ``candidate_limits``, if they can be scored at all."""
    for param, uploaded in (("document_set", document_set), ("query_set", query_set)):
        _check_set(param, uploaded)
    plans_check(stages, query_set=query_set, document_set=document_set)
    query_count, document_count = query_set.counts["kept"], document_set.counts["kept"]
    limits = candidate_limits(stages, document_count=document_count)
    pairs = query_count * sum(limits)
    if pairs > MAX_PAIRS:
        raise _refusal(
            "too_many_pairs",
            f"{query_count:,} queries × {document_count:,} documents in {len(stages)} "
            f"stage{'s' if len(stages) > 1 else ''} are up to {pairs:,} pairs; the limit is {MAX_PAIRS:,}. Split one "
            "of the sets, or score fewer candidates: retrieve them by BM25 first.",
            "document_set",
        )
    return limits


def _named(name: str) -> str:
    if not has_visible(name):
        message = "Nothing of the name can be seen; give the job one of 1 to 200 characters."
        raise _refusal("bad_name", message, "name")
    return tokens_hidden(name.strip())[:MAX_NAME]


def _check_priority(priority: Any) -> None:
    if priority not in PRIORITIES:
        raise _refusal("bad_priority", f"priority is {priority}; it must be between -100 and 100.", "priority")


def _check_times(start_at: datetime | None, complete_within: int | None) -> None:
    if start_at is not None and start_at > timezone.now() + MAX_AHEAD:
        message = (
            f"start_at is {start_at:%Y-%m-%d %H:%M} UTC; a job can be scheduled for the next {MAX_AHEAD.days} days."
        )
        raise _refusal("bad_start_at", message, "start_at")
    _check_complete_within(complete_within)


def _check_complete_within(complete_within: Any) -> None:
    if complete_within is not None and not 1 <= complete_within <= MAX_COMPLETE_WITHIN:
        raise _refusal(
            "bad_complete_within",
            f"complete_within is {complete_within:,} seconds; give 1 to {MAX_COMPLETE_WITHIN:,}, or nothing.",
            "complete_within",
        )


def _checked_error_rate(rate: float | None) -> float:
    if rate is None:
        return DEFAULT_MAX_ERROR_RATE
    if not 0 <= rate <= 1:  # NaN included
        message = (
            f"max_error_rate is {rate}; give a share from 0 (the first failed pairs stop the job) to 1 (none does)."
        )
        raise _refusal("bad_max_error_rate", message, "max_error_rate")
    return rate


def _check_set(param: str, uploaded: UploadedSet) -> None:
    noun = param.replace("_", " ")
    if uploaded.state != SetState.READY:
        message = f"The {noun} '{uploaded.name}' is {uploaded.state}; wait until it is ready."
        raise _refusal("set_not_ready", message, param)
    if uploaded.counts["kept"] == uploaded.counts["empty"]:
        message = f"Every row of the {noun} '{uploaded.name}' is empty; there is nothing to score."
        raise _refusal("empty_set", message, param)


def _same_or_refused(job: Job, asked: str) -> Job:
    if job.request_fingerprint != asked:
        raise AssayError(
            "idempotency_conflict",
            f"This Idempotency-Key was used for job {job.pk} with other contents. Send a new key for a new job.",
            status=409,
            param="Idempotency-Key",
        )
    return job


def request_fingerprint(*asked: Any) -> str:
    """The request as it was made: the job itself may be renamed or moved in the queue afterwards."""
    return hashlib.sha256(json.dumps(asked, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, models.Model):
        return str(value.pk)
    return {name: getattr(value, name) for name in StagePlan.__slots__} if isinstance(value, StagePlan) else str(value)


def _gone(job: Job) -> AssayError:
    return AssayError("not_found", f"Job '{job.name}' was deleted.", status=404)


def _by(stages: Sequence[StagePlan]) -> str:
    """The stages' names: an arrow leads from candidates to who scores them, a comma stands between others."""
    names = [str(stages[0])]
    for index, plan in enumerate(stages[1:], start=1):
        names.append(f"{' → ' if plan.source == index - 1 else ', '}{plan}")
    return "".join(names)


def _refusal(code: str, message: str, param: str) -> AssayError:
    return AssayError(code, message, status=422, param=param)
