from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from scoring.models.base import choice_constraint
from scoring.models.pool import Pool, PoolPair
from scoring.models.scoring_model import ScoringModel


class VerdictSource(models.TextChoices):
    BLIND = "blind", "judged blind"
    SEEN = "seen", "seen ranked"
    IMPORTED = "imported"
    MODEL = "model", "by a model"
    ADJUDICATED = "adjudicated"


class Judge(models.Model):
    """Who gives verdicts in a pool: a person, somebody whom a file names, or a model of one revision and prompt."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="judges", db_index=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    name = models.CharField(max_length=200, help_text="what pages call the judge; stays when the user is deleted")
    model = models.ForeignKey(ScoringModel, on_delete=models.PROTECT, null=True, related_name="+")
    model_revision = models.CharField(max_length=64, blank=True)
    prompt = models.TextField(blank=True)

    class Meta:
        ordering = ("pool", "pk")
        constraints = (
            models.UniqueConstraint(fields=("pool", "user"), name="judge_user_once"),
            models.CheckConstraint(condition=Q(user=None) | Q(model=None), name="judge_user_or_model"),
        )

    def __str__(self) -> str:
        return self.name


class Verdict(models.Model):
    """What one judge says of one pair. An adjudication stands beside the adjudicator's own verdict, and above all."""

    pair = models.ForeignKey(PoolPair, on_delete=models.CASCADE, related_name="verdicts", db_index=False)
    judge = models.ForeignKey(Judge, on_delete=models.CASCADE, related_name="verdicts")
    grade = models.SmallIntegerField(null=True, help_text="an index into the pool's scale; empty: cannot judge")
    source = models.CharField(max_length=16, choices=VerdictSource)
    decided_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("pair", "pk")
        constraints = (
            choice_constraint("source", VerdictSource, "verdict_source"),
            models.UniqueConstraint(fields=("pair", "judge"), condition=~Q(source="adjudicated"), name="verdict_once"),
            models.UniqueConstraint(fields=("pair",), condition=Q(source="adjudicated"), name="adjudication_once"),
            models.CheckConstraint(condition=Q(grade=None) | Q(grade__range=(0, 5)), name="verdict_grade"),
        )

    def __str__(self) -> str:
        return f"pair {self.pair_id} judge {self.judge_id}: {self.grade}"
