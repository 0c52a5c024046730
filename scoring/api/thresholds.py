"""``/api/v1/jobs/{id}/thresholds``: what cut-offs for a model's scores would do; ``/api/v1/threshold-advice``: those
that a team chose, with their evidence. Nothing applies them."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from typing import Any, ClassVar, Final

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.principal import principal_of
from assay.api.serializers import (
    StrictBooleanField,
    StrictIntegerField,
    StrictNumberField,
    StrictSerializer,
    StrictUUIDField,
    TextField,
)
from assay.errors import AssayError
from scoring.api.explanation import asked_by
from scoring.api.openapi import BODY, LISTED, READ, SCORED, operation
from scoring.api.resources import ResourceViewSet, query_of, team_set
from scoring.api.synchronous import HEADERS, ScoringView, validated
from scoring.filters import ThresholdAdviceFilter
from scoring.models import JudgementSet, ThresholdAdvice
from scoring.selectors.jobs import job_stage, jobs_of
from scoring.selectors.thresholds import advice_of
from scoring.services.stage_plan import MAX_STAGES
from scoring.services.thresholds import (
    LONGEST_NOTE,
    ThresholdReport,
    advice_changes,
    advice_delete,
    advice_save,
    thresholds_measure,
)

MOST_GRADE: Final = 2**15 - 1


class ThresholdsQuerySerializer(StrictSerializer):
    judgement_set = serializers.UUIDField()
    stage = serializers.IntegerField(
        required=False, min_value=0, max_value=MAX_STAGES - 1, help_text="Absent: the last one"
    )
    relevant_from = serializers.IntegerField(
        required=False, min_value=1, max_value=MOST_GRADE, help_text="Absent: the grade that the judgement set names"
    )
    per_query_token = serializers.BooleanField(
        default=False, help_text="MaxSim divided by the query's token vectors, which a worker is asked for"
    )
    score = serializers.FloatField(required=False, help_text="Measure this cut-off, instead of all")


class AdviceCreateSerializer(StrictSerializer):
    job = StrictUUIDField()
    stage = StrictIntegerField(
        required=False, allow_null=True, min_value=0, max_value=MAX_STAGES - 1, help_text="Absent: the last one"
    )
    judgement_set = StrictUUIDField()
    relevant_from = StrictIntegerField(
        required=False, min_value=1, max_value=MOST_GRADE, help_text="Absent: the grade that the judgement set names"
    )
    per_query_token = StrictBooleanField(default=False, help_text="The score is MaxSim divided by the query's tokens")
    score = StrictNumberField(help_text="A document with this score or a higher one is taken for relevant")
    note = TextField(default="", max_length=LONGEST_NOTE)


class EstimateSerializer(serializers.Serializer[Any]):
    value = serializers.FloatField()
    low = serializers.FloatField(help_text="Of the 95 % interval")
    high = serializers.FloatField()


class CutOffSerializer(serializers.Serializer[Any]):
    score = serializers.FloatField()
    above = serializers.IntegerField(help_text="Judged pairs with this score or a higher one")
    found = serializers.IntegerField(help_text="Of these, the relevant ones")
    precision = EstimateSerializer(allow_null=True, help_text="null: no judged pair is as high")
    recall = EstimateSerializer()
    f1 = EstimateSerializer()


class ThresholdsSerializer(serializers.Serializer[Any]):
    model = serializers.CharField()
    scale = serializers.CharField()
    relevant_from = serializers.IntegerField()
    per_query_token = serializers.BooleanField()
    queries = serializers.IntegerField(help_text="With a judged pair")
    pairs = serializers.IntegerField(help_text="Judged ones that the stage scored")
    relevant = serializers.IntegerField(help_text="Of these")
    base_rate = serializers.FloatField(help_text="The precision of taking every judged pair")
    scored_pairs = serializers.IntegerField(help_text="Judged or not")
    cut_offs = CutOffSerializer(many=True, help_text="Ascending; scores that occur, at most 100")
    best = CutOffSerializer(help_text="Of the highest F1")
    remarks = serializers.ListField(child=serializers.CharField(), help_text="What to know before believing it")


class EvidenceSerializer(serializers.Serializer[Any]):
    """As it was when the advice was given; names, so that it outlives what they name."""

    judgement_set = serializers.CharField()
    judgement_set_version = serializers.IntegerField()
    job = serializers.CharField()
    stage = serializers.IntegerField()
    document_set = serializers.CharField()
    query_set = serializers.CharField()
    revision = serializers.CharField(help_text="Hash of the model's files")
    scale = serializers.CharField()
    relevant_from = serializers.IntegerField()
    queries = serializers.IntegerField()
    pairs = serializers.IntegerField()
    relevant = serializers.IntegerField()
    base_rate = serializers.FloatField()
    scored_pairs = serializers.IntegerField()
    above = serializers.IntegerField()
    precision = EstimateSerializer(allow_null=True)
    recall = EstimateSerializer()
    f1 = EstimateSerializer()
    remarks = serializers.ListField(child=serializers.CharField())


class AdviceSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    model = serializers.CharField(source="model.name")
    score = serializers.FloatField(help_text="A document with this score or a higher one is taken for relevant")
    per_query_token = serializers.BooleanField(help_text="The score is MaxSim divided by the query's token vectors")
    note = serializers.CharField()
    outdated = serializers.SerializerMethodField(
        help_text="Settings of the model that decide a score and are not what they were; empty: the advice holds"
    )
    job = serializers.UUIDField(source="stage.job_id", default=None, allow_null=True, help_text="null: it is deleted")
    judgement_set = serializers.UUIDField(source="judgement_set_id", allow_null=True, help_text="null: it is deleted")
    evidence = EvidenceSerializer()
    created_by = serializers.CharField(source="created_by.username", default=None, allow_null=True)
    created_at = serializers.DateTimeField()

    def get_outdated(self, advice: ThresholdAdvice) -> list[str]:
        return advice_changes(advice, advice.model)


def _report(request: Request, pk: uuid.UUID, fields: dict[str, Any], *, endpoint: str) -> ThresholdReport:
    """Raises AssayError 404 naming the field, for another team's rows too."""
    principal = principal_of(request)
    job = jobs_of(principal).filter(pk=pk).first()
    if job is None:
        raise AssayError("not_found", f"There is no job {pk} in your team.", status=404, param="job")
    stage = job_stage(job, fields.get("stage"))
    given = fields["judgement_set"]
    judgements = team_set(principal, JudgementSet, given, param="judgement_set", noun="judgement set")
    return thresholds_measure(
        asked=asked_by(request, endpoint),
        stage=stage,
        judgement_set=judgements,
        relevant_from=fields.get("relevant_from"),
        per_query_token=fields["per_query_token"],
    )


