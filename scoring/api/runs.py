"""``/api/v1/runs``: which documents a search found for each query, the candidates of a job that reranks them."""

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
from scoring.filters import RunFilter
from scoring.models import RunSet
from scoring.selectors.sets import set_rows

FILE: Final = "q1 Q0 d1 1 12.5 bm25\n"
RULE: Final = (
    "A row has a rank, a score or both. Within a query documents are ordered by rank if the file gives ranks, else by "
    "falling score, ties by line. A document that stands twice for one query is refused by line; with `keep_good_rows` "
    "its first row is kept."
)
MAPPING: Final = {
    "query_id": "query_id",
    "document_id": "document_id",
    "rank": "rank",
    "score": "score",
    "metadata": None,
}
SET: Final[dict[str, Any]] = {
    **document_sets.SET,
    "name": "Household BM25",
    "file_name": "bm25.run",
    "file_format": "trec-run",
    "mapping": MAPPING,
}
ROW: Final = {"query_id": "q1", "document_id": "d1", "rank": 1, "score": 12.5}
PREVIEW: Final[dict[str, Any]] = {
    **document_sets.PREVIEW,
    "file_format": "trec-run",
    "columns": ["query_id", "iteration", "document_id", "rank", "score", "tag"],
    "mapping": MAPPING,
    "rows": [
        {
            "line": 1,
            "values": {
                "query_id": "q1",
                "iteration": "Q0",
                "document_id": "d1",
                "rank": "1",
                "score": "12.5",
                "tag": "bm25",
            },
            "problem": None,
        }
    ],
}


class RunEntrySerializer(serializers.Serializer[Any]):
    query_id = serializers.CharField()
    document_id = serializers.CharField()
    rank = serializers.IntegerField(allow_null=True, help_text="As the file gives it; null: it gives scores only")
    score = serializers.FloatField(allow_null=True, help_text="As the file gives it; null: it gives the rank only")


@set_operations("run sets", file=FILE, answer=SET, preview=PREVIEW, rule=RULE)
class RunSetViewSet(UploadedSetViewSet):
    kind_name = "runs"
    model = RunSet

    @operation(
        "The entries of a run, in the order of the file",
        answer=RunEntrySerializer(many=True),
        example=ROW,
        errors=LISTED,
    )
    @action(detail=True, pagination_class=PositionPagination, filterset_class=RunFilter)
    def entries(self, request: Request, pk: str) -> Response:
        return self.paged(set_rows(self.found()), RunEntrySerializer)
