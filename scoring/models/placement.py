from __future__ import annotations

from django.db import models

from scoring.models.base import choice_constraint
from scoring.models.scoring_model import ScoringModel
from scoring.models.worker import Worker
from scoring.states import PlacementState


class Placement(models.Model):
    """One model on one worker. The desired side is written by people and demand, the observed side only by the worker.

    Load, unload, reload and the toggles are all this one row: the worker compares ``desired_generation`` (the model's
    generation wanted there) with ``generation`` (what it has in force) and moves.
    """

    model = models.ForeignKey(ScoringModel, on_delete=models.CASCADE, related_name="placements")
    worker = models.ForeignKey(Worker, on_delete=models.CASCADE, related_name="placements")
    # desired
    present = models.BooleanField(default=True)
    reload_requested = models.PositiveIntegerField(default=0, help_text="grows with every request to reload")
    # observed
    state = models.CharField(max_length=16, choices=PlacementState, default=PlacementState.WANTED)
    generation = models.PositiveIntegerField(default=0, help_text="the model's generation in force here")
    reloaded = models.PositiveIntegerField(default=0, help_text="the last reload request that was carried out")
    maxsim_backend = models.CharField(max_length=16, blank=True, help_text="what MaxSim runs on here")
    cause = models.TextField(blank=True, help_text="why it failed, or runs otherwise than wanted")
    facts = models.JSONField(default=dict)
    loaded_at = models.DateTimeField(null=True)
    used_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("model", "worker")
        constraints = (
            choice_constraint("state", PlacementState, "placement_state"),
            models.UniqueConstraint(fields=("model", "worker"), name="placement_once"),
        )

    def __str__(self) -> str:
        return f"{self.model} on {self.worker}"
