from __future__ import annotations

from django.db import models

from scoring.states import COUNTED_CAUSES


class Transition(models.Model):
    """One move of one row from a state to another: who, why, when."""

    entity = models.CharField(max_length=32, help_text="the table, such as job or chunk")
    entity_id = models.CharField(max_length=64)
    from_state = models.CharField(max_length=24)
    to_state = models.CharField(max_length=24)
    actor = models.CharField(max_length=200, help_text="user:…, token:…, worker:… or reconciler")
    reason = models.CharField(max_length=64, blank=True)
    detail = models.JSONField(default=dict)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("id",)
        indexes = (
            models.Index(fields=("entity", "entity_id", "id"), name="transition_of_entity"),
            models.Index(
                fields=("at",),
                condition=models.Q(entity="chunk", reason__in=sorted(COUNTED_CAUSES)),
                name="transition_fault",
            ),
        )

    def __str__(self) -> str:
        return f"{self.entity} {self.entity_id}: {self.from_state} → {self.to_state}"
