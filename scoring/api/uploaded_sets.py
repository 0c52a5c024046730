"""Document sets, query sets, judgements and runs are uploaded, previewed, listed and deleted in the same way."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from assay.errors import AssayError
from scoring.api.openapi import BODY, LISTED, READ, operation, state_field
from scoring.api.resources import ResourceViewSet
from scoring.api.uploads import (
    PREVIEW_PARAMETERS,
    UPLOAD_PARAMETERS,
    UPLOAD_PARSERS,
    PreviewUploadSerializer,
    UploadSerializer,
    refuse_long_body,
    upload_fields,
    upload_request,
)
from scoring.filters import UploadedSetFilter
from scoring.ingest.items import NO_CHECKS, ImportChecks
from scoring.ingest.rows import SHOWN_CHARACTERS, readable
from scoring.services.imports import Preview, set_import, upload_preview
from scoring.services.retention import texts_delete
from scoring.services.sets import set_delete
from scoring.states import SetState


class CountsSerializer(serializers.Serializer[Any]):
    read = serializers.IntegerField()
    kept = serializers.IntegerField()
    bad = serializers.IntegerField(help_text="Left out, duplicates included")
    duplicate = serializers.IntegerField(help_text="Of judgements: said twice, dropped, and not bad")
    empty = serializers.IntegerField(help_text="Kept, but without text: never scored")


class ProblemSerializer(serializers.Serializer[Any]):
    line = serializers.IntegerField()
    message = serializers.CharField()


class UploadedSetSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    state = state_field(SetState)()
    file_name = serializers.CharField()
    file_format = serializers.CharField()
    checksum = serializers.CharField(help_text="SHA-256 of the file")
    counts = CountsSerializer()
    created_at = serializers.DateTimeField()


class UploadedSetDetailSerializer(UploadedSetSerializer):
    mapping = serializers.DictField(help_text="Which column became which field")
    problems = ProblemSerializer(many=True, help_text="The first ones, by line")
    error = serializers.CharField()


class TextSetSerializer(UploadedSetSerializer):
    texts_delete_requested_at = serializers.DateTimeField(
        allow_null=True, help_text="From then on no job can begin over the set"
    )
    texts_deleted_at = serializers.DateTimeField(
        allow_null=True, help_text="Since when its rows have empty texts; ids, scores and rankings stay"
    )


class TextSetDetailSerializer(TextSetSerializer, UploadedSetDetailSerializer):
    pass


class PreviewRowSerializer(serializers.Serializer[Any]):
    line = serializers.IntegerField()
    values = serializers.DictField(help_text=f"By column; texts are cut to {SHOWN_CHARACTERS} characters")
    problem = serializers.CharField(allow_null=True)


class PreviewSerializer(serializers.Serializer[Any]):
    file_format = serializers.CharField()
    columns = serializers.ListField(child=serializers.CharField())
    mapping = serializers.DictField(help_text="As given, completed by guesses")
    mapping_error = serializers.CharField(help_text="Why the mapping cannot be completed; empty when it can")
    rows = PreviewRowSerializer(many=True)
    counts = CountsSerializer()
    problems = ProblemSerializer(many=True)


class UploadedSetViewSet(ResourceViewSet):
    """``kind_name`` is the import's name, ``model`` the table of its sets."""

    required_scope = "jobs"
    kind_name: ClassVar[str]
    parser_classes = UPLOAD_PARSERS
    filterset_class = UploadedSetFilter
    lookup_value_converter = "uuid"
    serializer_class: type[UploadedSetSerializer] = UploadedSetSerializer
    detail_serializer: type[UploadedSetDetailSerializer] = UploadedSetDetailSerializer
    upload_serializer: type[UploadSerializer] = UploadSerializer

    def checks_of(self, fields: dict[str, Any]) -> ImportChecks:
        """What is checked beside the columns, taken out of the upload's fields."""
        return NO_CHECKS

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        refuse_long_body(request)
        super().initial(request, *args, **kwargs)

    def takes_query(self) -> bool:
        return super().takes_query() or self.action in ("create", "preview")  # the fields of a body that is the file

    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset().defer("problems", "mapping", "error"), self.serializer_class)

    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(self.detail_serializer(self.found()).data)

    def create(self, request: Request) -> Response:
        fields = upload_fields(request, self.upload_serializer)
        file = fields.pop("file")
        try:
            with closing(file):
                uploaded, is_new = set_import(
                    principal=self.principal,
                    kind_name=self.kind_name,
                    name=fields.pop("name", file.name),
                    file=file.file,
                    file_name=file.name,
                    checks=self.checks_of(fields),
                    **fields,
                )
        except AssayError as error:
            if existing := error.extra.get("existing"):
                existing["url"] = self.reverse_action("detail", kwargs={"pk": existing["id"]})
            raise
        body = self.detail_serializer(uploaded).data
        place = {"Location": self.reverse_action("detail", kwargs={"pk": uploaded.pk})}
        return Response(body, status=201 if is_new else 200, headers=place)

    def destroy(self, request: Request, pk: str) -> Response:
        set_delete(principal=self.principal, uploaded=self.found())
        return Response(status=204)

    @action(detail=False, methods=["post"])
    def preview(self, request: Request) -> Response:
        fields = upload_fields(request, PreviewUploadSerializer)
        with closing(fields["file"]) as file:
            preview = upload_preview(kind_name=self.kind_name, file=file.file, mapping=fields.get("mapping"))
        return Response(preview_body(preview))


