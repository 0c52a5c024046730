"""``/api/v1/judgements``: which document answers which query, and how well."""

from __future__ import annotations

from typing import Any, Final

from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from scoring.api import document_sets
from scoring.api.openapi import LISTED, operation
from scoring.api.resources import PositionPagination
from scoring.api.uploaded_sets import (
    UploadedSetDetailSerializer,
    UploadedSetSerializer,
    UploadedSetViewSet,
    set_operations,
)
from scoring.filters import JudgementFilter, JudgementSetFilter
from scoring.models import JudgementSet
from scoring.selectors.sets import set_rows

FILE: Final = "q1 0 d1 2\n"
MAPPING: Final = {"query_id": "query_id", "document_id": "document_id", "grade": "grade", "metadata": None}
SET: Final[dict[str, Any]] = {
    **document_sets.SET,
    "name": "Household judgements",
    "file_name": "judgements.txt",
    "file_format": "trec-qrels",
    "mapping": MAPPING,
    "root": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a04",
    "version": 1,
    "scale": ["not relevant", "marginal", "relevant"],
    "relevant_from": 1,
    "guidelines": "",
    "provenance": {"made": "imported"},
}
ROW: Final = {"query_id": "q1", "document_id": "d1", "grade": 2}
PREVIEW: Final[dict[str, Any]] = {
    **document_sets.PREVIEW,
    "file_format": "trec-qrels",
    "columns": ["query_id", "iteration", "document_id", "grade"],
    "mapping": MAPPING,
    "rows": [
        {
            "line": 1,
            "values": {"query_id": "q1", "iteration": "0", "document_id": "d1", "grade": "2"},
            "problem": None,
        }
    ],
}


class JudgementSerializer(serializers.Serializer[Any]):
    query_id = serializers.CharField()
    document_id = serializers.CharField()
    grade = serializers.IntegerField()


class JudgementSetSerializer(UploadedSetSerializer):
    root = serializers.UUIDField(help_text="The same for all versions of a set")
    version = serializers.IntegerField(help_text="Counts from 1; a version never changes")
    scale = serializers.ListField(child=serializers.CharField(), help_text="Names of the grades 0, 1, …, worst first")
    relevant_from = serializers.IntegerField(help_text="The lowest grade of a relevant document")


class JudgementSetDetailSerializer(JudgementSetSerializer, UploadedSetDetailSerializer):
    guidelines = serializers.CharField()
    provenance = serializers.DictField(help_text="How this version was made, of what, by whom")


@set_operations(
    "judgement sets",
    file=FILE,
    answer=SET,
    preview=PREVIEW,
    serializer=JudgementSetSerializer,
    detail=JudgementSetDetailSerializer,
)
class JudgementSetViewSet(UploadedSetViewSet):
    kind_name = "judgements"
    model = JudgementSet
    filterset_class = JudgementSetFilter
    serializer_class = JudgementSetSerializer
    detail_serializer = JudgementSetDetailSerializer

    @operation(
        "The judgements of a set, in the order of the file",
        answer=JudgementSerializer(many=True),
        example=ROW,
        errors=LISTED,
    )
    @action(detail=True, pagination_class=PositionPagination, filterset_class=JudgementFilter, url_path="rows")
    def judgements(self, request: Request, pk: str) -> Response:
        return self.paged(set_rows(self.found()), JudgementSerializer)
