"""The audit log. The database itself refuses to change or delete a row (see the first migration)."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils import timezone


class AuditEvent(models.Model):
    """One deed. Labels are copied, so that the sentence stays readable whatever becomes of the rows it names."""

    at = models.DateTimeField(default=timezone.now, db_index=True)
    verb = models.CharField(max_length=60)
    actor_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="audit_events"
    )
    actor_token = models.ForeignKey(
        "accounts.ApiToken", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    actor_label = models.CharField(max_length=150)
    team = models.ForeignKey("accounts.Team", on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    target_type = models.CharField(max_length=60, blank=True)
    target_id = models.CharField(max_length=64, blank=True)
    target_label = models.CharField(max_length=200, blank=True)
    detail = models.JSONField(default=dict, blank=True)
    request_id = models.CharField(max_length=128, blank=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["target_type", "target_id"], name="audit_event_target")]

    def __str__(self) -> str:
        return f"{self.actor_label} {self.sentence}"

    @property
    def sentence(self) -> str:
        from audit.services import sentence_of

        return sentence_of(self)
