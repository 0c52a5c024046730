"""Uploaded files while a request lasts: on the disk as they arrive, nameless, so that none outlives its process."""

from __future__ import annotations

import errno
import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Final

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler

from assay.errors import AssayError

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def room_for_uploads() -> Iterator[None]:
    """Raises AssayError 507 ``no_room`` where the disk takes nothing more."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        message = (
            "The server's disk is full, so the file could not be received; nothing of it was kept. Send it again "
            "when its operator has made room."
        )
        raise AssayError("no_room", message, status=507, param="file") from error


class UnnamedUploadedFile(UploadedFile):
    """In FILE_UPLOAD_TEMP_DIR, but in none of its listings: the system frees it with the last process that holds it.

    A full disk is kept in mind until somebody asks by ``check``: Django's parsers know no way to refuse a file.
    """

    def __init__(
        self,
        name: str | None,
        content_type: str | None,
        charset: str | None = None,
        content_type_extra: dict[str, Any] | None = None,
    ) -> None:
        self.file: IO[bytes] = io.BytesIO()
        super().__init__(self.file, name, content_type, 0, charset, content_type_extra)
        self._refusal: AssayError | None = None
        with self._or_refused():
            self.file = tempfile.TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR)  # noqa: SIM115 - the request closes it

    def receive(self, block: bytes) -> None:
        if self._refusal is None:
            with self._or_refused():
                self.file.write(block)

    def complete(self, size: int) -> None:
        with self._or_refused():
            self.file.flush()
        self.size = size
        self.seek(0)

    def check(self) -> None:
        """Raises AssayError 507 if there was no room for all of it."""
        if self._refusal is not None:
            raise self._refusal

    @contextmanager
    def _or_refused(self) -> Iterator[None]:
        try:
            with room_for_uploads():
                yield
        except AssayError as refusal:
            self._refusal = refusal
            full, self.file = self.file, io.BytesIO()
            with suppress(OSError):  # it tries once more to write what it still holds
                full.close()


class UnnamedFileUploadHandler(FileUploadHandler):
    """Django's TemporaryFileUploadHandler gives files names, which stay behind when the process is killed."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        self.file = UnnamedUploadedFile(self.file_name, self.content_type, self.charset, self.content_type_extra)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self.file.receive(raw_data)

    def file_complete(self, file_size: int) -> UnnamedUploadedFile:
        self.file.complete(file_size)
        return self.file

    def upload_interrupted(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
