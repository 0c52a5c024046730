"""Files that come in: as multipart, or as the body itself with query parameters. They go to disk as they arrive."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import IO, Any, Final

from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.core.files.uploadedfile import UploadedFile
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser, MultiPartParser
from rest_framework.request import Request

from assay.api.parsers import parse_json
from assay.api.serializers import FlagField, StrictSerializer, TextField
from assay.errors import AssayError
from assay.uploads import UnnamedUploadedFile

BLOCK: Final = 1 << 20
FORM_BYTES: Final = 1 << 16  # what a multipart body may hold beside the file


class FileBodyParser(BaseParser):
    """The body is the file. Subclasses say of which media type, and what to call it when no name is given."""

    suffix: str

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, UploadedFile]:
        file = UnnamedUploadedFile(f"upload.{self.suffix}", self.media_type)
        size = 0
        while block := stream.read(BLOCK):
            size += len(block)
            refuse_larger(size)
            file.receive(block)
        file.complete(size)
        return {"file": file}


class CsvParser(FileBodyParser):
    media_type = "text/csv"
    suffix = "csv"


class TsvParser(FileBodyParser):
    media_type = "text/tab-separated-values"
    suffix = "tsv"


class NdjsonParser(FileBodyParser):
    media_type = "application/x-ndjson"
    suffix = "jsonl"


class JsonLinesParser(NdjsonParser):
    media_type = "application/jsonl"


class PlainTextParser(FileBodyParser):
    """TREC judgements and runs."""

    media_type = "text/plain"
    suffix = "txt"


FILE_PARSERS: Final[tuple[type[FileBodyParser], ...]] = (
    CsvParser, TsvParser, NdjsonParser, JsonLinesParser, PlainTextParser,
)  # fmt: skip
UPLOAD_PARSERS: Final[tuple[type[BaseParser], ...]] = (MultiPartParser, *FILE_PARSERS)


@extend_schema_field({"type": "string", "contentMediaType": "application/json"})
class MappingField(TextField):
    """A JSON object in a form field or a query parameter."""

    def to_internal_value(self, data: Any) -> Any:
        try:
            mapping = parse_json(super().to_internal_value(data).encode("utf-8", "surrogatepass"))
        except APIException as error:
            raise serializers.ValidationError(f"The mapping cannot be read. {error.detail}") from error
        if not isinstance(mapping, dict):
            raise serializers.ValidationError('The mapping must be a JSON object such as {"text": "body"}.')
        return mapping


BODY_TYPES: Final = [parser.media_type for parser in FILE_PARSERS]
NO_FILE: Final = (
    "The file is missing. Send it as the part 'file' of a multipart/form-data body, with a file name, or as the body "
    f"itself with the Content-Type {', '.join(BODY_TYPES[:-1])} or {BODY_TYPES[-1]}."
)


class PreviewUploadSerializer(StrictSerializer):
    file = serializers.FileField(
        allow_empty_file=True,
        help_text="CSV, TSV, JSON lines, Parquet, plain text or TREC in UTF-8",
        error_messages={"required": NO_FILE, "null": NO_FILE, "invalid": NO_FILE},
    )
    mapping = MappingField(
        required=False, help_text='JSON: field to column, such as {"text": "body"}; what is left out is guessed'
    )


class UploadSerializer(PreviewUploadSerializer):
    name = TextField(required=False, help_text="Absent: the file's name")
    keep_good_rows = FlagField(default=False, help_text="Leave bad rows out instead of refusing the file")
    use_existing = FlagField(default=False, help_text="If the same file is there already, answer with its set")


UPLOAD_PARAMETERS: Final = (
    OpenApiParameter("name", str, description="Of a body that is the file itself; likewise the others"),
    OpenApiParameter("mapping", str),
    OpenApiParameter("keep_good_rows", bool),
    OpenApiParameter("use_existing", bool),
)
PREVIEW_PARAMETERS: Final = (OpenApiParameter("mapping", str, description="Of a body that is the file itself"),)


def upload_request(form: type[StrictSerializer]) -> dict[str, Any]:
    """The request of an upload, for the schema."""
    bodies = dict.fromkeys(BODY_TYPES, OpenApiTypes.BINARY)
    return {"multipart/form-data": form, **bodies}


def upload_fields(request: Request, form: type[StrictSerializer]) -> dict[str, Any]:
    """What was uploaded, checked. Raises 413 for a file over UPLOAD_MAX_BYTES, 507 for a full disk, 422 for fields."""
    try:
        body: Any = request.data or _empty_file(request)  # a form, or what FileBodyParser gives
        given = request.query_params.copy()
        given.update(body)
    except SuspiciousOperation as error:  # Django's bounds on form fields
        raise ParseError(f"The form cannot be read: {error}") from error
    upload = form(data=given)
    upload.is_valid(raise_exception=True)
    fields = upload.validated_data
    refuse_larger(fields["file"].size)
    fields["file"].check()
    return fields


def _empty_file(request: Request) -> dict[str, UploadedFile]:
    """A body that is the file and has no bytes: DRF asks no parser then, and would call the file missing."""
    media_type = request.content_type.partition(";")[0].strip().lower()
    parsers = {parser.media_type: parser for parser in FILE_PARSERS}
    return parsers[media_type]().parse(io.BytesIO()) if media_type in parsers else {}


def refuse_larger(size: int, *, beside: int = 0) -> None:
    if size > settings.UPLOAD_MAX_BYTES + beside:
        raise AssayError(
            "file_too_large",
            f"The file has more than {settings.UPLOAD_MAX_BYTES:,} bytes, the limit of this server. Split it.",
            status=413,
            param="file",
        )


def refuse_long_body(request: Request) -> None:
    """Before a byte is read: a body that says it is too long is not worth receiving."""
    length = request.META.get("CONTENT_LENGTH") or "0"
    if length.isdecimal():
        refuse_larger(int(length), beside=FORM_BYTES)
