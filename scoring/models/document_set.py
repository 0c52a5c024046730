from __future__ import annotations

from typing import Final

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVector
from django.db import models
from django.db.models.functions import Left

from scoring.models.base import TextSet, choice_constraint
from scoring.states import SetState

# Of longer texts the rest is not searched: PostgreSQL refuses to index more than a megabyte of words of one row.
SEARCHED_CHARACTERS: Final = 100_000


def document_words() -> SearchVector:
    """What the full-text search of documents looks into; the index has the same expression."""
    return SearchVector("title", Left("text", SEARCHED_CHARACTERS), config="simple")


class DocumentSet(TextSet):
    class Meta(TextSet.Meta):
        ordering = ("-created_at",)
        constraints = (choice_constraint("state", SetState, "document_set_state"),)
        indexes = (models.Index(fields=("team", "checksum"), name="document_set_checksum"),)


class Document(models.Model):
    """One text to be ranked. ``position`` counts from 0 in file order without gaps: chunks are ranges of positions."""

    document_set = models.ForeignKey(DocumentSet, on_delete=models.CASCADE, related_name="documents", db_index=False)
    position = models.PositiveIntegerField()
    external_id = models.CharField(max_length=200)
    title = models.TextField(blank=True)
    text = models.TextField(blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    is_empty = models.BooleanField(default=False, help_text="no text: kept, never scored, ranked last")

    class Meta:
        ordering = ("document_set", "position")
        indexes = (GinIndex(document_words(), name="document_words"),)
        constraints = (
            models.UniqueConstraint(fields=("document_set", "position"), name="document_position"),
            models.UniqueConstraint(fields=("document_set", "external_id"), name="document_external_id"),
        )

    def __str__(self) -> str:
        return self.external_id
