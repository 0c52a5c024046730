from __future__ import annotations

from django.db import models

from scoring.models.base import OwnedModel, choice_constraint
from scoring.models.judgement_set import JudgementSet
from scoring.models.stage import Stage


class ComparisonTest(models.TextChoices):
    """Of the differences paired by query; the values are those of ``scoring.statistics.PairedTest``."""

    T = "t", "paired t-test"
    RANDOMISATION = "randomisation", "randomisation test"
    RANDOMISED_TUKEY = "randomised_tukey", "randomised Tukey HSD test, of three or four rankings"


class Comparison(OwnedModel):
    """Two to four stages of jobs over one query set side by side; the first is the baseline. What decides, the measure
    and the test, is chosen before the numbers are seen."""

    name = models.CharField(max_length=200)
    pinned = models.BooleanField(default=False, help_text="stands first in the list")
    notes = models.TextField(blank=True)
    judgement_set = models.ForeignKey(JudgementSet, on_delete=models.SET_NULL, null=True, related_name="+")
    primary_measure = models.CharField(max_length=100, default="nDCG@10", db_default="nDCG@10")
    test = models.CharField(
        max_length=20, choices=ComparisonTest.choices, default=ComparisonTest.T, db_default=ComparisonTest.T
    )

    class Meta(OwnedModel.Meta):
        ordering = ("-pinned", "-created_at")
        constraints = (choice_constraint("test", ComparisonTest, "comparison_test"),)
        indexes = (models.Index(fields=("team", "-created_at"), name="comparison_team_recent"),)

    def __str__(self) -> str:
        return self.name


class ComparedStage(models.Model):
    """One column of a comparison. When a job is deleted, its columns go with it."""

    comparison = models.ForeignKey(Comparison, on_delete=models.CASCADE, related_name="compared")
    stage = models.ForeignKey(Stage, on_delete=models.CASCADE, related_name="+")
    position = models.PositiveSmallIntegerField(help_text="counts from 0; 0 is the baseline")

    class Meta:
        ordering = ("comparison", "position")
        constraints = (models.UniqueConstraint(fields=("comparison", "stage"), name="compared_stage_once"),)

    def __str__(self) -> str:
        return f"{self.comparison_id} {self.position}"


class ComparisonMeasures(models.Model):
    """What was computed of a comparison, so that its pages need not: NumPy arrays (``.npz``) over the positions of
    the queries. Computed anew when ``fingerprint``, which tells what it was computed from, is another."""

    comparison = models.OneToOneField(Comparison, on_delete=models.CASCADE, related_name="measures")
    fingerprint = models.CharField(max_length=64)
    arrays = models.BinaryField()

    def __str__(self) -> str:
        return f"measures of {self.comparison_id}"
