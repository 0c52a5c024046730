"""``/rerank`` and ``/v1/rerank``: one query, many documents, best first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.serializers import StrictBooleanField, StrictIntegerField, TextField
from scoring.api.items import DocumentsField, echoed, id_of
from scoring.api.openapi import SCORED, operation
from scoring.api.synchronous import (
    ENVELOPE_EXAMPLE,
    HEADERS,
    AnswerSerializer,
    OutcomeSerializer,
    RerankingSerializer,
    ScoringView,
    answer_response,
    options_of,
    outcome,
    scored,
    validated,
)


class RerankSerializer(RerankingSerializer):
    aliases: ClassVar[Mapping[str, str]] = {
        "top_k": "top_n", "texts": "documents", "items": "documents", "data_2": "documents", "text_2": "documents",
        "data_1": "query", "text_1": "query",
    }  # fmt: skip

    query = TextField()
    documents = DocumentsField()
    top_n = StrictIntegerField(required=False, min_value=1, help_text="Absent or null: all")
    return_documents = StrictBooleanField(default=True)
    raw_scores = StrictBooleanField(default=False, help_text="true: as use_activation false")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        attrs["use_activation"] = attrs["use_activation"] and not attrs["raw_scores"]
        return super().validate(attrs)


@extend_schema_field({"type": "object", "properties": {"text": {}}, "required": ["text"], "additionalProperties": True})
class EchoField(serializers.DictField):
    """The document as it was sent, with ``text``."""


class RerankResultSerializer(OutcomeSerializer):
    relevance_score = serializers.FloatField(allow_null=True)
    id = serializers.JSONField(required=False, help_text="The document's own id, if it was sent with one")
    document = EchoField(required=False, help_text="As sent; absent unless return_documents")


class RerankAnswerSerializer(AnswerSerializer):
    results = RerankResultSerializer(many=True)


@extend_schema(tags=["scoring"])
class RerankView(ScoringView):
    @operation(
        "Rank documents by their relevance to a query",
        description="All documents are scored, the best first; documents without a score (empty or failed) come last. "
        "`top_k` is another name of `top_n`; `texts` and `items` are other names of `documents`.",
        request=RerankSerializer,
        request_example={
            "model": "minilm",
            "query": "capital of Peru?",
            "documents": ["Cats purr.", {"id": "d7", "text": "Lima is the capital of Peru."}],
            "top_n": 1,
        },
        answer=RerankAnswerSerializer,
        example={
            **ENVELOPE_EXAMPLE,
            "results": [
                {
                    "index": 1,
                    "relevance_score": 0.8519,
                    "raw_score": 0.8519,
                    "status": "ok",
                    "id": "d7",
                    "document": {"text": "Lima is the capital of Peru.", "id": "d7"},
                }
            ],
        },
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        return reranked(request)


def reranked(request: Request) -> Response:
    fields = validated(RerankSerializer, request)
    answer = scored(request, fields, queries=[fields["query"]], options=options_of(fields))
    results = []
    for item in answer.ranked()[: fields.get("top_n")]:
        document = fields["documents"][item.index]
        result = {"index": item.index, "relevance_score": item.score, **outcome(item), **id_of(document)}
        if fields["return_documents"]:
            result["document"] = echoed(document, fields["texts"][item.index])
        results.append(result)
    return answer_response(answer, results=results)