CUT_OFF: Final[dict[str, Any]] = {
    "score": 0.4213,
    "above": 214,
    "found": 158,
    "precision": {"value": 0.7383, "low": 0.6756, "high": 0.7955},
    "recall": {"value": 0.6695, "low": 0.5989, "high": 0.7301},
    "f1": {"value": 0.7022, "low": 0.6421, "high": 0.7519},
}
REMARK: Final = (
    "Only the 903 judged pairs of 22,500 scored ones count. People mostly judge what stands at the top of some "
    "ranking, so the precision does not extend to documents that nobody judged, of which fewer are relevant."
)
THRESHOLDS: Final[dict[str, Any]] = {
    "model": "minilm",
    "scale": "cosine",
    "relevant_from": 1,
    "per_query_token": False,
    "queries": 221,
    "pairs": 903,
    "relevant": 236,
    "base_rate": 0.2614,
    "scored_pairs": 22500,
    "cut_offs": [CUT_OFF],
    "best": CUT_OFF,
    "remarks": [REMARK],
}
ADVICE: Final[dict[str, Any]] = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a41",
    "model": "minilm",
    "score": 0.4213,
    "per_query_token": False,
    "note": "For the help desk: a wrong answer costs more than none.",
    "outdated": [],
    "job": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a12",
    "judgement_set": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a15",
    "evidence": {
        "judgement_set": "Grades",
        "judgement_set_version": 2,
        "job": "Night run",
        "stage": 0,
        "document_set": "Advice",
        "query_set": "Questions",
        "revision": "9f2c6e0b1d4a",
        "scale": "cosine",
        "relevant_from": 1,
        **{name: THRESHOLDS[name] for name in ("queries", "pairs", "relevant", "base_rate", "scored_pairs")},
        **{name: CUT_OFF[name] for name in ("above", "precision", "recall", "f1")},
        "remarks": [REMARK],
    },
    "created_by": "ada",
    "created_at": "2026-11-29T20:00:00Z",
}
CREATE: Final = {name: ADVICE[name] for name in ("job", "judgement_set", "score", "note")}
WHAT: Final = (
    "Precision, recall and F1 of calling every document relevant whose score is at least the cut-off, over the judged "
    "pairs of a stage. Each with a 95 % interval: the wider one of Wilson's over pairs and a bootstrap over queries."
)


