"""``/v2/rerank`` and ``/v2/embed``: Cohere's shapes."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.principal import principal_of
from assay.api.serializers import CallSerializer, StrictIntegerField, TextField
from scoring.api.openapi import SCORED, operation
from scoring.api.pooled import bare_response, pooled
from scoring.api.synchronous import HEADERS, ScoringView, answer_headers, client_names, scored, validated
from scoring.payloads import SyncOptions
from scoring.selectors.models import EMBEDDERS, model_for_request
from scoring.services.pooling import Floats, numbers

ROLES: Final = {"search_query": "query", "search_document": "document"}
TYPES: Final = ("float", "base64", "binary", "ubinary")
DOCUMENTS_A_UNIT: Final = 100  # that Cohere bills as one search
DEFAULT_TOKENS_PER_DOCUMENT: Final = 4096


class CohereSerializer(CallSerializer):
    model = TextField(required=False, help_text="A registered name; absent: the endpoint's default model")
    priority = StrictIntegerField(
        default=0, min_value=0, max_value=999, help_text="0: at once; more: behind all requests that give 0"
    )


class CohereRerankSerializer(CohereSerializer):
    query = TextField()
    documents = serializers.ListField(child=TextField(), allow_empty=False)
    top_n = StrictIntegerField(required=False, min_value=1, help_text="Absent or null: all")
    max_tokens_per_doc = StrictIntegerField(
        default=DEFAULT_TOKENS_PER_DOCUMENT,
        min_value=1,
        help_text="Longer documents are cut; so are those over the model's limit",
    )


class BilledSerializer(serializers.Serializer[Any]):
    search_units = serializers.IntegerField(required=False, help_text="Started hundreds of documents")
    input_tokens = serializers.IntegerField(required=False)


class ApiVersionSerializer(serializers.Serializer[Any]):
    version = serializers.CharField()


class InputTokensSerializer(serializers.Serializer[Any]):
    input_tokens = serializers.IntegerField()


class CohereMetaSerializer(serializers.Serializer[Any]):
    api_version = ApiVersionSerializer()
    billed_units = BilledSerializer()
    tokens = InputTokensSerializer()


class CohereResultSerializer(serializers.Serializer[Any]):
    index = serializers.IntegerField(help_text="Position in the submitted list")
    relevance_score = serializers.FloatField(allow_null=True, help_text="Null, and last, for a document without text")


class CohereRerankAnswerSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(help_text="Of the stored request: /api/v1/score-requests/{id}")
    results = CohereResultSerializer(many=True)
    meta = CohereMetaSerializer()


@extend_schema(tags=["scoring"])
class CohereRerankView(ScoringView):
    @operation(
        "Rank documents by their relevance to a query, in Cohere's shape",
        request=CohereRerankSerializer,
        request_example={
            "model": "minilm",
            "query": "capital of Peru?",
            "documents": ["Cats purr.", "Lima is the capital of Peru."],
            "top_n": 1,
        },
        answer=CohereRerankAnswerSerializer,
        example={
            "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a10",
            "results": [{"index": 1, "relevance_score": 0.8519}],
            "meta": {
                "api_version": {"version": "2"},
                "billed_units": {"search_units": 1},
                "tokens": {"input_tokens": 31},
            },
        },
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        fields = validated(CohereRerankSerializer, request)
        options = SyncOptions(
            max_tokens_per_document=fields["max_tokens_per_doc"], priority=_priority(fields["priority"])
        )
        given = {**fields, "texts": fields["documents"]}
        answer = scored(request, given, queries=[fields["query"]], options=options)
        results = [
            {"index": item.index, "relevance_score": item.score} for item in answer.ranked()[: fields.get("top_n")]
        ]
        units = math.ceil(len(fields["documents"]) / DOCUMENTS_A_UNIT)
        body = {"id": answer.id, "results": results, "meta": _meta(answer.reply.prompt_tokens, search_units=units)}
        return Response(body, headers=answer_headers(answer))


class CohereEmbedSerializer(CohereSerializer):
    texts = serializers.ListField(child=TextField(), allow_empty=False)
    input_type = serializers.ChoiceField(
        list(ROLES), help_text="Which of the model's prompts the texts get, if it has any; it knows these two"
    )
    embedding_types = serializers.ListField(
        child=serializers.ChoiceField(TYPES), default=["float"], allow_empty=False,
        help_text="float; base64 of little-endian float32; signs as packed bits, signed or unsigned bytes",
    )  # fmt: skip
    truncate = serializers.ChoiceField(
        ["END", "NONE"], default="END", help_text="Of a text over the limit: cut its end, or refuse the request"
    )
    max_tokens = StrictIntegerField(required=False, min_value=1, help_text="That are read of a text")
    output_dimension = StrictIntegerField(
        required=False, min_value=1, help_text="Of models trained to be shortened (Matryoshka)"
    )


class VectorsSerializer(serializers.Serializer[Any]):
    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        floats = serializers.ListField(child=serializers.ListField(child=serializers.FloatField()), required=False)
        packed = {name: _bits(name) for name in ("binary", "ubinary")}
        return {
            "float": floats,
            "base64": serializers.ListField(child=serializers.CharField(), required=False),
            **packed,
        }


def _bits(name: str) -> serializers.Field[Any, Any, Any, Any]:
    child = serializers.ListField(child=serializers.IntegerField())
    return serializers.ListField(child=child, required=False, help_text="An eighth as many numbers as dimensions")


class CohereEmbedAnswerSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(help_text="Of the stored request: /api/v1/score-requests/{id}")
    response_type = serializers.CharField()
    embeddings = VectorsSerializer(help_text="By type, each in the order submitted")
    texts = serializers.ListField(child=serializers.CharField())
    meta = CohereMetaSerializer()


@extend_schema(tags=["single texts"])
class CohereEmbedView(ScoringView):
    @operation(
        "Embed texts, one vector each, in Cohere's shape",
        description="For bi-encoders and hybrid models. A text without anything to read refuses the request.",
        request=CohereEmbedSerializer,
        request_example={"model": "minilm", "texts": ["Cats purr."], "input_type": "search_document"},
        answer=CohereEmbedAnswerSerializer,
        example={
            "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a10",
            "response_type": "embeddings_by_type",
            "embeddings": {"float": [[0.012, 0.088, -0.093]]},
            "texts": ["Cats purr."],
            "meta": {
                "api_version": {"version": "2"},
                "billed_units": {"input_tokens": 5},
                "tokens": {"input_tokens": 5},
            },
        },
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        fields = validated(CohereEmbedSerializer, request)
        options = SyncOptions(
            role=ROLES[fields["input_type"]],
            max_tokens_per_document=fields.get("max_tokens"),
            truncation="error" if fields["truncate"] == "NONE" else "document",
            dimensions=fields.get("output_dimension"),
            priority=_priority(fields["priority"]),
        )
        model = model_for_request(principal=principal_of(request), name=fields.get("model"), kinds=EMBEDDERS)
        texts = fields["texts"]
        with client_names(dimensions="output_dimension"):
            answer = pooled(
                request, model=model, inputs=texts, task="embed", options=options, param="texts", whole=True
            )
        vectors = [item.vector for item in answer.items if item.vector is not None]
        shown: dict[str, list[Any]] = {
            "float": [numbers(vector) for vector in vectors],
            "base64": [item.payload.vector for item in answer.items],
            "ubinary": [numbers(_signs(vector)) for vector in vectors],
            "binary": [numbers(_signs(vector).astype(np.int16) - 128) for vector in vectors],
        }
        tokens = answer.reply.prompt_tokens
        body = {
            "id": answer.id,
            "response_type": "embeddings_by_type",
            "embeddings": {name: shown[name] for name in TYPES if name in fields["embedding_types"]},
            "texts": texts,
            "meta": _meta(tokens, input_tokens=tokens),
        }
        return bare_response(answer, body)


def _priority(given: int) -> str:
    return "batch" if given else "interactive"


def _signs(vector: Floats) -> Any:
    """One bit per dimension, the first dimension the highest bit of the first byte."""
    return np.packbits(vector >= 0)


def _meta(tokens: int, **billed: int) -> dict[str, Any]:
    return {"api_version": {"version": "2"}, "billed_units": billed, "tokens": {"input_tokens": tokens}}
