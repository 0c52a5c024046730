from __future__ import annotations

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVector
from django.db import models
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Left

from scoring.models.base import TextSet, choice_constraint
from scoring.models.document_set import SEARCHED_CHARACTERS
from scoring.states import SetState


def query_words() -> SearchVector:
    """What the full-text search of queries looks into; the index has the same expression."""
    narrative = KeyTextTransform("narrative", "metadata")
    return SearchVector(Left("text", SEARCHED_CHARACTERS), Left(narrative, SEARCHED_CHARACTERS), config="simple")


class QuerySet(TextSet):
    """A set of search queries (not Django's ``models.QuerySet``)."""

    class Meta(TextSet.Meta):
        ordering = ("-created_at",)
        constraints = (choice_constraint("state", SetState, "query_set_state"),)
        indexes = (models.Index(fields=("team", "checksum"), name="query_set_checksum"),)


class Query(models.Model):
    query_set = models.ForeignKey(QuerySet, on_delete=models.CASCADE, related_name="queries", db_index=False)
    position = models.PositiveIntegerField()
    external_id = models.CharField(max_length=200)
    text = models.TextField(blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    is_empty = models.BooleanField(default=False)

    class Meta:
        ordering = ("query_set", "position")
        verbose_name_plural = "queries"
        indexes = (GinIndex(query_words(), name="query_words"),)
        constraints = (
            models.UniqueConstraint(fields=("query_set", "position"), name="query_position"),
            models.UniqueConstraint(fields=("query_set", "external_id"), name="query_external_id"),
        )

    def __str__(self) -> str:
        return self.external_id
