from __future__ import annotations

import uuid
from typing import Final

from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Max
from django.db.models.functions import Greatest

from scoring.ids import new_id
from scoring.models.base import UploadedSet, choice_constraint
from scoring.states import SetState

DEFAULT_SCALE: Final = ("not relevant", "marginal", "relevant", "highly relevant")
GRADES_NAMED: Final = range(2, 7)  # how many grades a scale may have


def default_scale() -> list[str]:
    return list(DEFAULT_SCALE)


class JudgementSet(UploadedSet):
    """Relevance judgements (qrels), one version of them. They name queries and documents by the ids of the uploaded
    files. A version never changes; what is judged or imported later makes the next version of the same ``root``.

    ``scale`` names the grades 0, 1, 2, … worst first; it is empty where imported grades go beyond six. A document whose
    grade is ``relevant_from`` or more is relevant: the ``rel`` of the measures.
    """

    root = models.UUIDField(default=new_id, db_default=RandomUUID(), help_text="the same for all versions of a set")
    version = models.PositiveIntegerField(default=1, db_default=1)
    highest_gone = models.PositiveIntegerField(
        default=0, db_default=0, help_text="the highest version of this root that was deleted: no number comes twice"
    )
    scale = models.JSONField(
        default=default_scale, db_default=list(DEFAULT_SCALE), help_text="names of the grades 0, 1, …, worst first"
    )
    relevant_from = models.PositiveSmallIntegerField(
        default=1, db_default=1, help_text="the lowest grade of a relevant document"
    )
    guidelines = models.TextField(blank=True, default="", db_default="", help_text="Markdown, for the judges")
    provenance = models.JSONField(default=dict, db_default={}, help_text="how this version was made, of what, by whom")

    class Meta(UploadedSet.Meta):
        ordering = ("-created_at",)
        constraints = (
            choice_constraint("state", SetState, "judgement_set_state"),
            models.UniqueConstraint(fields=("root", "version"), name="judgement_set_version"),
        )
        indexes = (models.Index(fields=("team", "checksum"), name="judgement_set_checksum"),)

    @classmethod
    def next_version(cls, root: uuid.UUID) -> int:
        """The number after all that versions of ``root`` have or had."""
        highest = cls.objects.filter(root=root).aggregate(number=Max(Greatest("version", "highest_gone")))["number"]
        return (highest or 0) + 1

    @property
    def judging_models(self) -> list[str]:
        """Names of the models whose verdicts are in this version, or in one that it was made of."""
        return sorted(self.provenance.get("models", []))

    def __str__(self) -> str:
        return f"{self.name}, version {self.version}" if self.version > 1 else self.name


class Judgement(models.Model):
    judgement_set = models.ForeignKey(JudgementSet, on_delete=models.CASCADE, related_name="judgements", db_index=False)
    position = models.PositiveIntegerField()
    query_id = models.CharField(max_length=200)
    document_id = models.CharField(max_length=200)
    grade = models.SmallIntegerField(help_text="below 0: was in the pool, and not judged")

    class Meta:
        ordering = ("judgement_set", "position")
        constraints = (
            models.UniqueConstraint(fields=("judgement_set", "query_id", "document_id"), name="judgement_once"),
        )

    def __str__(self) -> str:
        return f"{self.query_id} {self.document_id} {self.grade}"
