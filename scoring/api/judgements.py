"""``/api/v1/judgements``: which document answers which query, and how well."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from scoring.api import document_sets
from scoring.api.openapi import LISTED, operation
from scoring.api.resources import PositionPagination, team_set
from scoring.api.uploaded_sets import (
    UploadedSetDetailSerializer,
    UploadedSetSerializer,
    UploadedSetViewSet,
    set_operations,
)
from scoring.api.uploads import UploadSerializer
from scoring.filters import JudgementFilter, JudgementSetFilter
from scoring.ingest.conflicts import ConflictRule
from scoring.ingest.items import ImportChecks
from scoring.models import DocumentSet, JudgementSet, QuerySet
from scoring.models.base import UploadedSet
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


# Sets that an upload may name, and what a person calls them.
CHECKED: Final[dict[str, tuple[type[UploadedSet], str]]] = {
    "query_set": (QuerySet, "query set"),
    "document_set": (DocumentSet, "document set"),
    "base": (JudgementSet, "judgement set"),
}


class JudgementSerializer(serializers.Serializer[Any]):
    query_id = serializers.CharField()
    document_id = serializers.CharField()
    grade = serializers.IntegerField()


class JudgementUploadSerializer(UploadSerializer):
    conflicts = serializers.ChoiceField(
        choices=ConflictRule.values, default=ConflictRule.REJECT, help_text="What becomes of a pair with several grades"
    )
    query_set = serializers.UUIDField(required=False, help_text="To check the query ids against")
    document_set = serializers.UUIDField(required=False, help_text="To check the document ids against")
    base = serializers.UUIDField(required=False, help_text="The judgement set that this is the next version of")


class JudgementSetSerializer(UploadedSetSerializer):
    root = serializers.UUIDField(  # type: ignore[assignment]  # a field, not the property of that name
        help_text="The same for all versions of a set"
    )
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
    upload=JudgementUploadSerializer,
    parameters=[
        OpenApiParameter("conflicts", str, enum=ConflictRule.values),
        *(OpenApiParameter(name, OpenApiTypes.UUID) for name in CHECKED),
    ],
    rule="A row that says the same twice is dropped; of a pair with several grades every row is bad, unless "
    "`conflicts` says otherwise. With a query or document set, `provenance.ids` tells how many rows are of it; 422 "
    "`ids_do_not_match` where hardly one is.",
)
class JudgementSetViewSet(UploadedSetViewSet):
    kind_name = "judgements"
    model = JudgementSet
    filterset_class = JudgementSetFilter
    serializer_class = JudgementSetSerializer
    detail_serializer = JudgementSetDetailSerializer
    upload_serializer = JudgementUploadSerializer

    def checks_of(self, fields: dict[str, Any]) -> ImportChecks:
        named = {
            name: team_set(self.principal, model, fields.pop(name), param=name, noun=noun)
            for name, (model, noun) in CHECKED.items()
            if name in fields
        }
        return ImportChecks(conflicts=ConflictRule(fields.pop("conflicts")), **named)

    @operation(
        "The judgements of a set, in the order of the file",
        answer=JudgementSerializer(many=True),
        example=ROW,
        errors=LISTED,
    )
    @action(detail=True, pagination_class=PositionPagination, filterset_class=JudgementFilter, url_path="rows")
    def judgements(self, request: Request, pk: str) -> Response:
        return self.paged(set_rows(self.found()), JudgementSerializer)
