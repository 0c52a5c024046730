"""``/api/v1/document-sets``."""

from __future__ import annotations

from typing import Any, Final

from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from scoring.api.openapi import LISTED, operation
from scoring.api.resources import PositionPagination
from scoring.api.uploaded_sets import TextSetDetailSerializer, TextSetSerializer, TextSetViewSet, set_operations
from scoring.filters import TextFilter
from scoring.models import DocumentSet
from scoring.selectors.sets import set_rows

FILE: Final = "id,title,body\nd1,Kettles,Descale with citric acid.\n"
COUNTS: Final = {"read": 1, "kept": 1, "bad": 0, "duplicate": 0, "empty": 0}
MAPPING: Final = {"id": "id", "text": "body", "title": "title", "metadata": None}
SET: Final[dict[str, Any]] = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a11",
    "name": "Household advice",
    "state": "ready",
    "file_name": "documents.csv",
    "file_format": "csv",
    "checksum": "5b0f0b1d8c6f4f4d7a1c2f0e9b8a7d6c5e4f3a2b1c0d9e8f7a6b5c4d3e2f1a0b",
    "counts": COUNTS,
    "created_at": "2026-11-29T20:00:00Z",
    "mapping": MAPPING,
    "problems": [],
    "error": "",
}
TEXTS: Final[dict[str, Any]] = {"texts_delete_requested_at": None, "texts_deleted_at": None}
PREVIEW: Final[dict[str, Any]] = {
    "file_format": "csv",
    "columns": ["id", "title", "body"],
    "mapping": MAPPING,
    "mapping_error": "",
    "rows": [
        {"line": 2, "values": {"id": "d1", "title": "Kettles", "body": "Descale with citric acid."}, "problem": None}
    ],
    "counts": COUNTS,
    "problems": [],
}


class DocumentSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="external_id")
    position = serializers.IntegerField(help_text="In the file, from 0; a result's `index`")
    title = serializers.CharField()
    text = serializers.CharField()
    metadata = serializers.DictField()
    is_empty = serializers.BooleanField(help_text="Without text: never scored, ranked last")


@set_operations(
    "document sets",
    file=FILE,
    answer=SET | TEXTS,
    preview=PREVIEW,
    serializer=TextSetSerializer,
    detail=TextSetDetailSerializer,
)
class DocumentSetViewSet(TextSetViewSet):
    kind_name = "documents"
    model = DocumentSet

    @operation(
        "The documents of a set, in the order of the file",
        answer=DocumentSerializer(many=True),
        example={
            "id": "d1",
            "position": 0,
            "title": "Kettles",
            "text": "Descale with citric acid.",
            "metadata": {},
            "is_empty": False,
        },
        errors=LISTED,
    )
    @action(detail=True, pagination_class=PositionPagination, filterset_class=TextFilter)
    def documents(self, request: Request, pk: str) -> Response:
        return self.paged(set_rows(self.found()), DocumentSerializer)
