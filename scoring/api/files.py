"""``/v1/files``: files of request batches, in OpenAI's shape."""

from __future__ import annotations

from typing import Any, Final

from django.http import FileResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from assay.api.principal import principal_of
from assay.api.serializers import StrictSerializer
from scoring.api.openai_lists import ListQuerySerializer, list_answer, listed
from scoring.api.openapi import BODY, READ, ErrorSerializer, operation
from scoring.api.resources import query_of
from scoring.api.synchronous import validated
from scoring.api.uploads import refuse_long_body
from scoring.models import BatchFile
from scoring.models.batch_file import FilePurpose
from scoring.services.batch_files import batch_file_delete, batch_file_of, batch_file_store

FILE: Final[dict[str, Any]] = {
    "id": "file-01935f1e7c7a7e559d0e2f6f3b1c8a10",
    "object": "file",
    "bytes": 1204,
    "created_at": 1764460800,
    "filename": "requests.jsonl",
    "purpose": "batch",
    "status": "processed",
}


REQUEST_LINE: Final = (
    '{"custom_id": "1", "method": "POST", "url": "/v1/rerank", "body": {"query": "bees", "documents": ["Honey."]}}\n'
)


class FileSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="public_id")
    object = serializers.SerializerMethodField()
    bytes = serializers.IntegerField(source="size")
    created_at = serializers.SerializerMethodField()
    filename = serializers.CharField(source="file_name")
    purpose = serializers.ChoiceField(FilePurpose.choices)
    status = serializers.SerializerMethodField()

    def get_object(self, row: BatchFile) -> str:
        return "file"

    def get_created_at(self, row: BatchFile) -> int:
        return int(row.created_at.timestamp())

    def get_status(self, row: BatchFile) -> str:
        return "processed"


class NewFileSerializer(StrictSerializer):
    file = serializers.FileField(
        allow_empty_file=True,  # the batch over it says so
        help_text="JSON lines: custom_id, method, url and body of each request",
    )
    purpose = serializers.ChoiceField([FilePurpose.BATCH.value])


class FileListQuerySerializer(ListQuerySerializer):
    purpose = serializers.ChoiceField(FilePurpose.choices, required=False)


class DeletedSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    object = serializers.CharField()
    deleted = serializers.BooleanField()


class AnyType(DefaultContentNegotiation):
    """The content is what it is, whatever the client would rather accept."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


@extend_schema(tags=["batches"])
class FileListView(APIView):
    required_scope = "score"
    parser_classes = (MultiPartParser,)

    @operation(
        "List the team's files of request batches, the newest first",
        answer=list_answer("File", FileSerializer),
        example={"object": "list", "data": [FILE], "first_id": FILE["id"], "last_id": FILE["id"], "has_more": False},
        errors=(*READ, 404, 422),
        parameters=(FileListQuerySerializer,),
        operation_id="v1_files_list",
    )
    def get(self, request: Request) -> Response:
        query = query_of(request, FileListQuerySerializer)
        rows = BatchFile.objects.for_team(principal_of(request).team)
        if "purpose" in query:
            rows = rows.filter(purpose=query["purpose"])
        return Response(listed(rows, query, FileSerializer, prefix="file-"))

    @operation(
        "Upload a file of requests",
        description="JSON lines; each line is one request: `custom_id` (unique), `method` (POST), `url`, `body`.",
        request={"multipart/form-data": NewFileSerializer},
        request_example={"purpose": "batch", "file": REQUEST_LINE},
        media_type="multipart/form-data",
        answer=FileSerializer,
        example=FILE,
        errors=BODY,
        operation_id="v1_files_create",
    )
    def post(self, request: Request) -> Response:
        refuse_long_body(request)
        fields = validated(NewFileSerializer, request)
        row = batch_file_store(principal=principal_of(request), file=fields["file"])
        return Response(FileSerializer(row).data)


@extend_schema(tags=["batches"])
class FileView(APIView):
    required_scope = "score"

    @operation("One file", answer=FileSerializer, example=FILE, errors=(*READ, 404), operation_id="v1_files_retrieve")
    def get(self, request: Request, file_id: str) -> Response:
        return Response(FileSerializer(batch_file_of(principal_of(request).team, file_id)).data)

    @operation(
        "Delete a file",
        answer=DeletedSerializer,
        example={"id": FILE["id"], "object": "file", "deleted": True},
        errors=(*READ, 404, 409),
        operation_id="v1_files_destroy",
    )
    def delete(self, request: Request, file_id: str) -> Response:
        row = batch_file_of(principal_of(request).team, file_id)
        public_id = row.public_id
        batch_file_delete(file=row)
        return Response({"id": public_id, "object": "file", "deleted": True})


@extend_schema(tags=["batches"])
class FileContentView(APIView):
    required_scope = "score"
    content_negotiation_class = AnyType

    @extend_schema(
        operation_id="v1_files_content",
        summary="The bytes of a file",
        responses={
            (200, "application/jsonl"): OpenApiTypes.BINARY,
            **{code: OpenApiResponse(ErrorSerializer) for code in (*READ, 404)},
        },
        examples=[
            OpenApiExample("Answer", REQUEST_LINE, response_only=True, media_type="application/jsonl"),
        ],
    )
    def get(self, request: Request, file_id: str) -> FileResponse:
        row = batch_file_of(principal_of(request).team, file_id)
        return FileResponse(
            row.file.open("rb"), as_attachment=True, filename=row.file_name, content_type="application/jsonl"
        )
