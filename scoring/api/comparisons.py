"""``/api/v1/comparisons``: stages of jobs over one query set side by side, saved with notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.principal import Principal
from assay.api.serializers import (
    StrictBooleanField,
    StrictIntegerField,
    StrictSerializer,
    StrictUUIDField,
    TextField,
)
from assay.errors import AssayError
from audit.services import audit_record
from scoring.api.jobs import OneRenderer
from scoring.api.openapi import BODY, LISTED, READ, operation
from scoring.api.reports import REPORT, IntervalSerializer, ReportQuerySerializer
from scoring.api.resources import ResourceViewSet, query_of, team_set
from scoring.api.synchronous import validated
from scoring.export.comparisons import comparison_report
from scoring.export.reports import report_response
from scoring.filters import ComparisonFilter
from scoring.models import Comparison, ComparisonTest, JudgementSet, Stage
from scoring.selectors.comparability import comparability
from scoring.selectors.comparison_statistics import MeasureRow, coverage_remarks
from scoring.selectors.comparisons import (
    comparisons_of,
    judgements_deleted,
    judgements_newer,
    similarities,
    stages_compared,
)
from scoring.selectors.evaluation import DEFAULT_MEASURES
from scoring.selectors.jobs import job_stage, jobs_of
from scoring.services.comparisons import (
    FEWEST,
    MOST,
    comparison_change,
    comparison_create,
    comparison_delete,
    comparison_measures,
    comparison_recompute,
    comparison_set_baseline,
)
from scoring.services.stage_plan import MAX_STAGES
from scoring.statistics import Outcome, PairedTest

MAX_NOTES: Final = 20_000
CHANGE: Final = ("delta", "better", "equal", "worse", "outcome", "p", "p_corrected", "verdict", "words")


class ComparedSerializer(StrictSerializer):
    job = StrictUUIDField()
    stage = StrictIntegerField(
        required=False, allow_null=True, min_value=0, max_value=MAX_STAGES - 1, help_text="Absent: the last one"
    )


class ComparisonCreateSerializer(StrictSerializer):
    stages = serializers.ListField(
        child=ComparedSerializer(), min_length=FEWEST, max_length=MOST, help_text="The first one is the baseline"
    )
    name = TextField(default="", max_length=200, help_text="Absent: the names of the stages")
    judgement_set = StrictUUIDField(required=False, allow_null=True, help_text="To measure them against; pinned")
    primary_measure = TextField(
        default=DEFAULT_MEASURES[0], max_length=100, help_text="Which one decides; in ir-measures' words"
    )
    test = serializers.ChoiceField(
        ComparisonTest.choices,
        default=ComparisonTest.T.value,
        help_text="Of the differences paired by query; randomised_tukey: of three or four stages, all pairs at once",
    )
    pinned = StrictBooleanField(default=False)
    notes = TextField(default="", max_length=MAX_NOTES)


class ComparisonChangeSerializer(StrictSerializer):
    name = TextField(max_length=200, allow_blank=False)
    pinned = StrictBooleanField()
    notes = TextField(max_length=MAX_NOTES)
    baseline = StrictIntegerField(min_value=0, max_value=MOST - 1, help_text="Which stage goes first, from 0")


class ComparedStageSerializer(serializers.Serializer[Any]):
    job = serializers.UUIDField(source="stage.job_id")
    job_name = serializers.CharField(source="stage.job.name")
    stage = serializers.IntegerField(source="stage.index")
    name = serializers.CharField(source="stage", help_text="The model, the run, or BM25")


class ComparisonSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    pinned = serializers.BooleanField()
    notes = serializers.CharField()
    judgement_set = serializers.UUIDField(source="judgement_set_id", allow_null=True)
    primary_measure = serializers.CharField(help_text="Its corrected p decides; others are exploratory")
    test = serializers.ChoiceField(ComparisonTest.choices)
    correction = serializers.SerializerMethodField(
        help_text="Of the p of one measure: holm, over the stages but the baseline; tukey, over all pairs of stages"
    )
    stages = ComparedStageSerializer(source="compared.all", many=True, help_text="The baseline first")
    created_at = serializers.DateTimeField()

    def get_correction(self, comparison: Comparison) -> str:
        return PairedTest(comparison.test).correction


class RemarkSerializer(serializers.Serializer[Any]):
    tone = serializers.CharField(help_text="warn: to be kept in mind; bad: not compared, or says nothing")
    text = serializers.CharField()


class SimilaritySerializer(serializers.Serializer[Any]):
    """Means over queries; null where there is none."""

    queries = serializers.IntegerField(help_text="Those for which both have documents")
    rbo = serializers.FloatField(allow_null=True, help_text="Rank-biased overlap, extrapolated, p = 0.9")
    rbo_top = serializers.FloatField(allow_null=True, help_text="The same with p = 0.5")
    overlap = serializers.FloatField(allow_null=True, help_text="Share of the first ten that is in both")
    tau = serializers.FloatField(allow_null=True, help_text="Kendall's tau-b of the documents in both")
    tau_queries = serializers.IntegerField(help_text="Those with at least two documents in both")


class MeasureSerializer(serializers.Serializer[Any]):
    """What is against the baseline is null for the baseline itself."""

    measure = serializers.CharField(help_text="In ir-measures' words")
    primary = serializers.BooleanField(help_text="Whether it decides; the others are exploratory")
    n = serializers.IntegerField(help_text="Queries for which all stages have a value")
    mean = serializers.FloatField(allow_null=True)
    mean_interval = IntervalSerializer(allow_null=True, help_text="95 %, percentile bootstrap over queries")
    judged = serializers.FloatField(allow_null=True, help_text="Judged@k of the same cut-off; null without one")
    complete = serializers.BooleanField(help_text="false: not every pair was scored, the mean is a part of one")
    delta = serializers.FloatField(allow_null=True, help_text="Against the baseline")
    interval = IntervalSerializer(allow_null=True, help_text="Of delta, 95 %, Student's t on the paired differences")
    better = serializers.IntegerField(allow_null=True, help_text="Queries above the baseline")
    equal = serializers.IntegerField(allow_null=True)
    worse = serializers.IntegerField(allow_null=True)
    outcome = serializers.ChoiceField([one.value for one in Outcome], allow_null=True)
    p = serializers.FloatField(allow_null=True, help_text="Two-sided; null where there is no test")
    p_corrected = serializers.FloatField(
        allow_null=True, help_text="Over the stages of this measure, as `correction` says"
    )
    verdict = serializers.CharField(allow_null=True, help_text="higher or lower only where p_corrected is at most 0.05")
    words = serializers.CharField(allow_null=True, help_text="What the test found")


class ComparisonDetailSerializer(ComparisonSerializer):
    depth = serializers.IntegerField(allow_null=True, help_text="Ranks compared; null while a job is ranked anew")
    remarks = RemarkSerializer(many=True)
    similarities = SimilaritySerializer(many=True, help_text="The baseline with each of the others")
    newer_judgement_set = serializers.UUIDField(
        allow_null=True, help_text="A version of the judgements that came later: the comparison is stale"
    )
    judgements_deleted = serializers.BooleanField(help_text="The measures were computed with judgements that are gone")
    n = serializers.IntegerField(allow_null=True, help_text="Queries that the primary measure is over")
    queries = serializers.IntegerField(help_text="Queries in the set")
    measures = serializers.ListField(child=MeasureSerializer(many=True), help_text="By stage; empty without judgements")
    versions = serializers.DictField(help_text="Of the libraries that computed the measures")


def _detail(comparison: Comparison) -> dict[str, Any]:
    stages, measured = stages_compared(comparison), comparison_measures(comparison=comparison)
    table, newer = measured.table if measured else None, judgements_newer(comparison)
    remarks = [asdict(remark) for remark in comparability(stages, comparison.judgement_set).remarks]
    found = {
        "depth": measured and measured.depth,
        "remarks": [*remarks, *({"tone": "warn", "text": text} for text in (coverage_remarks(table) if table else ()))],
        "judgements_deleted": judgements_deleted(comparison, measured),
        "similarities": [asdict(one) for one in similarities(measured)] if measured else [],
        "newer_judgement_set": newer and newer.pk,
        "n": table and table.n,
        "queries": stages[0].job.query_count if stages else 0,
        "measures": [[_measure(row) for row in rows] for rows in table.rows] if table else [],
        "versions": table.versions if table else {},
    }
    return {**ComparisonSerializer(comparison).data, **found}


def _measure(row: MeasureRow) -> dict[str, Any]:
    change = row.difference
    return {
        "measure": row.measure,
        "primary": row.primary,
        "n": row.n,
        "mean": row.mean,
        "mean_interval": row.interval and asdict(row.interval),
        "judged": row.judged,
        "complete": row.complete,
        "interval": asdict(change.interval) if change and change.interval else None,
        **{name: change and getattr(change, name) for name in CHANGE},
    }


def stages_named(principal: Principal, given: Sequence[Mapping[str, Any]]) -> list[Stage]:
    """Raises AssayError 404 naming the field, for another team's job too."""
    stages = []
    for place, fields in enumerate(given):
        job = jobs_of(principal).filter(pk=fields["job"]).first()
        if job is None:
            message = f"There is no job {fields['job']} in your team."
            raise AssayError("not_found", message, status=404, param=f"stages[{place}].job")
        try:
            stages.append(job_stage(job, fields.get("stage")))
        except AssayError as refusal:
            refusal.param = f"stages[{place}].stage"
            raise
    return stages


