"""``/api/v1/workers``: which processes score, and what they have loaded."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Prefetch, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from scoring.api.openapi import LISTED, READ, operation, state_field
from scoring.api.resources import ResourceViewSet
from scoring.filters import WorkerFilter
from scoring.models import Placement, Worker
from scoring.states import PlacementState, WorkerState


class LoadedSerializer(serializers.Serializer[Any]):
    model = serializers.CharField(source="model.name")
    state = state_field(PlacementState)()
    generation = serializers.IntegerField()
    maxsim_backend = serializers.CharField()
    cause = serializers.CharField()


class WorkerSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    host = serializers.CharField()
    device = serializers.CharField()
    state = state_field(WorkerState)()
    started_at = serializers.DateTimeField()
    heartbeat_at = serializers.DateTimeField()
    progress = serializers.IntegerField(help_text="Micro-batches finished since the start")
    memory_bytes = serializers.IntegerField()
    in_hand = serializers.ListField(child=serializers.CharField(), help_text="Chunks being worked on")
    statistics = serializers.DictField(
        help_text="At the last heartbeat; `problem` says why the worker cannot do what it was started for, if so"
    )
    placements = LoadedSerializer(many=True)


WORKER: Final[dict[str, Any]] = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a14",
    "name": "worker-1",
    "host": "gpu-1.example.org",
    "device": "cpu",
    "state": "ready",
    "started_at": "2026-11-29T20:00:00Z",
    "heartbeat_at": "2026-11-29T20:05:00Z",
    "progress": 412,
    "memory_bytes": 912_000_000,
    "in_hand": [],
    "statistics": {"micro_batches": 412},
    "placements": [{"model": "minilm", "state": "ready", "generation": 1, "maxsim_backend": "", "cause": ""}],
}


@extend_schema(tags=["workers"])
class WorkerViewSet(ResourceViewSet):
    required_scope = "models:read"
    model = Worker
    filterset_class = WorkerFilter
    lookup_value_converter = "uuid"
    serializer_class = WorkerSerializer

    def rows(self) -> QuerySet[Worker]:
        return Worker.objects.prefetch_related(Prefetch("placements", Placement.objects.select_related("model")))

    @operation("List the workers", answer=WorkerSerializer(many=True), example=WORKER, errors=LISTED)
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), WorkerSerializer)

    @operation("One worker", answer=WorkerSerializer, example=WORKER, errors=(*READ, 404))
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(WorkerSerializer(self.found()).data)
