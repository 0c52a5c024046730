"""Uploaded files while a request lasts: on the disk as they arrive, nameless, so that none outlives its process."""

from __future__ import annotations

import tempfile
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler


class UnnamedUploadedFile(UploadedFile):
    """In FILE_UPLOAD_TEMP_DIR, but in none of its listings: the system frees it with the last process that holds it."""

    def __init__(
        self,
        name: str | None,
        content_type: str | None,
        charset: str | None = None,
        content_type_extra: dict[str, Any] | None = None,
    ) -> None:
        file = tempfile.TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR)  # noqa: SIM115 - the request closes it
        super().__init__(file, name, content_type, 0, charset, content_type_extra)

    def complete(self, size: int) -> None:
        self.size = size
        self.seek(0)


class UnnamedFileUploadHandler(FileUploadHandler):
    """Django's TemporaryFileUploadHandler gives files names, which stay behind when the process is killed."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        self.file = UnnamedUploadedFile(self.file_name, self.content_type, self.charset, self.content_type_extra)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self.file.write(raw_data)

    def file_complete(self, file_size: int) -> UnnamedUploadedFile:
        self.file.complete(file_size)
        return self.file

    def upload_interrupted(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
