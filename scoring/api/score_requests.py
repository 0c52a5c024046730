"""``/api/v1/score-requests``: the synchronous requests of the team, as they were answered."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from scoring.api.openapi import LISTED, READ, operation
from scoring.api.resources import ResourceViewSet
from scoring.filters import ScoreRequestFilter
from scoring.models import ScoreRequest
from scoring.states import ItemStatus


class StoredRequestSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    endpoint = serializers.CharField()
    model = serializers.CharField(source="model_name")
    model_revision = serializers.CharField()
    request_id = serializers.CharField(help_text="The client's X-Request-Id, or the one it was given")
    token = serializers.SerializerMethodField(help_text="Name of the API token; null for a browser")
    status_code = serializers.IntegerField()
    error_code = serializers.CharField(help_text="Empty when it was answered")
    query_count = serializers.IntegerField()
    document_count = serializers.IntegerField()
    prompt_tokens = serializers.IntegerField()
    timings = serializers.DictField(child=serializers.FloatField(), help_text="Milliseconds by phase")
    report = serializers.DictField(help_text="Backend, dtype, scale, worker, …")
    created_at = serializers.DateTimeField()

    @extend_schema_field({"type": ["string", "null"]})
    def get_token(self, row: ScoreRequest) -> str | None:
        return row.token.name if row.token else None


class ScoredSerializer(serializers.Serializer[Any]):
    index = serializers.IntegerField()
    score = serializers.FloatField(allow_null=True)
    raw_score = serializers.FloatField(allow_null=True)
    status = serializers.ChoiceField(ItemStatus.choices)


class StoredRequestDetailSerializer(StoredRequestSerializer):
    queries = serializers.ListField(
        child=serializers.CharField(), allow_null=True, help_text="Null: texts are not kept, or no longer"
    )
    documents = serializers.ListField(
        child=serializers.CharField(), allow_null=True, help_text="Null: texts are not kept, or no longer"
    )
    results = ScoredSerializer(many=True, help_text="In the order submitted, the first 1,000")


REQUEST: Final[dict[str, Any]] = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a10",
    "endpoint": "/v1/rerank",
    "model": "minilm",
    "model_revision": "9f2c6e0b1d4a",
    "request_id": "checkout-17",
    "token": "shop",
    "status_code": 200,
    "error_code": "",
    "query_count": 1,
    "document_count": 2,
    "prompt_tokens": 31,
    "timings": {"queue": 0.2, "tokenise": 0.4, "forward": 6.1, "maxsim": 0.0, "total": 7.0},
    "report": {"backend": "cpu", "dtype": "float32", "scale": "cosine"},
    "created_at": "2026-11-29T20:00:00Z",
}
DETAIL: Final[dict[str, Any]] = {
    **REQUEST,
    "queries": None,
    "documents": None,
    "results": [{"index": 0, "score": 0.0214, "raw_score": 0.0214, "status": "ok"}],
}


@extend_schema(tags=["score requests"])
class ScoreRequestViewSet(ResourceViewSet):
    required_scope = "score"
    model = ScoreRequest
    filterset_class = ScoreRequestFilter
    lookup_value_converter = "uuid"
    serializer_class = StoredRequestSerializer

    def rows(self) -> QuerySet[ScoreRequest]:
        return super().rows().select_related("token")

    @operation(
        "List the team's synchronous requests, the newest first",
        answer=StoredRequestSerializer(many=True),
        example=REQUEST,
        errors=LISTED,
    )
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset().defer("queries", "documents", "results"), StoredRequestSerializer)

    @operation("One request with its scores", answer=StoredRequestDetailSerializer, example=DETAIL, errors=(*READ, 404))
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(StoredRequestDetailSerializer(self.found()).data)
