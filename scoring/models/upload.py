from __future__ import annotations

from typing import Final

from django.db import models

from scoring.ids import new_id
from scoring.models.base import OwnedModel

UPLOAD_FOLDER: Final = "uploads"


def stored_name(upload: Upload, file_name: str) -> str:
    """A name of ours: what a client calls its file never becomes a path."""
    return f"{UPLOAD_FOLDER}/{new_id()}"


class Upload(OwnedModel):
    """A file that waits between its upload and its import, while a person looks at the columns found in it."""

    kind = models.CharField(max_length=16, help_text="documents, queries, judgements or runs")
    file = models.FileField(upload_to=stored_name)
    file_name = models.CharField(max_length=255)
    size = models.PositiveBigIntegerField()

    class Meta(OwnedModel.Meta):
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return self.file_name
