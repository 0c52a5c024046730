from __future__ import annotations

from typing import ClassVar

from django.db import models

from scoring.models.base import OwnedModel, choice_constraint
from scoring.states import OPEN_LINES, BatchState, LineState


class RequestBatch(OwnedModel):
    """Requests from a file, each answered as its endpoint would answer it, within ``expires_at``."""

    token = models.ForeignKey("accounts.ApiToken", on_delete=models.SET_NULL, null=True, related_name="+")
    state = models.CharField(max_length=16, choices=BatchState, default=BatchState.VALIDATING)
    endpoint = models.CharField(max_length=64)
    # Ids of files, which may be deleted before it is.
    input_id = models.UUIDField()
    output_id = models.UUIDField(null=True)
    error_id = models.UUIDField(null=True)
    completion_window = models.CharField(max_length=8)
    metadata = models.JSONField(null=True)
    problems = models.JSONField(default=list, help_text="why it failed: code, message, param and line of each")
    counts = models.JSONField(default=dict, help_text="total, completed and failed, once it has ended")
    moments = models.JSONField(default=dict, help_text="Unix time at which it came into each state")
    expires_at = models.DateTimeField()

    class Meta(OwnedModel.Meta):
        ordering = ("-pk",)
        constraints: ClassVar = [choice_constraint("state", BatchState, "request_batch_state_known")]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return f"batch_{self.pk.hex}"


class BatchLine(models.Model):
    """One request of a batch. A leased line comes back when its lease ends without an answer."""

    batch = models.ForeignKey(RequestBatch, on_delete=models.CASCADE, related_name="lines")
    number = models.PositiveIntegerField(help_text="in the file, from 1")
    custom_id = models.CharField(max_length=512)
    body = models.JSONField()
    state = models.CharField(max_length=16, choices=LineState, default=LineState.PENDING)
    not_before = models.DateTimeField(null=True, help_text="after a refusal that passes, such as no worker")
    lease_token = models.UUIDField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    status_code = models.PositiveSmallIntegerField(null=True)
    request_id = models.CharField(max_length=128, blank=True)
    answer = models.JSONField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("batch", "custom_id"), name="batch_line_custom_id"),
            choice_constraint("state", LineState, "batch_line_state_known"),
        ]
        indexes = (
            models.Index(fields=("batch", "number"), name="batch_line_open", condition=models.Q(state__in=OPEN_LINES)),
        )

    def __str__(self) -> str:
        return f"line {self.number} of {self.batch_id}"
