"""``/api/v1/workers``: which processes score, and what they have loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.db.models import Prefetch, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.serializers import MomentField, StrictSerializer, TextField
from scoring.api.models import DocumentsKeptSerializer, MemorySerializer
from scoring.api.openapi import BODY, LISTED, READ, operation, state_field
from scoring.api.resources import ResourceViewSet
from scoring.api.synchronous import validated
from scoring.filters import WorkerFilter
from scoring.models import Placement, Worker
from scoring.services.holds import worker_drain, worker_maintain, worker_release, worker_resume
from scoring.states import PlacementState, WorkerState


class LoadedSerializer(serializers.Serializer[Any]):
    model = serializers.CharField(source="model.name")
    state = state_field(PlacementState)()
    generation = serializers.IntegerField()
    maxsim_backend = serializers.CharField()
    cause = serializers.CharField()
    memory = MemorySerializer(source="*")
    documents_kept = DocumentsKeptSerializer(allow_null=True)


class HoldWriteSerializer(StrictSerializer):
    reason = TextField(help_text="For whoever looks at the worker next")


class MaintenanceWriteSerializer(HoldWriteSerializer):
    until = MomentField(default=None, allow_null=True, help_text="When it ends by itself; null: never")


class WorkerSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    host = serializers.CharField()
    device = serializers.CharField()
    device_class = serializers.CharField(help_text="cpu, or the name of the GPU")
    state = state_field(WorkerState)()
    hold = serializers.CharField(help_text="What keeps it from work: drain, maintenance or quarantine; empty: nothing")
    hold_reason = serializers.CharField()
    hold_until = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField()
    heartbeat_at = serializers.DateTimeField()
    progress = serializers.IntegerField(help_text="Micro-batches finished since the start")
    memory_bytes = serializers.IntegerField(help_text="Resident")
    memory_budget_bytes = serializers.IntegerField(help_text="What its models may claim together")
    memory_free_bytes = serializers.IntegerField(help_text="Left on the device at the last heartbeat, less the reserve")
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
    "device_class": "cpu",
    "state": "ready",
    "hold": "",
    "hold_reason": "",
    "hold_until": None,
    "started_at": "2026-11-29T20:00:00Z",
    "heartbeat_at": "2026-11-29T20:05:00Z",
    "progress": 412,
    "memory_bytes": 912_000_000,
    "memory_budget_bytes": 16_000_000_000,
    "memory_free_bytes": 20_000_000_000,
    "in_hand": [],
    "statistics": {"engine": {"micro_batches": 412, "tokens": 390_144}},
    "placements": [
        {
            "model": "minilm",
            "state": "ready",
            "generation": 1,
            "maxsim_backend": "",
            "cause": "",
            "memory": {
                "claimed_bytes": 190_000_000,
                "claim_source": "measured",
                "measured_bytes": 190_000_000,
                "estimated_bytes": 162_000_000,
            },
            "documents_kept": {"bytes": 61_440_000, "device_bytes": 0, "budget_bytes": 64_000_000},
        }
    ],
}
HOLD: Final = {"reason": "new driver"}
STEER: Final = (*BODY, 404, 409)


@extend_schema(tags=["workers"])
class WorkerViewSet(ResourceViewSet):
    required_scope = "models:read"
    write_scope = "admin"
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

    @operation(
        "Have a worker finish what it has begun and take nothing new",
        request=HoldWriteSerializer, request_example=HOLD, answer=WorkerSerializer,
        example={**WORKER, "state": "draining", "hold": "drain", "hold_reason": "new driver"}, errors=STEER,
    )  # fmt: skip
    @action(detail=True, methods=["post"])
    def drain(self, request: Request, pk: str) -> Response:
        return self._steered(worker_drain, HoldWriteSerializer)

    @operation(
        "Take a worker into maintenance",
        description="Like draining, but its silence is not reported as a loss and its pinned models stay its own.",
        request=MaintenanceWriteSerializer, request_example=HOLD, answer=WorkerSerializer,
        example={**WORKER, "state": "maintenance", "hold": "maintenance", "hold_reason": "new driver"}, errors=STEER,
    )  # fmt: skip
    @action(detail=True, methods=["post"])
    def maintenance(self, request: Request, pk: str) -> Response:
        return self._steered(worker_maintain, MaintenanceWriteSerializer)

    @operation(
        "End a drain or a maintenance",
        request=HoldWriteSerializer, request_example=HOLD, answer=WorkerSerializer, example=WORKER, errors=STEER,
    )  # fmt: skip
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        return self._steered(worker_resume, HoldWriteSerializer)

    @operation(
        "Release a worker from quarantine",
        request=HoldWriteSerializer, request_example=HOLD, answer=WorkerSerializer, example=WORKER, errors=STEER,
    )  # fmt: skip
    @action(detail=True, methods=["post"])
    def release(self, request: Request, pk: str) -> Response:
        return self._steered(worker_release, HoldWriteSerializer)

    def _steered(self, service: Callable[..., Worker], serializer: type[StrictSerializer]) -> Response:
        service(principal=self.principal, worker=self.found(), **validated(serializer, self.request))
        return Response(WorkerSerializer(self.found()).data)
