from __future__ import annotations

from django.db import models

from scoring.models.base import choice_constraint
from scoring.states import WorkerState


class Worker(models.Model):
    """One worker process slot. ``id`` outlives restarts, ``boot_id`` does not; the host name is only a label."""

    id = models.UUIDField(primary_key=True, editable=False)
    boot_id = models.UUIDField()
    name = models.CharField(max_length=100)
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    device = models.CharField(max_length=64)
    state = models.CharField(max_length=16, choices=WorkerState, default=WorkerState.STARTING)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    progress_at = models.DateTimeField(null=True)
    progress = models.PositiveBigIntegerField(default=0, help_text="micro-batches finished since the start")
    memory_bytes = models.PositiveBigIntegerField(default=0)
    in_hand = models.JSONField(default=list, help_text="chunks being worked on")
    statistics = models.JSONField(default=dict, help_text="the engine's counters at the last heartbeat")

    class Meta:
        ordering = ("name",)
        constraints = (choice_constraint("state", WorkerState, "worker_state"),)

    def __str__(self) -> str:
        return self.name
