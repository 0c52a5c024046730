"""``/api/v1/audit-events``: who did what in the team, to be read only."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from audit.models import AuditEvent
from scoring.api.openapi import LISTED, operation
from scoring.api.resources import ResourceViewSet
from scoring.filters import AuditEventFilter


class AuditEventSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField(source="actor_label", help_text="A user's name, 'token <name>', or 'system'")
    token = serializers.CharField(
        source="actor_token.public_id", default=None, allow_null=True, help_text="Id of the token that was used, if any"
    )
    verb = serializers.CharField()
    sentence = serializers.CharField(help_text="What was done, in words")
    target_type = serializers.CharField()
    target_id = serializers.CharField()
    target_label = serializers.CharField(help_text="What the target was called then")
    detail = serializers.DictField()
    request_id = serializers.CharField()


EVENT: Final[dict[str, Any]] = {
    "id": 4711,
    "at": "2026-11-29T20:00:00Z",
    "actor": "token search service",
    "token": "q7Hc0ZsVb31K",
    "verb": "job.cancelled",
    "sentence": "cancelled job FAQ by minilm",
    "target_type": "scoring.job",
    "target_id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a11",
    "target_label": "FAQ by minilm",
    "detail": {},
    "request_id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a19",
}


@extend_schema(tags=["audit events"])
class AuditEventViewSet(ResourceViewSet):
    required_scope = "admin"
    model = AuditEvent
    filterset_class = AuditEventFilter
    serializer_class = AuditEventSerializer

    def rows(self) -> QuerySet[AuditEvent]:
        return AuditEvent.objects.filter(team=self.principal.team).select_related("actor_token")

    @operation(
        "List what was done in the team, newest first",
        answer=AuditEventSerializer(many=True), example=EVENT, errors=LISTED,
    )  # fmt: skip
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), AuditEventSerializer)
