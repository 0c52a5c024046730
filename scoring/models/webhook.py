from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.functions import Now

from scoring.ids import new_id
from scoring.models.base import OwnedModel, choice_constraint
from scoring.states import DeliveryState, JobState


class WebhookEvent(models.TextChoices):
    """The ends of a job."""

    JOB_COMPLETED = f"job.{JobState.COMPLETED}"
    JOB_COMPLETED_WITH_ERRORS = f"job.{JobState.COMPLETED_WITH_ERRORS}"
    JOB_FAILED = f"job.{JobState.FAILED}"
    JOB_CANCELLED = f"job.{JobState.CANCELLED}"
    JOB_EXPIRED = f"job.{JobState.EXPIRED}"


def all_events() -> list[str]:
    return list(WebhookEvent.values)


class Webhook(OwnedModel):
    """An address of a team that is told when its jobs end. What it signs with is derived from the id, never stored."""

    url = models.CharField(max_length=2000)
    events = models.JSONField(default=all_events)
    description = models.CharField(max_length=200, blank=True)
    enabled = models.BooleanField(default=True)
    disabled_reason = models.TextField(blank=True, help_text="why the platform disabled it, if it did")
    pepper_id = models.PositiveIntegerField(help_text="which key its secret is derived with")
    secret_generation = models.PositiveIntegerField(default=1, help_text="grows when the secret is changed")
    succeeded_at = models.DateTimeField(null=True, help_text="the last time that a delivery arrived")

    class Meta(OwnedModel.Meta):
        ordering = ("created_at",)
        indexes = (models.Index(fields=("team", "created_at"), name="webhook_of_team"),)

    def __str__(self) -> str:
        return self.description or str(self.pk)


class WebhookDelivery(models.Model):
    """One message to one webhook, from the moment that its event happened. The id stays the same at every attempt."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=64)
    payload: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField()
    state = models.CharField(max_length=16, choices=DeliveryState, default=DeliveryState.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_try_at = models.DateTimeField(db_default=Now())
    claimed_until = models.DateTimeField(null=True, help_text="somebody is sending it")
    status_code = models.PositiveSmallIntegerField(null=True, help_text="of the last answer, if there was one")
    error = models.TextField(blank=True, help_text="why the last attempt failed")
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-created_at",)
        constraints = (choice_constraint("state", DeliveryState, "webhook_delivery_state"),)
        indexes = (
            models.Index(
                fields=("webhook", "next_try_at"),
                condition=models.Q(state=DeliveryState.PENDING),
                name="webhook_delivery_pending",
            ),
            models.Index(fields=("webhook", "-created_at"), name="webhook_delivery_recent"),
            models.Index(fields=("created_at",), name="webhook_delivery_age"),
        )

    def __str__(self) -> str:
        return f"{self.event} {self.pk}"