_EXAMPLE: Final[dict[str, Any]] = {
    "measure": "nDCG@10", "primary": True, "n": 221, "mean": 0.333,
    "mean_interval": {"low": 0.301, "high": 0.366}, "judged": 0.273, "complete": True, "interval": None,
    **dict.fromkeys(CHANGE),
}  # fmt: skip
_EXAMPLE_CHANGE: Final[dict[str, Any]] = {
    "mean": 0.354, "mean_interval": {"low": 0.32, "high": 0.389}, "judged": 0.281, "delta": 0.021,
    "interval": {"low": 0.0083, "high": 0.0341}, "better": 61, "equal": 112, "worse": 48, "outcome": "tested",
    "p": 0.0014, "p_corrected": 0.0014, "verdict": "higher", "words": "p = 0.0014",
}  # fmt: skip
COMPARISON: Final[dict[str, Any]] = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a31",
    "name": "BM25 vs. minilm",
    "pinned": True,
    "notes": "minilm loses the queries with product codes.",
    "judgement_set": None,
    "primary_measure": "nDCG@10",
    "test": "t",
    "correction": "holm",
    "stages": [
        {"job": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a12", "job_name": "Night run", "stage": 0, "name": "BM25"},
        {"job": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a12", "job_name": "Night run", "stage": 1, "name": "minilm"},
    ],
    "created_at": "2026-11-29T20:00:00Z",
}
DETAIL: Final[dict[str, Any]] = {
    **COMPARISON,
    "depth": 72,
    "remarks": [
        {
            "tone": "warn",
            "text": "Different candidates: A all documents, B the first 72 of BM25. What is absent from a ranking may "
            "never have been scored.",
        }
    ],
    "similarities": [
        {"queries": 12, "rbo": 0.71, "rbo_top": 0.58, "overlap": 0.64, "tau": 0.42, "tau_queries": 12},
    ],
    "newer_judgement_set": None,
    "judgements_deleted": False,
    "n": 221,
    "queries": 225,
    "measures": [[_EXAMPLE], [{**_EXAMPLE, **_EXAMPLE_CHANGE}]],
    "versions": {"ir-measures": "0.4.3", "numpy": "2.5.1", "scipy": "1.17.1"},
}
CREATE: Final[dict[str, Any]] = {
    "stages": [{"job": stage["job"], "stage": stage["stage"]} for stage in COMPARISON["stages"]],
    "pinned": True,
    "notes": COMPARISON["notes"],
}


@extend_schema(tags=["comparisons"])
class ComparisonViewSet(ResourceViewSet):
    required_scope = "jobs"
    model = Comparison
    filterset_class = ComparisonFilter
    lookup_value_converter = "uuid"
    serializer_class = ComparisonSerializer

    def rows(self) -> QuerySet[Comparison]:
        return comparisons_of(self.principal)

    @operation("List the comparisons", answer=ComparisonSerializer(many=True), example=COMPARISON, errors=LISTED)
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), ComparisonSerializer)

    @operation(
        "One comparison, with how alike its rankings are",
        answer=ComparisonDetailSerializer, example=DETAIL, errors=(*READ, 404),
    )  # fmt: skip
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(_detail(self.found()))

    @operation(
        "Compare two to four stages of jobs over one query set",
        request=ComparisonCreateSerializer, request_example=CREATE, answer=ComparisonDetailSerializer, example=DETAIL,
        status=201, errors=(*BODY, 404, 409),
    )  # fmt: skip
    def create(self, request: Request) -> Response:
        fields = validated(ComparisonCreateSerializer, request)
        stages, judgements = stages_named(self.principal, fields.pop("stages")), fields.pop("judgement_set", None)
        if judgements is not None:
            fields["judgement_set"] = team_set(
                self.principal, JudgementSet, judgements, param="judgement_set", noun="judgement set"
            )
        return self._made(comparison_create(principal=self.principal, stages=stages, **fields))

    @operation(
        "Compare the same with the newest version of its judgements",
        description="Makes a comparison of its own: the old one keeps its numbers. 409 without a newer version.",
        request=None, answer=ComparisonDetailSerializer, example=DETAIL, status=201, errors=(*READ, 404, 409, 422),
    )  # fmt: skip
    @action(detail=True, methods=["post"])
    def recompute(self, request: Request, pk: str) -> Response:
        return self._made(comparison_recompute(principal=self.principal, comparison=self.found()))

    def _made(self, comparison: Comparison) -> Response:
        place = {"Location": self.reverse_action("detail", kwargs={"pk": comparison.pk})}
        return Response(_detail(comparison), status=201, headers=place)

    @operation(
        "Change a comparison's name, notes, pin or baseline",
        request=ComparisonChangeSerializer(partial=True), request_example={"baseline": 1},
        answer=ComparisonDetailSerializer, example=DETAIL, errors=(*BODY, 404),
    )  # fmt: skip
    def partial_update(self, request: Request, pk: str) -> Response:
        body = ComparisonChangeSerializer(data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        comparison, fields = self.found(), body.validated_data
        baseline = fields.pop("baseline", None)
        if baseline is not None:
            comparison = comparison_set_baseline(principal=self.principal, comparison=comparison, position=baseline)
        return Response(_detail(comparison_change(principal=self.principal, comparison=comparison, **fields)))

    @extend_schema(
        description="CSV with a row per query (`wide`) or per value (`long`), Markdown or LaTeX with the tests. Each "
        "begins with where its numbers come from.",
        **REPORT,
    )
    @action(detail=True, content_negotiation_class=OneRenderer)
    def export(self, request: Request, pk: str) -> StreamingHttpResponse:
        comparison, name = self.found(), query_of(request, ReportQuerySerializer)["format"]
        report = comparison_report(comparison, comparison_measures(comparison=comparison))
        audit_record(verb="comparison.exported", principal=self.principal, target=comparison, detail={"format": name})
        return report_response(report, name)

    @operation("Delete a comparison; its jobs stay", answer=None, status=204, errors=(*READ, 404))
    def destroy(self, request: Request, pk: str) -> Response:
        comparison_delete(principal=self.principal, comparison=self.found())
        return Response(status=204)
