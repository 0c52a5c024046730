from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from scoring.states import COUNTED_CAUSES, ChunkCause, ChunkState

# All but the ordinary way of a chunk: what people read first. Few rows, so a small index.
NOTEWORTHY = ~models.Q(entity="chunk") | models.Q(reason__in=ChunkCause.values) | models.Q(to_state=ChunkState.FAILED)


class Transition(models.Model):
    """One move of one row from a state to another: who, why, when."""

    entity = models.CharField(max_length=32, help_text="the table, such as job or chunk")
    entity_id = models.CharField(max_length=64)
    job = models.ForeignKey(
        "scoring.Job", on_delete=models.CASCADE, null=True, db_index=False, db_constraint=False, related_name="events",
        help_text="whose log this belongs to: the job's own moves, and those of its stages and chunks",
    )  # fmt: skip
    from_state = models.CharField(max_length=24)
    to_state = models.CharField(max_length=24)
    actor = models.CharField(max_length=200, help_text="user:…, token:…, worker:… or reconciler")
    reason = models.CharField(max_length=64, blank=True)
    detail = models.JSONField(default=dict)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("id",)
        indexes = (
            models.Index(fields=("entity", "entity_id", "id"), name="transition_of_entity"),
            models.Index(fields=("job", "id"), condition=models.Q(job__isnull=False), name="transition_of_job"),
            models.Index(fields=("job", "id"), condition=NOTEWORTHY, name="transition_noteworthy"),
            models.Index(
                fields=("at",),
                condition=models.Q(entity="chunk", reason__in=sorted(COUNTED_CAUSES)),
                name="transition_fault",
            ),
        )

    def __str__(self) -> str:
        return f"{self.entity} {self.entity_id}: {self.from_state} → {self.to_state}"
