from __future__ import annotations

from django.conf import settings
from django.db import models

from scoring.models.job import Job
from scoring.models.pool import Pool
from scoring.models.verdict import Judge


class ModelJudging(models.Model):
    """A model was asked to judge a pool: the job that scores its pairs, and which scores give which grade."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="model_judgings")
    judge = models.ForeignKey(Judge, on_delete=models.CASCADE, related_name="judgings")
    job = models.ForeignKey(Job, on_delete=models.SET_NULL, null=True, related_name="+")
    cut_offs = models.JSONField(help_text="ascending: the lowest scores of the grades 1, 2, …")
    verdicts = models.PositiveIntegerField(default=0, help_text="given when the job had ended")
    stored_at = models.DateTimeField(null=True, help_text="empty: its job has not ended")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("pool", "-pk")
        indexes = (models.Index(fields=("id",), condition=models.Q(stored_at=None), name="model_judging_open"),)

    def __str__(self) -> str:
        return f"{self.judge} in {self.pool_id}"
