from __future__ import annotations

from django.db import models

from scoring.models.base import OwnedModel, choice_constraint
from scoring.models.scoring_model import ScoringModel
from scoring.models.worker import Worker
from scoring.states import ErrandState


class ErrandKind(models.TextChoices):
    INSPECTION = "inspection", "look into a checkpoint"
    BENCHMARK = "benchmark", "measure a model"


class Errand(OwnedModel):
    """What a person asked of some worker, once. ``given`` is what it is about, ``found`` what came of it."""

    kind = models.CharField(max_length=16, choices=ErrandKind)
    model = models.ForeignKey(
        ScoringModel, on_delete=models.CASCADE, null=True, related_name="errands", help_text="of a benchmark"
    )
    given = models.JSONField(default=dict)
    found = models.JSONField(default=dict)
    progress = models.JSONField(default=dict, help_text="of a download: bytes done and in all")
    state = models.CharField(max_length=16, choices=ErrandState, default=ErrandState.WAITING)
    worker = models.ForeignKey(Worker, on_delete=models.SET_NULL, null=True, related_name="+")
    boot_id = models.UUIDField(null=True, help_text="of the worker's process that took it")
    error = models.TextField(blank=True)
    finished_at = models.DateTimeField(null=True)

    class Meta(OwnedModel.Meta):
        ordering = ("created_at",)
        constraints = (
            choice_constraint("kind", ErrandKind, "errand_kind"),
            choice_constraint("state", ErrandState, "errand_state"),
        )
        indexes = (
            models.Index(
                fields=("created_at",),
                condition=models.Q(state__in=(ErrandState.WAITING, ErrandState.RUNNING)),
                name="errand_open",
            ),
            models.Index(fields=("model", "created_at"), name="errand_of_model"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"
