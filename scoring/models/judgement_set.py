from __future__ import annotations

from django.db import models

from scoring.models.base import UploadedSet, choice_constraint
from scoring.states import SetState


class JudgementSet(UploadedSet):
    """Relevance judgements (qrels). They name queries and documents by the ids of the uploaded files."""

    class Meta(UploadedSet.Meta):
        ordering = ("-created_at",)
        constraints = (choice_constraint("state", SetState, "judgement_set_state"),)
        indexes = (models.Index(fields=("team", "checksum"), name="judgement_set_checksum"),)


class Judgement(models.Model):
    judgement_set = models.ForeignKey(JudgementSet, on_delete=models.CASCADE, related_name="judgements", db_index=False)
    position = models.PositiveIntegerField()
    query_id = models.CharField(max_length=200)
    document_id = models.CharField(max_length=200)
    grade = models.SmallIntegerField()

    class Meta:
        ordering = ("judgement_set", "position")
        constraints = (
            models.UniqueConstraint(fields=("judgement_set", "query_id", "document_id"), name="judgement_once"),
        )

    def __str__(self) -> str:
        return f"{self.query_id} {self.document_id} {self.grade}"