class TextSetViewSet(UploadedSetViewSet):
    """Sets whose rows hold texts."""

    serializer_class = TextSetSerializer
    detail_serializer = TextSetDetailSerializer

    @operation(
        "Delete the texts of a set",
        description="Texts, titles and metadata of its rows go for good, within minutes; ids, scores and rankings "
        "stay, and exports carry empty texts. No job can begin over the set any more. 409 `set_in_use` while a job "
        "over it has not ended.",
        answer=None,
        status=202,
        errors=(*READ, 404, 409),
    )
    @action(detail=True, methods=["delete"])
    def texts(self, request: Request, pk: str) -> Response:
        texts_delete(principal=self.principal, uploaded=self.found())
        return Response(status=202)


def set_operations(
    noun: str,
    *,
    file: str,
    answer: dict[str, Any],
    preview: dict[str, Any],
    rule: str = "",
    serializer: type[UploadedSetSerializer] = UploadedSetSerializer,
    detail: type[UploadedSetDetailSerializer] = UploadedSetDetailSerializer,
    upload: type[UploadSerializer] = UploadSerializer,
    parameters: Sequence[OpenApiParameter] = (),
) -> Callable[[Any], Any]:
    """Describe the five operations of one kind of set: its plural, a file, one set in full, what its rows must obey."""
    one = noun.removesuffix("s")
    listed = serializer().fields
    short = {name: value for name, value in answer.items() if name in listed}
    operations = extend_schema_view(
        list=operation(f"List the team's {noun}", answer=serializer(many=True), example=short, errors=LISTED),
        retrieve=operation(f"One of the {noun}, with its problems", answer=detail, example=answer, errors=(*READ, 404)),
        destroy=operation(f"Delete a {one} that no job refers to", answer=None, status=204, errors=(*READ, 404, 409)),
        create=operation(
            f"Upload a file as a {one}",
            description="Multipart, or the file as the body with the other fields as query parameters. Stored whole "
            "or not at all. 409 `already_uploaded` names the set that was made from the same bytes, in `existing`; "
            f"422 `bad_rows` lists the `problems` by line. {rule}".rstrip(),
            request=upload_request(upload),
            request_example={"file": file, "name": answer["name"], "mapping": json.dumps(answer["mapping"])},
            media_type="multipart/form-data",
            answer=detail,
            example=answer,
            status=201,
            other_answers={200: detail},
            errors=(*BODY, 404, 409, 507) if parameters else (*BODY, 409, 507),
            parameters=[*UPLOAD_PARAMETERS, *parameters],
        ),
        preview=operation(
            f"See what a file would become as a {one}",
            description="Reads the whole file and stores nothing: columns, the first rows, problems wherever they are.",
            request=upload_request(PreviewUploadSerializer),
            request_example={"file": file},
            media_type="multipart/form-data",
            answer=PreviewSerializer,
            example=preview,
            errors=(*BODY, 507),
            parameters=PREVIEW_PARAMETERS,
        ),
    )
    return lambda view: extend_schema(tags=[noun])(operations(view))


def preview_body(preview: Preview) -> dict[str, Any]:
    rows = [{"line": row.line, "values": row.values, "problem": row.problem} for row in preview.rows]
    return {
        "file_format": preview.file_format,
        "columns": readable(preview.columns),
        "mapping": readable(preview.mapping),
        "mapping_error": preview.mapping_error,
        "rows": readable(rows),
        "counts": preview.report.counts(),
        "problems": [problem.to_json() for problem in preview.report.problems],
    }
