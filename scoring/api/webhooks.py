"""``/api/v1/webhooks`` and ``/api/v1/webhook-deliveries``: who is told when jobs end, and what became of it."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.serializers import StrictBooleanField, StrictSerializer, TextField
from scoring.api.openapi import BODY, LISTED, READ, operation, state_field
from scoring.api.resources import ResourceViewSet
from scoring.api.synchronous import validated
from scoring.filters import CreatedFilter, WebhookDeliveryFilter
from scoring.models import Webhook, WebhookDelivery
from scoring.services.webhook_deliveries import delivery_replay, webhook_test
from scoring.services.webhooks import webhook_change, webhook_change_secret, webhook_create, webhook_delete
from scoring.states import DeliveryState


class WebhookWriteSerializer(StrictSerializer):
    url = TextField(help_text="https, and a public host; others only where the operator listed them")
    events = serializers.ListField(
        child=TextField(), required=False, help_text="Such as job.completed; absent: every end of a job"
    )
    description = TextField(default="", max_length=200)


class WebhookChangeSerializer(WebhookWriteSerializer):
    enabled = StrictBooleanField(help_text="Enabled again, it gets what still waits")


class WebhookSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    url = serializers.CharField()
    events = serializers.ListField(child=serializers.CharField())
    description = serializers.CharField()
    enabled = serializers.BooleanField()
    disabled_reason = serializers.CharField(help_text="Why the platform disabled it; else empty")
    succeeded_at = serializers.DateTimeField(allow_null=True, help_text="When a delivery last arrived")
    created_at = serializers.DateTimeField()


class WebhookSecretSerializer(WebhookSerializer):
    secret = serializers.CharField(help_text="Shown this once; verifies the header webhook-signature")


class WebhookDeliverySerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(help_text="Also the header webhook-id, the same at every attempt")
    webhook = serializers.UUIDField(source="webhook_id")
    event = serializers.CharField()
    payload = serializers.DictField()
    state = state_field(DeliveryState)()
    attempts = serializers.IntegerField()
    next_try_at = serializers.DateTimeField(help_text="While it is pending")
    status_code = serializers.IntegerField(allow_null=True, help_text="Of the last answer, if there was one")
    error = serializers.CharField(help_text="Why the last attempt failed; else empty")
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)


WEBHOOK: Final[dict[str, Any]] = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a21",
    "url": "https://hooks.example.org/assay",
    "events": ["job.completed", "job.failed"],
    "description": "nightly reranking",
    "enabled": True,
    "disabled_reason": "",
    "succeeded_at": None,
    "created_at": "2026-11-29T20:00:00Z",
}
WITH_SECRET: Final = {**WEBHOOK, "secret": "whsec_…"}
WRITE: Final = {name: WEBHOOK[name] for name in ("url", "events", "description")}
DELIVERY: Final[dict[str, Any]] = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a22",
    "webhook": WEBHOOK["id"],
    "event": "job.completed",
    "payload": {
        "type": "job.completed",
        "timestamp": "2026-11-29T20:05:00.000+00:00",
        "data": {
            "job": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a12",
            "state": "completed",
            "end_reason": "",
            "attempt": 1,
            "pair_count": 140,
            "pairs": {"ok": 138, "truncated": 0, "empty": 2, "failed": 0},
            "not_scored": 0,
            "failed_chunks": 0,
            "links": {
                "job": "/api/v1/jobs/01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a12",
                "results": "/api/v1/jobs/01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a12/results",
            },
        },
    },
    "state": "delivered",
    "attempts": 1,
    "next_try_at": "2026-11-29T20:05:01Z",
    "status_code": 204,
    "error": "",
    "created_at": "2026-11-29T20:05:00Z",
    "finished_at": "2026-11-29T20:05:01Z",
}
PENDING: Final = {**DELIVERY, "state": "pending", "attempts": 0, "status_code": None, "finished_at": None}


@extend_schema(tags=["webhooks"])
class WebhookViewSet(ResourceViewSet):
    required_scope = "jobs"
    model = Webhook
    filterset_class = CreatedFilter
    lookup_value_converter = "uuid"
    serializer_class = WebhookSerializer

    @operation("List the webhooks", answer=WebhookSerializer(many=True), example=WEBHOOK, errors=LISTED)
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), WebhookSerializer)

    @operation("One webhook", answer=WebhookSerializer, example=WEBHOOK, errors=(*READ, 404))
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(WebhookSerializer(self.found()).data)

    @operation(
        "Have an address told when jobs end",
        request=WebhookWriteSerializer, request_example=WRITE, answer=WebhookSecretSerializer, example=WITH_SECRET,
        status=201, errors=(*BODY, 409),
    )  # fmt: skip
    def create(self, request: Request) -> Response:
        webhook, secret = webhook_create(principal=self.principal, **validated(WebhookWriteSerializer, request))
        place = {"Location": self.reverse_action("detail", kwargs={"pk": webhook.pk})}
        return Response(_with_secret(webhook, secret), status=201, headers=place)

    @operation(
        "Change a webhook, or enable it again",
        request=WebhookChangeSerializer(partial=True), request_example={"enabled": True}, answer=WebhookSerializer,
        example=WEBHOOK, errors=(*BODY, 404),
    )  # fmt: skip
    def partial_update(self, request: Request, pk: str) -> Response:
        body = WebhookChangeSerializer(data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        webhook = webhook_change(principal=self.principal, webhook=self.found(), **body.validated_data)
        return Response(WebhookSerializer(webhook).data)

    @operation("Delete a webhook with its deliveries", answer=None, status=204, errors=(*READ, 404))
    def destroy(self, request: Request, pk: str) -> Response:
        webhook_delete(principal=self.principal, webhook=self.found())
        return Response(status=204)

    @operation(
        "Send a test message; its delivery shows what came of it",
        answer=WebhookDeliverySerializer,
        example={**PENDING, "event": "webhook.test", "payload": {"type": "webhook.test"}},
        status=201,
        errors=(*READ, 404),
    )
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        return Response(WebhookDeliverySerializer(webhook_test(webhook=self.found())).data, status=201)

    @operation(
        "Change a webhook's secret; the old one signs nothing any more",
        answer=WebhookSecretSerializer, example=WITH_SECRET, errors=(*READ, 404),
    )  # fmt: skip
    @action(detail=True, methods=["post"], url_path="change-secret")
    def change_secret(self, request: Request, pk: str) -> Response:
        webhook = self.found()
        return Response(_with_secret(webhook, webhook_change_secret(principal=self.principal, webhook=webhook)))


@extend_schema(tags=["webhooks"])
class WebhookDeliveryViewSet(ResourceViewSet):
    required_scope = "jobs"
    model = WebhookDelivery
    filterset_class = WebhookDeliveryFilter
    lookup_value_converter = "uuid"
    serializer_class = WebhookDeliverySerializer

    def rows(self) -> QuerySet[WebhookDelivery]:
        return WebhookDelivery.objects.filter(webhook__team=self.principal.team)

    @operation(
        "List what was sent to webhooks", answer=WebhookDeliverySerializer(many=True), example=DELIVERY, errors=LISTED
    )
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), WebhookDeliverySerializer)

    @operation("One message to a webhook", answer=WebhookDeliverySerializer, example=DELIVERY, errors=(*READ, 404))
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(WebhookDeliverySerializer(self.found()).data)

    @operation(
        "Send a message again, under the same id",
        answer=WebhookDeliverySerializer, example=PENDING, errors=(*READ, 404),
    )  # fmt: skip
    @action(detail=True, methods=["post"])
    def replay(self, request: Request, pk: str) -> Response:
        delivery = delivery_replay(principal=self.principal, delivery=self.found())
        return Response(WebhookDeliverySerializer(delivery).data)


def _with_secret(webhook: Webhook, secret: str) -> dict[str, Any]:
    return {**WebhookSerializer(webhook).data, "secret": secret}
