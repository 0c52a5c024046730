"""``/v1/embeddings``: one vector per text, in OpenAI's shape."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.principal import principal_of
from assay.api.serializers import StrictIntegerField
from scoring.api.openapi import SCORED, operation
from scoring.api.pooled import (
    BASE64,
    POOLED_EXAMPLE,
    HowReadSerializer,
    InputSerializer,
    PooledAnswerSerializer,
    input_options,
    pooled,
    pooled_response,
)
from scoring.api.synchronous import HEADERS, ScoringView, how_read, validated
from scoring.selectors.models import EMBEDDERS, model_for_request
from scoring.services.pooling import PooledItem, numbers


class EmbeddingsSerializer(InputSerializer):
    encoding_format = serializers.ChoiceField(
        ["float", BASE64], default="float", help_text="Numbers, or base64 of little-endian float32"
    )
    dimensions = StrictIntegerField(
        required=False, min_value=1,
        help_text="Of models trained to be shortened (Matryoshka): so many first dimensions, of length one again",
    )  # fmt: skip


@extend_schema_field({"oneOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}]})
class VectorField(serializers.Field[Any, Any, Any, Any]):
    """Numbers, or base64 of them."""


class EmbeddingSerializer(HowReadSerializer):
    object = serializers.CharField()
    embedding = VectorField()


class EmbeddingsAnswerSerializer(PooledAnswerSerializer):
    data = EmbeddingSerializer(many=True)  # type: ignore[assignment]


@extend_schema(tags=["single texts"])
class EmbeddingsView(ScoringView):
    @operation(
        "Embed texts, one vector each",
        description="OpenAI's shape, for bi-encoders and hybrid models. Vectors are as the checkpoint makes them: the "
        "model's score is their comparison. A text without anything to read refuses the request.",
        request=EmbeddingsSerializer,
        request_example={"model": "minilm", "input": ["Lima is the capital of Peru.", "Cats purr."]},
        answer=EmbeddingsAnswerSerializer,
        example={
            **POOLED_EXAMPLE,
            "data": [
                {"object": "embedding", "index": 0, "embedding": [0.031, -0.127, 0.054], "status": "ok"},
                {"object": "embedding", "index": 1, "embedding": [0.012, 0.088, -0.093], "status": "ok"},
            ],
        },
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        fields = validated(EmbeddingsSerializer, request)
        answer = pooled(
            request,
            model=model_for_request(principal=principal_of(request), name=fields.get("model"), kinds=EMBEDDERS),
            inputs=fields["input"],
            task="embed",
            options=input_options(fields, dimensions=fields.get("dimensions")),
            whole=True,
            user=fields.get("user", ""),
        )
        encoding = fields["encoding_format"]
        data = [
            {"object": "embedding", "index": item.index, "embedding": vector_of(item, encoding), **how_read(item)}
            for item in answer.items
        ]
        return pooled_response(answer, data)


def vector_of(item: PooledItem, encoding: str) -> Any:
    """As asked for; None for a text that has none."""
    if encoding == BASE64:
        return item.payload.vector or None
    return None if item.vector is None else numbers(item.vector)
