"""Files of request batches: what comes in, and what is written when a batch ends."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.files.base import File
from django.core.files.storage import Storage
from django.db import transaction

from accounts.models import Team
from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.models import BatchFile, RequestBatch
from scoring.models.batch_file import FilePurpose
from scoring.services.uploads import file_keep, file_size_checked
from scoring.states import BatchState

OPEN: tuple[BatchState, ...] = tuple(state for state in BatchState if not state.is_final)


def batch_file_store(*, principal: Principal, file: File[Any]) -> BatchFile:
    """Keep an uploaded file of requests. Raises AssayError 413 above UPLOAD_MAX_BYTES, 507 without room for it."""
    row = BatchFile(
        team=principal.team, created_by=principal.user, purpose=FilePurpose.BATCH, size=file_size_checked(file)
    )
    file_keep(row, file, name=file.name or "requests.jsonl")
    return row


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
