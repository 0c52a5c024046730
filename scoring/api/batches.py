"""``/v1/batches``: requests from a file, in OpenAI's shape and with its life cycle."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from assay.api.principal import principal_of
from assay.api.serializers import StrictSerializer, TextField
from scoring.api.openai_lists import ListQuerySerializer, list_answer, listed
from scoring.api.openapi import BODY, READ, operation, state_field
from scoring.api.resources import query_of
from scoring.api.synchronous import validated
from scoring.models import RequestBatch
from scoring.services.batch_files import batch_file_of
from scoring.services.request_batches import ENDPOINTS, WINDOW, batch_cancel, batch_counts, batch_create, batch_of
from scoring.states import BatchState

MOMENTS: Final = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
BATCH: Final[dict[str, Any]] = {
    "id": "batch_01935f1e7c7a7e559d0e2f6f3b1c8a11",
    "object": "batch",
    "endpoint": "/v1/rerank",
    "errors": None,
    "input_file_id": "file-01935f1e7c7a7e559d0e2f6f3b1c8a10",
    "completion_window": "24h",
    "status": "in_progress",
    "output_file_id": None,
    "error_file_id": None,
    "created_at": 1764460800,
    "expires_at": 1764547200,
    **dict.fromkeys((f"{name}_at" for name in MOMENTS), None),
    "in_progress_at": 1764460802,
    "request_counts": {"total": 100, "completed": 40, "failed": 1},
    "metadata": {"run": "nightly"},
}


PAIRS: Final = 16  # of the metadata, whose names and values have at most so many characters
NAME: Final = 64
VALUE: Final = 512


class MetadataField(serializers.DictField):
    """OpenAI's bounds."""

    child = TextField(max_length=VALUE)

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict) and (len(data) > PAIRS or any(len(str(key)) > NAME for key in data)):
            longest = max(len(str(key)) for key in data)
            given = f"{len(data)} members, of which the longest name has {longest} characters"
            message = f"'metadata' has {given}; give at most {PAIRS} with names of at most {NAME} characters."
            raise serializers.ValidationError(message)
        return super().to_internal_value(data)


class NewBatchSerializer(StrictSerializer):
    input_file_id = TextField()
    endpoint = serializers.ChoiceField(list(ENDPOINTS), help_text="The url of every line")
    completion_window = serializers.ChoiceField([WINDOW])
    metadata = MetadataField(required=False, allow_null=True)


class BatchProblemSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()
    message = serializers.CharField()
    param = serializers.CharField(allow_null=True)
    line = serializers.IntegerField(allow_null=True)


class BatchProblemsSerializer(serializers.Serializer[Any]):
    object = serializers.CharField()
    data = BatchProblemSerializer(many=True)  # type: ignore[assignment]


class RequestCountsSerializer(serializers.Serializer[Any]):
    total = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()


class BatchSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    object = serializers.CharField()
    endpoint = serializers.CharField()
    errors = BatchProblemsSerializer(allow_null=True)  # type: ignore[assignment]
    input_file_id = serializers.CharField()
    completion_window = serializers.CharField()
    status = state_field(BatchState)()
    output_file_id = serializers.CharField(allow_null=True, help_text="Lines that were answered")
    error_file_id = serializers.CharField(allow_null=True, help_text="Lines that were refused, or not answered")
    created_at = serializers.IntegerField()
    expires_at = serializers.IntegerField()
    in_progress_at = serializers.IntegerField(allow_null=True)
    finalizing_at = serializers.IntegerField(allow_null=True)
    completed_at = serializers.IntegerField(allow_null=True)
    failed_at = serializers.IntegerField(allow_null=True)
    expired_at = serializers.IntegerField(allow_null=True)
    cancelling_at = serializers.IntegerField(allow_null=True)
    cancelled_at = serializers.IntegerField(allow_null=True)
    request_counts = RequestCountsSerializer()
    metadata = serializers.DictField(child=serializers.CharField(), allow_null=True)

    def to_representation(self, batch: RequestBatch) -> dict[str, Any]:
        return {
            "id": batch.public_id,
            "object": "batch",
            "endpoint": batch.endpoint,
            "errors": {"object": "list", "data": batch.problems} if batch.problems else None,
            "input_file_id": f"file-{batch.input_id.hex}",
            "completion_window": batch.completion_window,
            "status": batch.state,
            "output_file_id": f"file-{batch.output_id.hex}" if batch.output_id else None,
            "error_file_id": f"file-{batch.error_id.hex}" if batch.error_id else None,
            "created_at": int(batch.created_at.timestamp()),
            "expires_at": int(batch.expires_at.timestamp()),
            **{f"{name}_at": batch.moments.get(name) for name in MOMENTS},
            "request_counts": batch_counts(batch),
            "metadata": batch.metadata,
        }


@extend_schema(tags=["batches"])
class BatchListView(APIView):
    required_scope = "score"

    @operation(
        "List the team's request batches, the newest first",
        answer=list_answer("Batch", BatchSerializer),
        example={"object": "list", "data": [BATCH], "first_id": BATCH["id"], "last_id": BATCH["id"], "has_more": False},
        errors=(*READ, 404, 422),
        parameters=(ListQuerySerializer,),
        operation_id="v1_batches_list",
    )
    def get(self, request: Request) -> Response:
        rows = RequestBatch.objects.for_team(principal_of(request).team)
        return Response(listed(rows, query_of(request, ListQuerySerializer), BatchSerializer, prefix="batch_"))

    @operation(
        "Answer the requests of a file",
        description="Each line is answered as its endpoint would answer it at once, behind interactive requests. "
        "A line that is refused does not disturb the others: it stands in the error file.",
        request=NewBatchSerializer,
        request_example={"input_file_id": BATCH["input_file_id"], "endpoint": "/v1/rerank", "completion_window": "24h"},
        answer=BatchSerializer,
        example={**BATCH, "status": "validating", "in_progress_at": None},
        errors=(*BODY, 404),
        operation_id="v1_batches_create",
    )
    def post(self, request: Request) -> Response:
        fields, principal = validated(NewBatchSerializer, request), principal_of(request)
        file = batch_file_of(principal.team, fields["input_file_id"], param="input_file_id")
        batch = batch_create(
            principal=principal, endpoint=fields["endpoint"], input_file=file, metadata=fields.get("metadata")
        )
        return Response(BatchSerializer(batch).data)


@extend_schema(tags=["batches"])
class BatchView(APIView):
    required_scope = "score"

    @operation(
        "One request batch",
        answer=BatchSerializer,
        example=BATCH,
        errors=(*READ, 404),
        operation_id="v1_batches_retrieve",
    )
    def get(self, request: Request, batch_id: str) -> Response:
        return Response(BatchSerializer(batch_of(principal_of(request).team, batch_id)).data)


@extend_schema(tags=["batches"])
class BatchCancelView(APIView):
    required_scope = "score"

    @operation(
        "Cancel a request batch",
        description="What is answered already stands in the output file.",
        answer=BatchSerializer,
        example={**BATCH, "status": "cancelling", "cancelling_at": 1764460900},
        errors=(*READ, 404, 409),
        operation_id="v1_batches_cancel",
    )
    def post(self, request: Request, batch_id: str) -> Response:
        principal = principal_of(request)
        batch = batch_of(principal.team, batch_id)
        batch_cancel(batch=batch, principal=principal)
        return Response(BatchSerializer(batch).data)
