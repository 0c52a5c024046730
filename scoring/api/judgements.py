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
from scoring.api.uploaded_sets import UploadedSetViewSet, set_operations
from scoring.filters import JudgementFilter
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


@set_operations("judgement sets", file=FILE, answer=SET, preview=PREVIEW)
class JudgementSetViewSet(UploadedSetViewSet):
    kind_name = "judgements"
    model = JudgementSet

    @operation(
        "The judgements of a set, in the order of the file",
        answer=JudgementSerializer(many=True),
        example=ROW,
        errors=LISTED,
    )
    @action(detail=True, pagination_class=PositionPagination, filterset_class=JudgementFilter, url_path="rows")
    def judgements(self, request: Request, pk: str) -> Response:
        return self.paged(set_rows(self.found()), JudgementSerializer)
