from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from scoring.models.scoring_model import ScoringModel
from scoring.models.worker import Worker


class WorkerSample(models.Model):
    """What a worker's row said at one moment. Taken once a minute, kept for a bounded time."""

    worker = models.ForeignKey(Worker, on_delete=models.CASCADE, related_name="samples")
    at = models.DateTimeField(db_default=Now())
    memory_bytes = models.PositiveBigIntegerField(help_text="resident")
    claimed_bytes = models.PositiveBigIntegerField(help_text="by its models")
    free_bytes = models.PositiveBigIntegerField()
    in_flight = models.PositiveIntegerField()
    sequences = models.PositiveBigIntegerField(help_text="encoded since its process started")

    class Meta:
        ordering = ("at",)
        indexes = (models.Index(fields=("worker", "at"), name="worker_sample_recent"),)

    def __str__(self) -> str:
        return f"{self.worker_id} at {self.at}"


class ModelSample(models.Model):
    """What all replicas of a model together took at one moment."""

    model = models.ForeignKey(ScoringModel, on_delete=models.CASCADE, related_name="samples")
    at = models.DateTimeField(db_default=Now())
    replicas = models.PositiveSmallIntegerField()
    estimated_bytes = models.PositiveBigIntegerField()
    claimed_bytes = models.PositiveBigIntegerField()
    measured_bytes = models.PositiveBigIntegerField()
    in_flight = models.PositiveIntegerField()

    class Meta:
        ordering = ("at",)
        indexes = (models.Index(fields=("model", "at"), name="model_sample_recent"),)

    def __str__(self) -> str:
        return f"{self.model_id} at {self.at}"
