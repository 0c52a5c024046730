"""``/api/v1/exports``: tables as files that are made in the background."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet
from django.http import FileResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.serializers import StrictSerializer
from assay.errors import AssayError
from scoring.api.files import AnyType
from scoring.api.job_shapes import refusals
from scoring.api.openapi import BODY, LISTED, READ, operation, state_field
from scoring.api.resources import ResourceViewSet
from scoring.api.synchronous import validated
from scoring.export.formats import FORMATS
from scoring.export.sources import SOURCES
from scoring.filters import CreatedFilter
from scoring.models import Export
from scoring.services.exports import export_ask, export_delete, exports_of
from scoring.states import ExportState


class ExportSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    table = serializers.CharField()
    format = serializers.CharField(source="file_format")
    parameters = serializers.DictField()
    state = state_field(ExportState)()
    rows_total = serializers.IntegerField(help_text="When it was asked for; above 100,000 an estimate")
    rows_done = serializers.IntegerField()
    file_name = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes; 0 until it is done")
    error = serializers.CharField(help_text="Why it failed")
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField(help_text="Then the file is deleted")


class ExportAskSerializer(StrictSerializer):
    table = serializers.ChoiceField([(name, source.title) for name, source in SOURCES.items()])
    format = serializers.ChoiceField(list(FORMATS))
    parameters = serializers.DictField(
        required=False,
        help_text="Filters, as the table's own list takes them; `set` (and `search`) of documents, queries, "
        "judgements and runs; `job` (and `stage`) of results; `first`, `last` and `by` of usage",
    )


EXPORT: Final[dict[str, Any]] = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a10",
    "table": "documents",
    "format": "parquet",
    "parameters": {"set": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a11"},
    "state": "done",
    "rows_total": 1204000,
    "rows_done": 1204000,
    "file_name": "assay-document-set-01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a11.parquet",
    "size": 731906311,
    "error": "",
    "created_at": "2026-11-29T20:00:00Z",
    "finished_at": "2026-11-29T20:01:10Z",
    "expires_at": "2026-12-02T20:00:00Z",
}
ASKED: Final = {
    **EXPORT, "state": "waiting", "rows_done": 0, "size": 0, "finished_at": None,
}  # fmt: skip


@extend_schema(tags=["exports"])
class ExportViewSet(ResourceViewSet):
    required_scope = "jobs"
    model = Export
    filterset_class = CreatedFilter
    lookup_value_converter = "uuid"
    serializer_class = ExportSerializer

    def rows(self) -> QuerySet[Export]:
        rows: QuerySet[Export] = exports_of(self.principal)
        return rows

    @operation("List one's own exports", answer=ExportSerializer(many=True), example=EXPORT, errors=LISTED)
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), ExportSerializer)

    @operation("One export, with its progress", answer=ExportSerializer, example=EXPORT, errors=(*READ, 404))
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(ExportSerializer(self.found()).data)

    @operation(
        "Have a table made into a file",
        description="The file is made in the background; its `content` is there when `state` is `done`, for whoever "
        "asked for it alone, until `expires_at`. Beside `jobs` it needs the scope of the table: `score` for "
        "`score-requests` and `usage`, `admin` for `audit-events`.",
        request=ExportAskSerializer,
        request_example={"table": "documents", "format": "parquet", "parameters": EXPORT["parameters"]},
        answer=ExportSerializer,
        example=ASKED,
        status=201,
        errors=(*BODY, 404, 409, 429),
    )
    def create(self, request: Request) -> Response:
        fields = validated(ExportAskSerializer, request)
        export = export_ask(
            principal=self.principal, table=fields["table"], file_format=fields["format"],
            parameters=fields.get("parameters", {}),
        )  # fmt: skip
        place = {"Location": self.reverse_action("detail", kwargs={"pk": export.pk})}
        return Response(ExportSerializer(export).data, status=201, headers=place)

    @operation("Delete an export, or stop it", answer=None, status=204, errors=(*READ, 404))
    def destroy(self, request: Request, pk: str) -> Response:
        export_delete(export=self.found())
        return Response(status=204)

    @extend_schema(
        summary="The file of an export",
        description="The file, once the export is done.",
        responses={
            **{(200, each.content_type.partition(";")[0]): OpenApiTypes.BINARY for each in FORMATS.values()},
            **refusals(*READ, 404, 409),
        },
        examples=[OpenApiExample("Answer", "id,text\n", response_only=True, media_type="text/csv")],
    )
    @action(detail=True, content_negotiation_class=AnyType)
    def content(self, request: Request, pk: str) -> FileResponse:
        export = self.found()
        if export.state != ExportState.DONE:
            message = f"The export is {export.get_state_display()}; its file is there when its state is 'done'."
            raise AssayError("export_not_done", message, status=409)
        content_type = FORMATS[export.file_format].content_type
        return FileResponse(
            export.file.open("rb"), as_attachment=True, filename=export.file_name, content_type=content_type
        )
