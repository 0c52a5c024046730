"""Files that wait between upload and import, while a person looks at their columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, BinaryIO, Final, cast

from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import Storage
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.utils import timezone

from assay.api.principal import Principal
from assay.errors import AssayError
from assay.token_form import tokens_hidden
from assay.uploads import room_for_uploads
from scoring.models import BatchFile, Export, Upload
from scoring.models.base import UploadedSet
from scoring.models.batch_file import BATCH_FOLDER
from scoring.models.export import EXPORT_FOLDER
from scoring.models.upload import UPLOAD_FOLDER
from scoring.services.imports import file_checksum, import_kind, set_of_file

FOLDERS: Final[tuple[tuple[type[Upload | BatchFile | Export], str], ...]] = (
    (Upload, UPLOAD_FOLDER),
    (BatchFile, BATCH_FOLDER),
    (Export, EXPORT_FOLDER),
)


def upload_stage(*, principal: Principal, kind_name: str, file: UploadedFile) -> Upload:
    """Keep ``file`` until it is imported, discarded or swept.

    Raises AssayError 413 above UPLOAD_MAX_BYTES, 507 when there is no room for it.
    """
    upload = Upload(
        team=principal.team,
        created_by=principal.user,
        kind=import_kind(kind_name).name,
        size=file_size_checked(file),
    )
    file_keep(upload, file, name=file.name or "upload")
    return upload


def file_size_checked(file: File[Any]) -> int:
    """Bytes. Raises AssayError 413 above UPLOAD_MAX_BYTES."""
    size = file.size or 0
    if size > settings.UPLOAD_MAX_BYTES:
        raise AssayError(
            "file_too_large",
            f"{file.name} has {size:,} bytes; the limit is {settings.UPLOAD_MAX_BYTES:,}. Split it into several files.",
            status=413,
            param="file",
        )
    return size


def file_keep(row: Upload | BatchFile, file: File[Any], *, name: str) -> None:
    """Store ``file`` and save its row, which calls it ``name``. Raises AssayError 507 when there is no room for it."""
    row.file_name = tokens_hidden(name)[:255]
    storage, place = row.file.storage, row.file.field.generate_filename(row, row.file_name)
    try:
        with room_for_uploads():
            row.file = storage.save(place, file)
    except AssayError:
        storage.delete(place)  # the part that there was room for
        raise
    row.save(force_insert=True)


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


def uploads_sweep() -> int:
    """Remove what nobody imported within UPLOAD_KEEP_HOURS. Returns how many files that were.

    A process killed between file and row, in either order, leaves one without the other: both go the same way.
    """
    before = timezone.now() - timedelta(hours=settings.UPLOAD_KEEP_HOURS)
    forgotten = list(Upload.objects.filter(created_at__lt=before))
    for upload in forgotten:
        upload_discard(upload=upload)
    return len(forgotten) + sum(_sweep_orphans(table, folder, before) for table, folder in FOLDERS)


def _sweep_orphans(table: type[Upload | BatchFile | Export], folder: str, before: datetime) -> int:
    """Delete stored files without a row, older than ``before``: younger ones may be about to get theirs."""
    storage: Storage = table._meta.get_field("file").storage
    try:
        stored = {f"{folder}/{name}" for name in storage.listdir(folder)[1]}
    except FileNotFoundError:
        return 0  # nothing was ever stored
    deleted = 0
    for name in stored.difference(table._default_manager.values_list("file", flat=True)):
        with suppress(FileNotFoundError):  # removed since the folder was read
            if storage.get_modified_time(name) < before:
                storage.delete(name)
                deleted += 1
    return deleted
