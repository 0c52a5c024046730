from __future__ import annotations

from django.db import models

from scoring.models.base import UploadedSet, choice_constraint
from scoring.states import SetState


class RunSet(UploadedSet):
    """A run: which documents were found for which query. It names both by the ids of the uploaded files."""

    class Meta(UploadedSet.Meta):
        ordering = ("-created_at",)
        constraints = (choice_constraint("state", SetState, "run_set_state"),)
        indexes = (models.Index(fields=("team", "checksum"), name="run_set_checksum"),)


class RunEntry(models.Model):
    """One document of one query's list. A file gives ranks, scores or both; what it does not give is null.

    ``position`` counts from 0 in file order without gaps. ``scoring.selectors.runs`` has the order within a query.
    """

    run_set = models.ForeignKey(RunSet, on_delete=models.CASCADE, related_name="entries", db_index=False)
    position = models.PositiveIntegerField()
    query_id = models.CharField(max_length=200)
    document_id = models.CharField(max_length=200)
    rank = models.PositiveIntegerField(null=True)
    score = models.FloatField(null=True)

    class Meta:
        ordering = ("run_set", "position")
        verbose_name_plural = "run entries"
        constraints = (
            models.UniqueConstraint(fields=("run_set", "position"), name="run_entry_position"),
            # Its first two columns are also the index by which a query's documents are found.
            models.UniqueConstraint(fields=("run_set", "query_id", "document_id"), name="run_entry_once"),
        )

    def __str__(self) -> str:
        return f"{self.query_id} {self.document_id}"
