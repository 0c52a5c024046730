from __future__ import annotations

from django.db import models

from scoring.models.base import OwnedModel


class ImportPreset(OwnedModel):
    """How a team mapped files with these columns last: the next such file starts with the same mapping."""

    kind = models.CharField(max_length=16, help_text="documents, queries, judgements or runs")
    layout = models.CharField(max_length=64, help_text="SHA-256 of the names of the file's columns")
    mapping = models.JSONField(help_text="role to column, with null for a role that takes none")

    class Meta(OwnedModel.Meta):
        constraints = (models.UniqueConstraint(fields=("team", "kind", "layout"), name="import_preset_layout"),)

    def __str__(self) -> str:
        return f"{self.kind}: {self.mapping}"
