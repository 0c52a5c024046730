"""``/v1/models``: which models answer requests, as clients of other servers know it."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from assay.api.principal import principal_of
from scoring.api.openapi import operation
from scoring.api.thresholds import ADVICE, AdviceSerializer
from scoring.models import ScoringModel
from scoring.models.scoring_model import ModelKind
from scoring.selectors.models import model_card, model_for_request, models_usable, models_with_placements
from scoring.selectors.thresholds import advice_in_force, models_with_advice
from scoring.states import ModelState


class LimitsSerializer(serializers.Serializer[Any]):
    max_documents_per_request = serializers.IntegerField()
    max_body_bytes = serializers.IntegerField()
    max_timeout_ms = serializers.IntegerField()


class CardSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="The name to give as `model`")
    object = serializers.CharField()
    created = serializers.IntegerField()
    owned_by = serializers.CharField()
    kind = serializers.ChoiceField(ModelKind.choices)
    scale = serializers.CharField(allow_null=True)
    max_model_len = serializers.IntegerField(allow_null=True, help_text="Tokens per text or prompt")
    dtype = serializers.CharField()
    device = serializers.CharField()
    revision = serializers.CharField()
    gpu_maxsim = serializers.BooleanField()
    is_default = serializers.BooleanField()
    aliases = serializers.ListField(child=serializers.CharField(), help_text="Other names that point at it now")
    labels = serializers.ListField(child=serializers.CharField())
    positive_class = serializers.CharField()
    weights = serializers.ListField(child=serializers.FloatField())
    state = serializers.CharField(help_text="Such as 'ready on 2' or 'loaded on first use'")
    limits = LimitsSerializer()
    threshold_advice = AdviceSerializer(allow_null=True, help_text="The newest of the team; nothing applies it")


class CardsSerializer(serializers.Serializer[Any]):
    object = serializers.CharField()
    data = CardSerializer(many=True)  # type: ignore[assignment]


CARD: Final = {
    "id": "minilm",
    "object": "model",
    "created": 1760000000,
    "owned_by": "assay",
    "kind": "bi-encoder",
    "scale": "cosine",
    "max_model_len": 256,
    "dtype": "float32",
    "device": "cpu",
    "revision": "9f2c6e0b1d4a",
    "gpu_maxsim": True,
    "is_default": True,
    "aliases": ["production"],
    "labels": [],
    "positive_class": "",
    "weights": [],
    "state": "ready on 1",
    "limits": {"max_documents_per_request": 1000, "max_body_bytes": 33554432, "max_timeout_ms": 120000},
    "threshold_advice": ADVICE,
}


@extend_schema(tags=["scoring"])
class CardListView(APIView):
    required_scope: ClassVar[str] = "score"

    @operation(
        "List the models that answer requests",
        operation_id="v1_models_list",
        answer=CardsSerializer,
        example={"object": "list", "data": [CARD]},
    )
    def get(self, request: Request) -> Response:
        principal = principal_of(request)
        served = models_usable(models_with_placements().filter(state=ModelState.AVAILABLE), principal)
        served = models_with_advice(served, principal.team)
        return Response({"object": "list", "data": [card(model) for model in served]})


@extend_schema(tags=["scoring"])
class CardView(APIView):
    required_scope: ClassVar[str] = "score"

    @operation("One model that answers requests", answer=CardSerializer, example=CARD, errors=(401, 403, 404, 409))
    def get(self, request: Request, name: str) -> Response:
        principal = principal_of(request)
        model = model_for_request(principal=principal, name=name, kinds=list(ModelKind))
        return Response(card(models_with_advice(models_with_placements(), principal.team).get(pk=model.pk)))


def card(model: ScoringModel) -> dict[str, Any]:
    limits = {
        "max_documents_per_request": settings.MAX_DOCUMENTS_PER_REQUEST,
        "max_body_bytes": settings.MAX_BODY_BYTES,
        "max_timeout_ms": settings.SYNC_TIMEOUT_MAX_MS,
    }
    advice = advice_in_force(model)
    return {**model_card(model), "limits": limits, "threshold_advice": advice and AdviceSerializer(advice).data}
