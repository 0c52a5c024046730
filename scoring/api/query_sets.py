"""``/api/v1/query-sets``."""

from __future__ import annotations

from typing import Any, Final

from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from scoring.api import document_sets
from scoring.api.openapi import LISTED, operation
from scoring.api.resources import PositionPagination
from scoring.api.uploaded_sets import TextSetDetailSerializer, TextSetSerializer, TextSetViewSet, set_operations
from scoring.filters import QueryFilter
from scoring.models import QuerySet
from scoring.selectors.sets import set_rows

FILE: Final = "id\ttext\nq1\tHow do I get rid of limescale?\n"
MAPPING: Final = {"id": "id", "text": "text", "metadata": None}
SET: Final[dict[str, Any]] = {
    **document_sets.SET,
    "name": "Household questions",
    "file_name": "queries.tsv",
    "file_format": "tsv",
    "mapping": MAPPING,
}
PREVIEW: Final[dict[str, Any]] = {
    **document_sets.PREVIEW,
    "file_format": "tsv",
    "columns": ["id", "text"],
    "mapping": MAPPING,
    "rows": [{"line": 2, "values": {"id": "q1", "text": "How do I get rid of limescale?"}, "problem": None}],
}


class QuerySerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="external_id")
    position = serializers.IntegerField()
    text = serializers.CharField()
    metadata = serializers.DictField()
    is_empty = serializers.BooleanField()


@set_operations(
    "query sets",
    file=FILE,
    answer=SET | document_sets.TEXTS,
    preview=PREVIEW,
    serializer=TextSetSerializer,
    detail=TextSetDetailSerializer,
)
class QuerySetViewSet(TextSetViewSet):
    kind_name = "queries"
    model = QuerySet

    @operation(
        "The queries of a set, in the order of the file",
        answer=QuerySerializer(many=True),
        example={
            "id": "q1",
            "position": 0,
            "text": "How do I get rid of limescale?",
            "metadata": {},
            "is_empty": False,
        },
        errors=LISTED,
    )
    @action(detail=True, pagination_class=PositionPagination, filterset_class=QueryFilter)
    def queries(self, request: Request, pk: str) -> Response:
        return self.paged(set_rows(self.found()), QuerySerializer)
