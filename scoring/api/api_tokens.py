"""``/api/v1/tokens``: the team's API tokens, to be made, limited and revoked."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet
from django_filters import FilterSet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.limits import Quota
from accounts.models import ApiToken
from accounts.scopes import Scope
from accounts.services import token_change, token_create, token_revoke
from accounts.token_limits import MOST_OF_A_QUOTA
from assay.api.serializers import MomentField, StrictIntegerField, StrictSerializer, TextField
from assay.errors import AssayError
from scoring.api.openapi import BODY, LISTED, READ, operation
from scoring.api.resources import ResourceViewSet
from scoring.api.synchronous import validated
from scoring.filters import TokenFilter
from scoring.models import ScoringModel


def quota_field(quota: Quota, what: str) -> serializers.IntegerField:
    return StrictIntegerField(
        default=None,
        allow_null=True,
        min_value=quota.least,
        max_value=MOST_OF_A_QUOTA,
        help_text=f"{what}; null: no limit",
    )  # fmt: skip


class TokenWriteSerializer(StrictSerializer):
    name = TextField(help_text="What it is for, in at most 100 characters")
    scopes = serializers.ListField(child=serializers.ChoiceField(Scope.choices), allow_empty=False)
    allowed_models = serializers.ListField(
        child=TextField(), default=list, help_text="Names of the only models that it may use; empty: all"
    )
    allowed_networks = serializers.ListField(
        child=TextField(), default=list, help_text="The only networks that it may be used from; empty: all"
    )
    expires_at = MomentField(default=None, allow_null=True, help_text="null: never")
    requests_per_minute = quota_field(Quota.REQUESTS, "Synchronous requests")
    documents_per_day = quota_field(Quota.DOCUMENTS, "Documents scored synchronously")
    requests_in_flight = quota_field(Quota.IN_FLIGHT, "Synchronous requests at once")
    open_pairs = quota_field(Quota.PAIRS, "Pairs of jobs that have not ended")

    def validate_allowed_models(self, names: list[str]) -> list[str]:
        """A misspelt name would make a token that may use nothing, and nobody would see why."""
        known = set(ScoringModel.objects.values_list("name", flat=True))
        if unknown := [name for name in names if name not in known]:
            raise serializers.ValidationError(
                f"There is no model '{unknown[0][:80]}'; registered are: {', '.join(sorted(known)) or 'none yet'}."
            )
        return names


class TokenSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="public_id")
    prefix = serializers.CharField(help_text="How its secret begins, to tell which one it is")
    name = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    allowed_models = serializers.ListField(child=serializers.CharField())
    allowed_networks = serializers.ListField(child=serializers.CharField())
    requests_per_minute = serializers.IntegerField(allow_null=True)
    documents_per_day = serializers.IntegerField(allow_null=True)
    requests_in_flight = serializers.IntegerField(allow_null=True)
    open_pairs = serializers.IntegerField(allow_null=True)
    enabled = serializers.BooleanField(help_text="false: revoked, for good")
    created_by = serializers.CharField(source="created_by.username", default=None, allow_null=True)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute")


class MadeTokenSerializer(TokenSerializer):
    secret = serializers.CharField(help_text="The token itself: shown now and never again")


TOKEN: Final[dict[str, Any]] = {
    "id": "q7Hc0ZsVb31K",
    "prefix": "assay_q7Hc0ZsVb31K",
    "name": "search service",
    "scopes": ["score"],
    "allowed_models": ["minilm"],
    "allowed_networks": ["10.0.0.0/8"],
    "requests_per_minute": 600,
    "documents_per_day": None,
    "requests_in_flight": 8,
    "open_pairs": None,
    "enabled": True,
    "created_by": "ada",
    "created_at": "2026-11-29T20:00:00Z",
    "expires_at": None,
    "last_used_at": None,
}
WRITTEN: Final = {name: TOKEN[name] for name in ("name", "scopes", "allowed_models", "allowed_networks")}


@extend_schema(tags=["tokens"])
class TokenViewSet(ResourceViewSet):
    required_scope = "admin"
    model = ApiToken
    filterset_class: type[FilterSet] = TokenFilter
    lookup_field = "public_id"
    serializer_class = TokenSerializer

    def rows(self) -> QuerySet[ApiToken]:
        return ApiToken.objects.filter(team=self.principal.team).select_related("created_by", "team")

    @operation("List the team's tokens", answer=TokenSerializer(many=True), example=TOKEN, errors=LISTED)
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), TokenSerializer)

    @operation("One token", answer=TokenSerializer, example=TOKEN, errors=(*READ, 404))
    def retrieve(self, request: Request, public_id: str) -> Response:
        return Response(TokenSerializer(self.found()).data)

    @operation(
        "Make a token; its secret is in this answer and nowhere else",
        description="It can have no more than whoever makes it: scopes, models, networks and expiry of a token that "
        "makes another bound the other's, 403 `exceeds_own_rights` otherwise.",
        request=TokenWriteSerializer, request_example=WRITTEN, answer=MadeTokenSerializer,
        example={**TOKEN, "secret": "assay_q7Hc0ZsVb31K_…"}, status=201, errors=BODY,
    )  # fmt: skip
    def create(self, request: Request) -> Response:
        fields = validated(TokenWriteSerializer, request)
        token, secret = token_create(team=self.principal.team, principal=self.principal, **fields)
        place = {"Location": self.reverse_action("detail", kwargs={"public_id": token.public_id})}
        body = {**TokenSerializer(token).data, "secret": secret}
        return Response(body, status=201, headers={**place, "Cache-Control": "no-store"})

    @operation(
        "Change a token; in force with the next request",
        request=TokenWriteSerializer(partial=True), request_example={"scopes": ["score", "jobs"]},
        answer=TokenSerializer, example={**TOKEN, "scopes": ["jobs", "score"]}, errors=(*BODY, 404, 409),
    )  # fmt: skip
    def partial_update(self, request: Request, public_id: str) -> Response:
        body = TokenWriteSerializer(data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        token = self.found()
        if not token.enabled:
            message = f"The token '{token.name}' is revoked, for good; make another one."
            raise AssayError("token_revoked", message, status=409)
        token = token_change(token=token, principal=self.principal, **body.validated_data)
        return Response(TokenSerializer(token).data)

    @operation(
        "Revoke a token; refused from the next request on",
        description="For good. A token is never deleted: requests and audit events name it.",
        answer=TokenSerializer, example={**TOKEN, "enabled": False}, errors=(*READ, 404),
    )  # fmt: skip
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, public_id: str) -> Response:
        token = self.found()
        token_revoke(token=token, principal=self.principal)
        return Response(TokenSerializer(token).data)
