"""How long texts and the chunks' scores stay. Both are deleted in two steps: a request, from which on no job may need
them, and the deed.

Texts, titles and metadata go; ids, scores, rankings, judgements and the import's counts stay. Of scores go those that a
job was ranked from; the rankings stay.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import models, transaction
from django.db.models.functions import Now
from django.utils import timezone

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record
from scoring.models import Chunk, DocumentSet, Job, QuerySet, ScoreRequest
from scoring.models.base import TextSet
from scoring.models.chunk import BLOBS
from scoring.selectors.sets import set_jobs, set_rows
from scoring.services.exports import exports_forget
from scoring.states import ChunkState

BATCH: Final = 5_000


def texts_delete(*, principal: Principal, uploaded: TextSet) -> None:
    """Order the deletion of the set's texts; the reconciler carries it out. Nothing happens the second time.

    Raises AssayError 409 ``set_in_use`` while a job over the set has not ended.
    """
    if not _request(uploaded, principal):
        noun = uploaded._meta.verbose_name
        raise AssayError(
            "set_in_use",
            f"The texts of the {noun} '{uploaded.name}' cannot be deleted: {_open_jobs(uploaded):,} jobs over it have "
            "not ended. Cancel them, or wait.",
            status=409,
        )
    uploaded.refresh_from_db(fields=("texts_delete_requested_at", "texts_deleted_at"))


def texts_demand(**sets: TextSet) -> None:
    """Raise AssayError 422 ``texts_deleted`` if the texts of a set are gone or going; ``sets`` by parameter name.

    Call it in the transaction that lets a job begin: its lock makes a request wait, which then sees the job. (A foreign
    key alone takes that lock too late, as Django's are checked when the transaction ends.)
    """
    for param, given in sets.items():
        locked = f"SELECT id, texts_delete_requested_at FROM {given._meta.db_table} WHERE id = %s FOR KEY SHARE"
        for uploaded in type(given).objects.raw(locked, [given.pk]):
            if (since := uploaded.texts_delete_requested_at) is not None:
                raise AssayError(
                    "texts_deleted",
                    f"The texts of the {given._meta.verbose_name} '{given.name}' were deleted on {since:%Y-%m-%d}: its "
                    "scores and rankings stay, but nothing of it can be scored again. Upload the file once more.",
                    status=422,
                    param=param,
                )


def retention_apply(*, limit: int = 20_000) -> int:
    """Delete texts older than TEXT_KEEP_DAYS and those whose deletion was ordered, and the chunks' scores of jobs that
    ended KEEP_CHUNK_SCORES_DAYS ago. Returns how many rows that were.

    At most ``limit`` rows, so that a reconciler's round stays short; the next call goes on where this one ended.
    """
    before = timezone.now() - timedelta(days=settings.TEXT_KEEP_DAYS) if settings.TEXT_KEEP_DAYS else None
    emptied = 0
    for table in (DocumentSet, QuerySet):
        if before is not None:
            for uploaded in table.objects.filter(created_at__lt=before, texts_delete_requested_at=None):
                _request(uploaded, None)
        for uploaded in table.objects.filter(texts_delete_requested_at__isnull=False, texts_deleted_at=None):
            emptied += _set_empty(uploaded, limit - emptied)
    if before is not None:
        emptied += _requests_empty(before, limit - emptied)
    return emptied + _scores_drop(limit - emptied)


def _request(uploaded: TextSet, principal: Principal | None) -> bool:
    """False while a job needs the texts. The row's lock makes a job that is being submitted wait, or us for it."""
    with transaction.atomic():
        locked = type(uploaded).objects.select_for_update().filter(pk=uploaded.pk).first()
        if locked is None or locked.texts_delete_requested_at is not None:
            return True
        if _open_jobs(locked):
            return False
        type(locked).objects.filter(pk=locked.pk).update(texts_delete_requested_at=Now())
        exports_forget(locked)
        verb = f"{str(locked._meta.verbose_name).replace(' ', '_')}.texts_deleted"
        detail = {"why": "on demand" if principal else f"older than {settings.TEXT_KEEP_DAYS} days"}
        audit_record(verb=verb, principal=principal, team=locked.team, target=locked, detail=detail)
    return True


def _open_jobs(uploaded: TextSet) -> int:
    return set_jobs(uploaded).filter(finished_at=None).count()


def _set_empty(uploaded: TextSet, limit: int) -> int:
    """Empty rows of the set; when none is left to empty, say so on the set."""
    empty: dict[str, Any] = {"text": "", "metadata": {}} | ({"title": ""} if isinstance(uploaded, DocumentSet) else {})
    emptied = _update(set_rows(uploaded).exclude(**empty), limit, **empty)
    if emptied < limit:
        type(uploaded).objects.filter(pk=uploaded.pk).update(texts_deleted_at=Now())
    return emptied


def _requests_empty(before: datetime, limit: int) -> int:
    """Texts of synchronous requests; their results stay."""
    old = ScoreRequest.objects.filter(created_at__lt=before, queries__isnull=False)
    emptied = _update(old, limit, queries=None, documents=None)
    if emptied:
        audit_record(verb="score_requests.texts_deleted", detail={"requests": emptied})
    return emptied


def _scores_drop(limit: int) -> int:
    if settings.KEEP_CHUNK_SCORES_DAYS:
        old = timezone.now() - timedelta(days=settings.KEEP_CHUNK_SCORES_DAYS)
        # A retry clears ``finished_at``: of the two, one UPDATE finds the row as it expects it.
        Job.objects.filter(finished_at__lt=old, scores_drop_begun_at=None).update(scores_drop_begun_at=Now())
    dropped = 0
    for job in Job.objects.filter(scores_drop_begun_at__isnull=False, scores_dropped_at=None):
        stored = Chunk.objects.filter(job=job, state=ChunkState.DONE).exclude(statuses=b"")
        dropped += _update(stored, limit - dropped, **dict.fromkeys(BLOBS, b""))
        if dropped < limit:
            Job.objects.filter(pk=job.pk).update(scores_dropped_at=Now())
    return dropped


def _update(rows: models.QuerySet[Any], limit: int, **values: Any) -> int:
    """Set ``values`` in up to ``limit`` of ``rows``, which they then no longer are; each batch is a transaction."""
    updated = 0
    while part := list(rows.values_list("pk", flat=True)[: min(BATCH, limit - updated)]):
        updated += rows.model._default_manager.filter(pk__in=part).update(**values)
    return updated
