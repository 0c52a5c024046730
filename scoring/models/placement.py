from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from scoring.models.base import choice_constraint
from scoring.models.scoring_model import ScoringModel
from scoring.models.worker import Worker
from scoring.states import CLAIMING, SERVING, MemorySource, PlacementDemand, PlacementState


class Placement(models.Model):
    """One replica of a model. A wanted one that no worker has claimed yet has no ``worker``.

    The desired side is written by people, demand and the reconciler, the observed side only by the worker that claimed
    the row. Load on demand, pins, toggles, reloads and eviction are all this one row: the worker compares what is
    wanted with what it has in force, and moves.
    """

    model = models.ForeignKey(ScoringModel, on_delete=models.CASCADE, related_name="placements")
    worker = models.ForeignKey(Worker, on_delete=models.CASCADE, null=True, blank=True, related_name="placements")
    # desired
    present = models.BooleanField(default=True)
    demand = models.CharField(max_length=16, choices=PlacementDemand, default=PlacementDemand.INTERACTIVE)
    wanted_at = models.DateTimeField(db_default=Now(), help_text="since when this replica is wanted")
    reload_requested = models.PositiveIntegerField(default=0, help_text="grows with every request to reload")
    # observed
    state = models.CharField(max_length=16, choices=PlacementState, default=PlacementState.WANTED)
    generation = models.PositiveIntegerField(default=0, help_text="the model's generation in force here")
    reloaded = models.PositiveIntegerField(default=0, help_text="the last reload request that was carried out")
    maxsim_backend = models.CharField(max_length=16, blank=True, help_text="what MaxSim runs on here")
    cause = models.TextField(blank=True, help_text="why it failed, or runs otherwise than wanted")
    failure_code = models.CharField(max_length=64, blank=True)
    attempt = models.PositiveSmallIntegerField(default=0, help_text="loads that failed in a row")
    next_try_at = models.DateTimeField(null=True, blank=True, help_text="after a failed load")
    refusals = models.JSONField(default=dict, help_text="by worker: why it cannot claim this replica")
    facts = models.JSONField(default=dict)
    # memory, in bytes of the worker's device
    claimed_bytes = models.PositiveBigIntegerField(default=0, help_text="reserved before loading")
    claim_source = models.CharField(max_length=16, choices=MemorySource, blank=True)
    estimated_bytes = models.PositiveBigIntegerField(null=True, blank=True, help_text="from the checkpoint alone")
    measured_bytes = models.PositiveBigIntegerField(null=True, blank=True, help_text="at the last warm-up here")
    # use
    loaded_at = models.DateTimeField(null=True)
    used_at = models.DateTimeField(null=True)
    interactive_at = models.DateTimeField(null=True, help_text="last used by a synchronous request")
    in_flight = models.PositiveIntegerField(default=0, help_text="requests and chunks at the worker's last report")
    evicted_at = models.DateTimeField(null=True, help_text="unloaded to make room for another model")
    canary_at = models.DateTimeField(null=True, help_text="the self-test's pairs were last scored again")
    drifts = models.PositiveSmallIntegerField(default=0, help_text="canaries in a row whose scores were not the golden")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("pk",)
        constraints = (
            choice_constraint("state", PlacementState, "placement_state"),
            choice_constraint("demand", PlacementDemand, "placement_demand"),
            models.UniqueConstraint(fields=("model", "worker"), name="placement_once"),
            models.CheckConstraint(
                condition=Q(worker__isnull=False) | Q(state__in=(PlacementState.WANTED, PlacementState.UNLOADED)),
                name="placement_of_nobody_is_wanted",
            ),
            models.CheckConstraint(
                condition=Q(state__in=CLAIMING) | Q(claimed_bytes=0), name="placement_claims_memory_while_it_holds_any"
            ),
        )
        indexes = (models.Index(fields=("wanted_at",), condition=Q(worker__isnull=True), name="placement_unclaimed"),)

    def __str__(self) -> str:
        return f"{self.model} on {self.worker or 'no worker yet'}"

    @property
    def documents_kept(self) -> dict[str, Any] | None:
        """Bytes of encodings at the worker's last report, and the budget in force; None where it keeps none of them."""
        if self.worker is None or self.state not in SERVING:
            return None
        kept: dict[str, Any] | None = self.worker.statistics.get("documents_kept", {}).get(self.model.name)
        return kept
