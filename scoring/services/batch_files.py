"""Files of request batches: what comes in, and what is written when a batch ends."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import Storage
from django.db import transaction

from accounts.models import Team
from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.models import BatchFile, RequestBatch
from scoring.models.batch_file import FilePurpose
from scoring.states import BatchState

OPEN: tuple[BatchState, ...] = tuple(state for state in BatchState if not state.is_final)


def batch_file_store(*, principal: Principal, file: File[Any]) -> BatchFile:
    """Keep an uploaded file of requests. Raises AssayError 413 above UPLOAD_MAX_BYTES."""
    if (size := file.size or 0) > settings.UPLOAD_MAX_BYTES:
        raise AssayError(
            "file_too_large",
            f"{file.name} has {size:,} bytes; the limit is {settings.UPLOAD_MAX_BYTES:,}. Split it into several files.",
            status=413,
            param="file",
        )
    return BatchFile.objects.create(
        team=principal.team,
        created_by=principal.user,
        purpose=FilePurpose.BATCH,
        file=file,
        file_name=(file.name or "requests.jsonl")[:255],
        size=size,
    )


def batch_file_of(team: Team, public_id: str, *, param: str | None = None) -> BatchFile:
    """The team's file. Raises AssayError 404: another team's is not found."""
    pk = pk_of(public_id, "file-")
    found = BatchFile.objects.for_team(team).filter(pk=pk).first() if pk else None
    if found is None:
        raise AssayError("not_found", f"There is no file {public_id[:80]!r} in your team.", status=404, param=param)
    return found


def batch_file_delete(*, file: BatchFile) -> None:
    """Raises AssayError 409 ``file_in_use`` while a batch that reads it has not ended."""
    if batch := RequestBatch.objects.filter(input_id=file.pk, state__in=OPEN).first():
        message = f"{file.public_id} is read by {batch.public_id}, which has not ended. Cancel the batch, or wait."
        raise AssayError("file_in_use", message, status=409)
    storage: Storage = file.file.storage
    name = str(file.file.name)
    with transaction.atomic():
        file.delete()
        transaction.on_commit(lambda: storage.delete(name))


def pk_of(public_id: str, prefix: str) -> uuid.UUID | None:
    """None for what cannot be an id of ours."""
    try:
        return uuid.UUID(hex=public_id.removeprefix(prefix)) if public_id.startswith(prefix) else None
    except ValueError:
        return None
