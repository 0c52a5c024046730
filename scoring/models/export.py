from __future__ import annotations

from typing import ClassVar, Final

from django.db import models

from scoring.ids import new_id
from scoring.models.base import OwnedModel, choice_constraint
from scoring.states import ExportState

EXPORT_FOLDER: Final = "exports"


def stored_name(export: Export, file_name: str) -> str:
    """A name of ours: what a set is called never becomes a path."""
    return f"{EXPORT_FOLDER}/{new_id()}"


class Export(OwnedModel):
    """A table as a file, made in the background; whoever asked for it alone may have it, until ``expires_at``."""

    token = models.ForeignKey("accounts.ApiToken", on_delete=models.CASCADE, null=True, related_name="+")
    table = models.CharField(max_length=32)
    parameters = models.JSONField(default=dict, help_text="filters, or ids of what the rows are of")
    file_format = models.CharField(max_length=16)
    state = models.CharField(max_length=16, choices=ExportState, default=ExportState.WAITING)
    rows_total = models.PositiveBigIntegerField(default=0, help_text="when it was asked for; may be an estimate")
    rows_done = models.PositiveBigIntegerField(default=0)
    attempts = models.PositiveSmallIntegerField(default=0)
    lease_token = models.UUIDField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    file = models.FileField(upload_to=stored_name, blank=True)
    file_name = models.CharField(max_length=255)
    size = models.PositiveBigIntegerField(default=0, help_text="bytes")
    error = models.TextField(blank=True)
    finished_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(db_index=True)

    class Meta(OwnedModel.Meta):
        ordering = ("-created_at",)
        constraints: ClassVar = [choice_constraint("state", ExportState, "export_state_known")]

    def __str__(self) -> str:
        return self.file_name
