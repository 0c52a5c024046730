"""``/api/v1/encodings``: document sets that workers encode ahead."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.serializers import StrictSerializer, StrictUUIDField, TextField
from scoring.api.openapi import BODY, LISTED, READ, operation, state_field
from scoring.api.resources import ResourceViewSet, query_of, team_set
from scoring.api.synchronous import validated
from scoring.filters import EncodingFilter
from scoring.models import DocumentSet, ScoringModel, SetEncoding
from scoring.models.scoring_model import ENCODERS
from scoring.selectors.encodings import encoding_estimate, encoding_row, encodings_of
from scoring.selectors.models import model_for_request
from scoring.services.encodings import encoding_ask, encoding_cancel, encoding_delete
from scoring.states import EncodingState


class EncodingAskSerializer(StrictSerializer):
    document_set = StrictUUIDField()
    model = TextField(max_length=64, help_text="A bi-encoder, or a late-interaction, sparse or hybrid model")


class EncodingSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    document_set = serializers.UUIDField(source="document_set_id")
    model = serializers.CharField(source="model.name")
    worker = serializers.CharField(source="worker.name", allow_null=True, default=None)
    state = state_field(EncodingState)()
    documents_total = serializers.IntegerField()
    documents_done = serializers.IntegerField()
    tokens = serializers.IntegerField()
    size = serializers.IntegerField(help_text="Bytes of the encodings so far")
    on_disk = serializers.BooleanField(help_text="It survives a restart of the worker")
    lost = serializers.SerializerMethodField(help_text="It was in the memory of a process that ended")
    outdated = serializers.SerializerMethodField(help_text="The model has changed since")
    error = serializers.CharField(help_text="Why it failed")
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)

    def get_lost(self, encoding: SetEncoding) -> bool:
        return encoding_row(encoding).lost

    def get_outdated(self, encoding: SetEncoding) -> bool:
        return encoding_row(encoding).outdated


class EncodingsAskedSerializer(serializers.Serializer[Any]):
    encodings = EncodingSerializer(many=True, help_text="One for each worker that was asked")


class EncodingEstimateSerializer(serializers.Serializer[Any]):
    documents = serializers.IntegerField()
    tokens = serializers.IntegerField(allow_null=True, help_text="About, from the words of the texts")
    size = serializers.IntegerField(allow_null=True, help_text="Bytes, about; null: nothing was measured yet")
    seconds = serializers.FloatField(allow_null=True, help_text="Of computing, by the measured pace; null: none yet")
    kept_bytes = serializers.IntegerField(help_text="What a worker keeps of all sets; the least recently used go first")
    on_disk = serializers.BooleanField(help_text="Whether workers keep encodings over a restart")
    too_large = serializers.BooleanField(help_text="It takes more than a worker keeps")


ENCODING: Final[dict[str, Any]] = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a31",
    "document_set": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a11",
    "model": "late",
    "worker": "gpu-1",
    "state": "running",
    "documents_total": 100000,
    "documents_done": 25600,
    "tokens": 3801112,
    "size": 973084672,
    "on_disk": True,
    "lost": False,
    "outdated": False,
    "error": "",
    "created_at": "2026-11-29T20:00:00Z",
    "finished_at": None,
}
ESTIMATE: Final[dict[str, Any]] = {
    "documents": 100000,
    "tokens": 14848000,
    "size": 3801088000,
    "seconds": 412.0,
    "kept_bytes": 34359738368,
    "on_disk": True,
    "too_large": False,
}
ASKED: Final = {
    **ENCODING, "state": "waiting", "documents_done": 0, "tokens": 0, "size": 0, "on_disk": False,
}  # fmt: skip
ASK: Final = {"document_set": ENCODING["document_set"], "model": "late"}


@extend_schema(tags=["document sets"])
class EncodingViewSet(ResourceViewSet):
    required_scope = "jobs"
    model = SetEncoding
    filterset_class = EncodingFilter
    lookup_value_converter = "uuid"
    serializer_class = EncodingSerializer

    def rows(self) -> QuerySet[SetEncoding]:
        return encodings_of(self.principal)

    @operation(
        "List document sets that are encoded ahead, or were",
        answer=EncodingSerializer(many=True),
        example=ENCODING,
        errors=LISTED,
    )
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), EncodingSerializer)

    @operation("One encoding, with its progress", answer=EncodingSerializer, example=ENCODING, errors=(*READ, 404))
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(EncodingSerializer(self.found()).data)

    @operation(
        "Have a document set encoded ahead",
        description="By every worker that holds the model ready and has not encoded the set yet, else by the first "
        "that loads it: a row for each. Jobs and requests over these documents then read their queries only. 409 "
        "`already_encoded` when nothing is left to do.",
        request=EncodingAskSerializer,
        request_example=ASK,
        answer=EncodingsAskedSerializer,
        example={"encodings": [ASKED]},
        status=201,
        errors=(*BODY, 404, 409, 429),
    )
    def create(self, request: Request) -> Response:
        document_set, model = self._asked(validated(EncodingAskSerializer, request))
        made = encoding_ask(principal=self.principal, document_set=document_set, model=model)
        return Response(EncodingsAskedSerializer({"encodings": made}).data, status=201)

    @operation(
        "What encoding a document set ahead would take",
        answer=EncodingEstimateSerializer,
        example=ESTIMATE,
        errors=(*READ, 404, 409),
        parameters=[EncodingAskSerializer],
    )
    @action(detail=False)
    def estimate(self, request: Request) -> Response:
        document_set, model = self._asked(query_of(request, EncodingAskSerializer))
        return Response(EncodingEstimateSerializer(encoding_estimate(document_set, model)).data)

    def _asked(self, fields: dict[str, Any]) -> tuple[DocumentSet, ScoringModel]:
        found = team_set(self.principal, DocumentSet, fields["document_set"], param="document_set", noun="document set")
        return found, model_for_request(principal=self.principal, name=fields["model"], kinds=ENCODERS)

    @operation(
        "Stop an encoding; what is encoded by then stays",
        request=None,
        answer=EncodingSerializer,
        example={**ENCODING, "state": "cancelled", "finished_at": "2026-11-29T20:01:00Z"},
        errors=(*READ, 404, 409),
    )
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        encoding = self.found()
        encoding_cancel(principal=self.principal, encoding=encoding)
        return Response(EncodingSerializer(self.found()).data)

    @operation(
        "Delete what a worker keeps of an encoded set",
        description="The worker lets go of it within seconds; then the row is gone. 409 `still_running` until it is "
        "cancelled or has ended.",
        answer=None,
        status=202,
        errors=(*READ, 404, 409),
    )
    def destroy(self, request: Request, pk: str) -> Response:
        encoding_delete(principal=self.principal, encoding=self.found())
        return Response(status=202)
