"""Files that wait between upload and import, while a person looks at their columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import BinaryIO, Final, cast

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.utils import timezone

from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.models import Upload
from scoring.models.base import UploadedSet
from scoring.services.imports import file_checksum, import_kind, set_of_file

KEPT_FOR: Final = timedelta(days=1)


def upload_stage(*, principal: Principal, kind_name: str, file: UploadedFile) -> Upload:
    """Keep ``file`` until it is imported or discarded, a day at most. Raises AssayError 413 above UPLOAD_MAX_BYTES."""
    size = file.size or 0
    if size > settings.UPLOAD_MAX_BYTES:
        raise AssayError(
            "file_too_large",
            f"{file.name} has {size:,} bytes; the limit is {settings.UPLOAD_MAX_BYTES:,}. Split it into several files.",
            status=413,
            param="file",
        )
    _discard_old(principal)
    return Upload.objects.create(
        team=principal.team,
        created_by=principal.user,
        kind=import_kind(kind_name).name,
        file=file,
        file_name=(file.name or "upload")[:255],
        size=size,
    )


def upload_known(*, principal: Principal, kind_name: str, file: BinaryIO) -> UploadedSet | None:
    """The team's set that was made from the same bytes, if there is one."""
    return set_of_file(principal=principal, kind=import_kind(kind_name), checksum=file_checksum(file))


@contextmanager
def upload_open(upload: Upload) -> Iterator[BinaryIO]:
    """The file's bytes, to be read and sought in."""
    with upload.file.open("rb") as file:
        yield cast(BinaryIO, file)


def upload_discard(*, upload: Upload) -> None:
    """Remove the row, and the file once that is certain."""
    storage, name = upload.file.storage, str(upload.file.name)
    with transaction.atomic():
        upload.delete()
        transaction.on_commit(lambda: storage.delete(name))


def _discard_old(principal: Principal) -> None:
    for upload in Upload.objects.for_team(principal.team).filter(created_at__lt=timezone.now() - KEPT_FOR):
        upload_discard(upload=upload)
