from __future__ import annotations

from django.db import models
from django.db.models import Q

from scoring.models.base import OwnedModel
from scoring.models.judgement_set import JudgementSet
from scoring.models.scoring_model import ScoringModel
from scoring.models.stage import Stage


class ThresholdAdvice(OwnedModel):
    """From which score on a team calls a document relevant with a model, and why. Nothing applies it.

    ``evidence`` is what was known when it was given and stays as it was: what was measured, on how many pairs, with
    which intervals and reservations. The newest advice of a team on a model is in force.
    """

    model = models.ForeignKey(ScoringModel, on_delete=models.CASCADE, related_name="threshold_advice")
    score = models.FloatField(help_text="a document with this score or a higher one is taken for relevant")
    per_query_token = models.BooleanField(default=False, help_text="the score divided by the query's tokens")
    note = models.TextField(blank=True)
    stage = models.ForeignKey(Stage, on_delete=models.SET_NULL, null=True, related_name="+")
    judgement_set = models.ForeignKey(JudgementSet, on_delete=models.SET_NULL, null=True, related_name="+")
    settings = models.JSONField(help_text="the model's, that decide a score, as they were")
    evidence = models.JSONField()

    class Meta(OwnedModel.Meta):
        ordering = ("-created_at", "-pk")
        verbose_name_plural = "threshold advice"
        indexes = (models.Index(fields=("team", "model", "-created_at"), name="threshold_advice_newest"),)
        constraints = (
            models.CheckConstraint(
                condition=Q(score__gte=-1e300) & Q(score__lte=1e300), name="threshold_advice_score_finite"
            ),
        )

    def __str__(self) -> str:
        return f"{self.score:g}"
