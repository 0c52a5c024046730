from __future__ import annotations

from django.db import models

from scoring.models.base import choice_constraint
from scoring.states import WorkerHold, WorkerState


class Worker(models.Model):
    """One worker process slot. ``id`` outlives restarts, ``boot_id`` does not; the host name is only a label.

    ``hold`` is what people or the reconciler want of it, and outlives restarts too; ``state`` is what it is.
    """

    id = models.UUIDField(primary_key=True, editable=False)
    boot_id = models.UUIDField()
    name = models.CharField(max_length=100)
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    device = models.CharField(max_length=64)
    device_class = models.CharField(max_length=100, blank=True, help_text="cpu, or the name of the GPU")
    hold = models.CharField(max_length=16, choices=WorkerHold, blank=True, help_text="what keeps it from taking work")
    hold_reason = models.CharField(max_length=200, blank=True)
    hold_until = models.DateTimeField(null=True, blank=True, help_text="end of a maintenance, if it has one")
    state = models.CharField(max_length=16, choices=WorkerState, default=WorkerState.STARTING)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    progress_at = models.DateTimeField(null=True)
    progress = models.PositiveBigIntegerField(default=0, help_text="micro-batches finished since the start")
    memory_bytes = models.PositiveBigIntegerField(default=0, help_text="resident")
    memory_budget_bytes = models.PositiveBigIntegerField(default=0, help_text="what its models may claim together")
    memory_free_bytes = models.PositiveBigIntegerField(
        default=0, help_text="what the device has left at the last heartbeat, the reserve taken off"
    )
    in_hand = models.JSONField(default=list, help_text="chunks being worked on")
    statistics = models.JSONField(default=dict, help_text="the engine's counters at the last heartbeat")

    class Meta:
        ordering = ("name",)
        constraints = (
            choice_constraint("state", WorkerState, "worker_state"),
            models.CheckConstraint(condition=models.Q(hold__in=("", *WorkerHold.values)), name="worker_hold"),
        )

    def __str__(self) -> str:
        return self.name
