from __future__ import annotations

from typing import ClassVar, Final

from django.db import models

from scoring.ids import new_id
from scoring.models.base import OwnedModel, choice_constraint

BATCH_FOLDER: Final = "batch-files"


class FilePurpose(models.TextChoices):
    BATCH = "batch"
    OUTPUT = "batch_output"
    ERROR = "error_file"


def stored_name(file: BatchFile, file_name: str) -> str:
    """A name of ours: what a client calls its file never becomes a path."""
    return f"{BATCH_FOLDER}/{new_id()}"


class BatchFile(OwnedModel):
    """JSON lines of requests, or of what became of them. ``public_id`` is what OpenAI's clients see."""

    purpose = models.CharField(max_length=16, choices=FilePurpose)
    file = models.FileField(upload_to=stored_name)
    file_name = models.CharField(max_length=255)
    size = models.PositiveBigIntegerField()

    class Meta(OwnedModel.Meta):
        ordering = ("-pk",)
        constraints: ClassVar = [choice_constraint("purpose", FilePurpose, "batch_file_purpose_known")]

    def __str__(self) -> str:
        return self.file_name

    @property
    def public_id(self) -> str:
        return f"file-{self.pk.hex}"
