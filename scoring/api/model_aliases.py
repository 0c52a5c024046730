"""``/api/v1/model-aliases``: names that point at models."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.serializers import StrictSerializer, TextField
from assay.errors import AssayError
from scoring.api.openapi import BODY, LISTED, READ, operation
from scoring.api.resources import Pagination, ResourceViewSet
from scoring.api.synchronous import validated
from scoring.models import ModelAlias, ScoringModel
from scoring.services.model_names import alias_delete, alias_point


class ByName(Pagination):
    ordering = "name"


class AliasSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    model = serializers.CharField(source="model.name", help_text="The model's own name")
    created_at = serializers.DateTimeField()
    moved_at = serializers.DateTimeField(help_text="Since when it points there")


class AliasPointSerializer(StrictSerializer):
    model = TextField(max_length=64, help_text="The own name of a model that is served")


ALIAS: Final = {
    "name": "production",
    "model": "minilm",
    "created_at": "2026-11-29T20:00:00Z",
    "moved_at": "2026-11-29T20:00:00Z",
}


@extend_schema(tags=["models"])
class ModelAliasViewSet(ResourceViewSet):
    required_scope = "models:read"
    write_scope = "models:write"
    model = ModelAlias
    pagination_class = ByName
    lookup_field = "name"
    lookup_value_converter = "str"  # what is no name is told so
    serializer_class = AliasSerializer

    def rows(self) -> QuerySet[ModelAlias]:
        rows = ModelAlias.objects.select_related("model")
        allowed = self.principal.allowed_models
        return rows.filter(model__name__in=allowed) if allowed else rows

    @operation("List all aliases of models", answer=AliasSerializer(many=True), example=ALIAS, errors=LISTED)
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), AliasSerializer)

    @operation("One alias", answer=AliasSerializer, example=ALIAS, errors=(*READ, 404))
    def retrieve(self, request: Request, name: str) -> Response:
        return Response(AliasSerializer(self.found()).data)

    @operation(
        "Point an alias at a model",
        description="Made if there is none of that name, else moved in one step. 409 `name_taken` where a model has "
        "that name itself.",
        request=AliasPointSerializer,
        request_example={"model": "minilm"},
        answer=AliasSerializer,
        example=ALIAS,
        errors=(*BODY, 404, 409),
    )
    def update(self, request: Request, name: str) -> Response:
        wanted = validated(AliasPointSerializer, request)["model"]
        self.principal.require_model(wanted)
        if (current := ModelAlias.objects.select_related("model").filter(name=name).first()) is not None:
            self.principal.require_model(current.model.name)
        model = ScoringModel.objects.filter(name=wanted).first()
        if model is None:
            message = f"No model is called '{wanted}'; give the own name of a registered model, not an alias."
            raise AssayError("model_not_found", message, status=404, param="model")
        return Response(AliasSerializer(alias_point(principal=self.principal, name=name, model=model)).data)

    @operation("Delete an alias; the model stays", answer=None, status=204, errors=(*READ, 404))
    def destroy(self, request: Request, name: str) -> Response:
        alias_delete(principal=self.principal, alias=self.found())
        return Response(status=204)
