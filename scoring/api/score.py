"""``/score`` and ``/v1/score``: pairs in the order they were sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from scoring.api.items import DocumentsField, TextsField, id_of
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


class ScoreSerializer(RerankingSerializer):
    aliases: ClassVar[Mapping[str, str]] = {
        "query": "queries", "data_1": "queries", "text_1": "queries",
        "texts": "documents", "items": "documents", "data_2": "documents", "text_2": "documents",
    }  # fmt: skip

    queries = TextsField()
    documents = DocumentsField()
    mode = serializers.ChoiceField(
        ["pairs", "matrix"], default="pairs",
        help_text="pairs: one query with all documents, or query i with document i; matrix: every query with every one",
    )  # fmt: skip

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        queries, documents = len(attrs["queries"]), len(attrs["documents"])
        if attrs["mode"] == "pairs" and queries not in (1, documents):
            message = (
                f"{queries} queries and {documents} documents make no pairs; give one query, or as many as documents, "
                'or "mode": "matrix" for every query with every document.'
            )
            raise serializers.ValidationError({"queries": [message]}, code="lengths_differ")
        return super().validate(attrs)


class ScoreItemSerializer(OutcomeSerializer):
    object = serializers.CharField()
    score = serializers.FloatField(allow_null=True)
    id = serializers.JSONField(required=False, help_text="The document's own id, if it was sent with one")
    query_index = serializers.IntegerField(required=False, help_text="Of a matrix")
    document_index = serializers.IntegerField(required=False, help_text="Of a matrix")


class ScoreAnswerSerializer(AnswerSerializer):
    data = ScoreItemSerializer(many=True)  # type: ignore[assignment]


@extend_schema(tags=["scoring"])
class ScoreView(ScoringView):
    @operation(
        "Score pairs of queries and documents",
        description="1:1, 1:N and N:N pairs, or a matrix of N × M (query by query); the scores keep the order sent. "
        "Other names of `queries`: `data_1`, `text_1`, `query`; of `documents`: `data_2`, `text_2`, `items`, `texts`.",
        request=ScoreSerializer,
        request_example={
            "model": "minilm",
            "queries": "capital of Peru?",
            "documents": ["Lima is the capital.", "Cats purr."],
        },
        answer=ScoreAnswerSerializer,
        example={
            **ENVELOPE_EXAMPLE,
            "data": [
                {"index": 0, "object": "score", "score": 0.7313, "raw_score": 0.7313, "status": "ok"},
                {"index": 1, "object": "score", "score": 0.0214, "raw_score": 0.0214, "status": "ok"},
            ],
        },
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        return pairs_scored(request)


def pairs_scored(request: Request) -> Response:
    fields = validated(ScoreSerializer, request)
    # One query with many documents is a matrix of one row: the query is then encoded once.
    matrix = fields["mode"] == "matrix" or len(fields["queries"]) == 1
    pairing = "matrix" if matrix else "pairwise"
    answer = scored(request, fields, queries=fields["queries"], pairing=pairing, options=options_of(fields))
    data = []
    for item in answer.items:
        row, column = divmod(item.index, len(fields["documents"]))
        place = {"query_index": row, "document_index": column} if fields["mode"] == "matrix" else {}
        result = {"index": item.index, "object": "score", "score": item.score, **outcome(item), **place}
        data.append({**result, **id_of(fields["documents"][column])})
    return answer_response(answer, data=data)