@extend_schema(tags=["jobs"])
class ThresholdsView(ScoringView):
    required_scope: ClassVar[str] = "jobs"

    @operation(
        "What cut-offs for a model's scores would do",
        operation_id="api_v1_jobs_thresholds",
        description=WHAT,
        answer=ThresholdsSerializer,
        example=THRESHOLDS,
        errors=SCORED,
        parameters=(ThresholdsQuerySerializer, *HEADERS),
    )
    def get(self, request: Request, pk: uuid.UUID) -> Response:
        if not jobs_of(principal_of(request)).filter(pk=pk).exists():
            raise Http404
        fields = query_of(request, ThresholdsQuerySerializer)
        report = _report(request, pk, fields, endpoint="/api/v1/jobs/{id}/thresholds")
        measured = [report.at(fields["score"])] if "score" in fields else report.cut_offs
        found = {
            "model": report.stage.scorer.name,
            "scored_pairs": report.found.ranked,
            "cut_offs": [asdict(each) for each in measured],
            "best": asdict(report.best),
            **{name: getattr(report, name) for name in ("scale", "relevant_from", "per_query_token", "queries")},
            **{name: getattr(report, name) for name in ("pairs", "relevant", "base_rate", "remarks")},
        }
        return Response(found)


@extend_schema(tags=["models"])
class ThresholdAdviceViewSet(ResourceViewSet):
    required_scope = "jobs"
    model = ThresholdAdvice
    filterset_class = ThresholdAdviceFilter
    lookup_value_converter = "uuid"
    serializer_class = AdviceSerializer

    def rows(self) -> QuerySet[ThresholdAdvice]:
        return advice_of(self.principal)

    @operation(
        "List the cut-offs that the team was advised, the newest of a model is in force",
        answer=AdviceSerializer(many=True), example=ADVICE, errors=LISTED,
    )  # fmt: skip
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), AdviceSerializer)

    @operation("One cut-off with its evidence", answer=AdviceSerializer, example=ADVICE, errors=(*READ, 404))
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(AdviceSerializer(self.found()).data)

    @operation(
        "Advise a cut-off for a model's scores; nothing applies it",
        description="What the cut-off does is measured on the job and kept with it as evidence.",
        request=AdviceCreateSerializer, request_example=CREATE, answer=AdviceSerializer, example=ADVICE, status=201,
        errors=(*SCORED, *BODY),
    )  # fmt: skip
    def create(self, request: Request) -> Response:
        fields = validated(AdviceCreateSerializer, request)
        report = _report(request, fields["job"], fields, endpoint="/api/v1/threshold-advice")
        self.principal.require_model(report.stage.scorer.name)
        advice = advice_save(principal=self.principal, report=report, score=fields["score"], note=fields["note"])
        place = {"Location": self.reverse_action("detail", kwargs={"pk": advice.pk})}
        return Response(AdviceSerializer(advice).data, status=201, headers=place)

    @operation(
        "Withdraw a cut-off; the one before it is in force again",
        answer=None, status=204, errors=(*READ, 404),
    )  # fmt: skip
    def destroy(self, request: Request, pk: str) -> Response:
        advice_delete(principal=self.principal, advice=self.found())
        return Response(status=204)
