from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from scoring.models.base import choice_constraint


class UsageSource(models.TextChoices):
    REQUESTS = "requests", "synchronous requests"
    JOBS = "jobs", "jobs"


class Usage(models.Model):
    """What one token (none: people in the browser) of a team had scored by one model on one day of UTC.

    It outlives the requests and jobs that it was counted from. ``carried`` rows hold what was deleted while its day was
    still open; the others are counted anew until the day is closed.
    """

    day = models.DateField()
    team = models.ForeignKey("accounts.Team", on_delete=models.PROTECT, related_name="+")
    token = models.ForeignKey("accounts.ApiToken", on_delete=models.PROTECT, null=True, related_name="+")
    model_name = models.CharField(max_length=64)
    source = models.CharField(max_length=16, choices=UsageSource)
    carried = models.BooleanField(default=False)
    requests = models.PositiveBigIntegerField(default=0, help_text="of jobs: stages that ended")
    errors = models.PositiveBigIntegerField(default=0, help_text="refused requests; stages with pairs that failed")
    documents = models.PositiveBigIntegerField(default=0, help_text="that got a score, once for each query")
    tokens = models.PositiveBigIntegerField(default=0)
    compute_seconds = models.FloatField(default=0.0, help_text="of the engine's forward passes and MaxSim")

    class Meta:
        ordering = ("day", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("team", "day", "token", "model_name", "source", "carried"),
                nulls_distinct=False,
                name="usage_once_per_day",
            ),
            choice_constraint("source", UsageSource, "usage_source"),
        )

    def __str__(self) -> str:
        return f"{self.day} {self.model_name}"


class UsageClosing(models.Model):
    """A day whose usage is final."""

    day = models.DateField(primary_key=True)
    closed_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return str(self.day)
