"""``/api/v1/evaluations``: rankings measured against judgements, kept with their values by query."""

from __future__ import annotations

from collections.abc import Sequence
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
from assay.api.serializers import StrictBooleanField, StrictIntegerField, StrictSerializer, StrictUUIDField, TextField
from assay.errors import AssayError
from audit.services import audit_record
from scoring.api.jobs import OneRenderer
from scoring.api.openapi import BODY, LISTED, READ, operation
from scoring.api.reports import REPORT, IntervalSerializer, ReportQuerySerializer
from scoring.api.resources import PositionPagination, ResourceViewSet, query_of, team_set
from scoring.api.synchronous import validated
from scoring.export.evaluations import evaluation_report
from scoring.export.reports import report_response
from scoring.filters import EvaluationFilter
from scoring.measures import DEFAULT_MEASURES, MAX_MEASURES
from scoring.models import Evaluation, JudgementSet, Query, Stage
from scoring.models import QuerySet as QueriesSet
from scoring.selectors.evaluation_queries import LISTS, query_order, query_values
from scoring.selectors.evaluations import (
    evaluation_arrays,
    evaluation_stale,
    evaluations_of,
)
from scoring.selectors.jobs import job_stage, jobs_of
from scoring.selectors.leaderboard import leaderboard
from scoring.selectors.tags import query_tags
from scoring.services.evaluations import evaluation_create, evaluation_delete
from scoring.services.stage_plan import MAX_STAGES
from scoring.statistics import PairedTest

LISTED_IDS: Final = 1_000


class EvaluationCreateSerializer(StrictSerializer):
    job = StrictUUIDField()
    stage = StrictIntegerField(
        required=False, allow_null=True, min_value=0, max_value=MAX_STAGES - 1, help_text="Absent: the last one"
    )
    judgement_set = StrictUUIDField(help_text="The id of one version")
    measures = serializers.ListField(
        child=TextField(max_length=200, allow_blank=False), min_length=1, max_length=MAX_MEASURES,
        default=list(DEFAULT_MEASURES),
        help_text="Names of ir-measures. `gains='exponential'` stands for 2^g - 1; `judged_only=True` looks at judged "
        "documents alone",
    )  # fmt: skip
    only_relevant = StrictBooleanField(default=False, help_text="Leave out queries without a relevant document")


class FigureSerializer(serializers.Serializer[Any]):
    measure = serializers.CharField(help_text="Its complete name")
    mean = serializers.FloatField(allow_null=True, help_text="Over the queries for which it is defined")
    judged = serializers.FloatField(allow_null=True, help_text="Judged at the same cut-off, null without one")
    worst = serializers.FloatField(allow_null=True, help_text="If tied documents stood the worst way round")
    best = serializers.FloatField(allow_null=True, help_text="If tied documents stood the best way round")
    tie_sensitive = serializers.BooleanField(help_text="These two differ by more than 0.005")


class StaleSerializer(serializers.Serializer[Any]):
    reason = serializers.CharField()
    newer = serializers.UUIDField(allow_null=True, help_text="The version of the judgement set to measure with")


class EvaluationSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    job = serializers.UUIDField(source="stage.job_id")
    job_name = serializers.CharField(source="stage.job.name")
    stage = serializers.IntegerField(source="stage.index")
    name = serializers.CharField(source="stage", help_text="The model, the run, or BM25")
    query_set = serializers.UUIDField(source="stage.job.query_set_id")
    judgement_set = serializers.UUIDField(source="judgement_set_id", allow_null=True, help_text="Null: deleted since")
    measures = FigureSerializer(many=True, source="figures")
    only_relevant = serializers.BooleanField()
    n = serializers.IntegerField(source="evaluated", help_text="Queries in the means")
    queries = serializers.IntegerField(source="query_count", help_text="Of the query set")
    unjudged = serializers.IntegerField(help_text="Queries left out: nobody judged a document for them")
    without_results = serializers.IntegerField(help_text="Judged queries without results: counted 0")
    without_relevant = serializers.IntegerField(
        help_text="Judged queries without a relevant document: counted 0, or left out if only_relevant"
    )
    incomplete = serializers.BooleanField(help_text="Not every pair was scored: the means are partial")
    judged_by_itself = serializers.BooleanField(help_text="Grades that the model itself gave are among the judgements")
    created_at = serializers.DateTimeField()


class EvaluationDetailSerializer(EvaluationSerializer):
    stale = StaleSerializer(allow_null=True, help_text="Null while it tells the present")
    pinned = serializers.DictField(help_text="What it was computed from: names, checksums, versions of the software")
    lists = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text=f"Ids of the queries that unjudged, without_results, without_relevant count, the first {LISTED_IDS}",
    )


class QueryValuesSerializer(serializers.Serializer[Any]):
    query_id = serializers.CharField()
    values = serializers.DictField(child=serializers.FloatField(allow_null=True), help_text="By measure; null: none")
    judged = serializers.DictField(child=serializers.FloatField(allow_null=True), help_text="Judged by cut-off")
    relevant = serializers.IntegerField(allow_null=True, help_text="Relevant documents known; null: left out")
    kept = serializers.IntegerField(allow_null=True, help_text="Documents in the ranking")


class QueryValuesQuerySerializer(StrictSerializer):
    list = serializers.ChoiceField(choices=list(LISTS), default="evaluated", help_text="Which queries")
    tag = TextField(required=False, allow_blank=False, max_length=200, help_text="Only queries with this tag")


class LeaderboardQuerySerializer(StrictSerializer):
    query_set = StrictUUIDField()
    judgement_set = StrictUUIDField(help_text="The id of one version")
    measure = TextField(default=DEFAULT_MEASURES[0], allow_blank=False, max_length=200, help_text="A complete name")
    baseline = StrictUUIDField(required=False, help_text="Id of an evaluation in it; absent: the oldest")


class LeaderboardRowSerializer(serializers.Serializer[Any]):
    evaluation = serializers.UUIDField(source="evaluation.pk")
    job = serializers.UUIDField(source="evaluation.stage.job_id")
    job_name = serializers.CharField(source="evaluation.stage.job.name")
    stage = serializers.IntegerField(source="evaluation.stage.index")
    name = serializers.CharField(source="evaluation.stage")
    mean = serializers.FloatField()
    judged = serializers.FloatField(allow_null=True, help_text="Judged at the measure's cut-off")
    judged_apart = serializers.BooleanField(help_text="More than 0.05 from the baseline's")
    delta = serializers.FloatField(
        source="difference.delta", default=None, allow_null=True, help_text="Against the baseline"
    )
    interval = IntervalSerializer(
        source="difference.interval", default=None, allow_null=True, help_text="95 % of delta"
    )
    better = serializers.IntegerField(
        source="difference.better", default=None, allow_null=True, help_text="Queries above the baseline"
    )
    equal = serializers.IntegerField(source="difference.equal", default=None, allow_null=True)
    worse = serializers.IntegerField(source="difference.worse", default=None, allow_null=True)
    p = serializers.FloatField(
        source="difference.p", default=None, allow_null=True, help_text="Paired t-test, two-sided"
    )
    p_corrected = serializers.FloatField(
        source="difference.p_corrected", default=None, allow_null=True, help_text="By Holm"
    )
    verdict = serializers.CharField(
        source="difference.verdict", default=None, allow_null=True, help_text="In a word or two"
    )


class LeaderboardSerializer(serializers.Serializer[Any]):
    measure = serializers.CharField()
    n = serializers.IntegerField(help_text="Queries that all of the rows evaluated: every number is over these")
    baseline = serializers.UUIDField(
        source="baseline.pk", default=None, allow_null=True, help_text="Null: there is no row"
    )
    test = serializers.CharField(default=str(PairedTest.T), help_text="t: paired, two-sided")
    correction = serializers.CharField(default="holm", help_text="Over all rows but the baseline")
    rows = LeaderboardRowSerializer(many=True, help_text="The highest mean first; the baseline has no differences")


def _detail(evaluation: Evaluation) -> dict[str, Any]:
    stale = evaluation_stale(evaluation)
    arrays = evaluation_arrays(evaluation)
    lists = {name: places for name, places in arrays.lists().items() if name != "evaluated"}
    return {
        **EvaluationSerializer(evaluation).data,
        "stale": stale and {"reason": stale.reason, "newer": stale.newer and str(stale.newer.pk)},
        "pinned": evaluation.pinned,
        "lists": {name: _ids(evaluation, places[:LISTED_IDS].tolist()) for name, places in lists.items()},
    }


def _ids(evaluation: Evaluation, positions: Sequence[int]) -> list[str]:
    queries = Query.objects.filter(query_set=evaluation.stage.job.query_set_id, position__in=positions)
    return list(queries.values_list("external_id", flat=True))


def stage_of(principal: Principal, fields: dict[str, Any]) -> Stage:
    """The stage that ``job`` and ``stage`` name. Raises AssayError 404, for another team's job too."""
    job = jobs_of(principal).filter(pk=fields["job"]).first()
    if job is None:
        raise AssayError("not_found", f"There is no job {fields['job']} in your team.", status=404, param="job")
    return job_stage(job, fields.get("stage"))


JOB_ID: Final = "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a12"
SET_ID: Final = "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a13"
EVALUATION: Final[dict[str, Any]] = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a41",
    "job": JOB_ID,
    "job_name": "Night run",
    "stage": 1,
    "name": "minilm",
    "query_set": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a14",
    "judgement_set": SET_ID,
    "measures": [
        {"measure": "nDCG@10", "mean": 0.41, "judged": 0.31, "worst": 0.41, "best": 0.41, "tie_sensitive": False}
    ],
    "only_relevant": False,
    "n": 221,
    "queries": 225,
    "unjudged": 4,
    "without_results": 1,
    "without_relevant": 0,
    "incomplete": False,
    "judged_by_itself": False,
    "created_at": "2026-11-29T20:00:00Z",
}
DETAIL: Final[dict[str, Any]] = {
    **EVALUATION,
    "stale": None,
    "pinned": {"stage": {"index": 1, "name": "minilm", "revision": "c5f93f7"}, "code": {"ir-measures": "0.4.3"}},
    "lists": {"unjudged": ["q7", "q9", "q44", "q60"], "without_results": ["q3"], "without_relevant": []},
}
CREATE: Final = {"job": JOB_ID, "stage": 1, "judgement_set": SET_ID, "measures": ["nDCG@10"]}
LEADERBOARD: Final[dict[str, Any]] = {
    "measure": "nDCG@10",
    "n": 221,
    "baseline": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a40",
    "test": "t",
    "correction": "holm",
    "rows": [
        {
            "evaluation": EVALUATION["id"],
            **{name: EVALUATION[name] for name in ("job", "job_name", "stage", "name")},
            "mean": 0.41,
            "judged": 0.31,
            "judged_apart": False,
            "delta": 0.08,
            "interval": {"low": 0.05, "high": 0.11},
            "better": 120,
            "equal": 60,
            "worse": 41,
            "p": 0.0004,
            "p_corrected": 0.0008,
            "verdict": "higher",
        }
    ],
}
VALUES: Final = {"query_id": "q1", "values": {"nDCG@10": 0.52}, "judged": {"10": 0.4}, "relevant": 3, "kept": 100}


@extend_schema(tags=["evaluations"])
class EvaluationViewSet(ResourceViewSet):
    required_scope = "jobs"
    model = Evaluation
    filterset_class = EvaluationFilter
    lookup_value_converter = "uuid"
    serializer_class = EvaluationSerializer

    def rows(self) -> QuerySet[Evaluation]:
        return evaluations_of(self.principal)

    @operation("List the evaluations", answer=EvaluationSerializer(many=True), example=EVALUATION, errors=LISTED)
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), EvaluationSerializer)

    @operation(
        "One evaluation, with what it was computed from and what was left out",
        answer=EvaluationDetailSerializer, example=DETAIL, errors=(*READ, 404),
    )  # fmt: skip
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(_detail(self.found()))

    @operation(
        "Measure a ranking against judgements, and keep it",
        description="One stage of a job that has ended, against one version of a judgement set. What was measured "
        "before with the same measures is not computed again: the answer is that evaluation, with status 200.",
        request=EvaluationCreateSerializer, request_example=CREATE, answer=EvaluationDetailSerializer, example=DETAIL,
        status=201, other_answers={200: EvaluationDetailSerializer}, errors=(*BODY, 404, 409),
    )  # fmt: skip
    def create(self, request: Request) -> Response:
        fields = validated(EvaluationCreateSerializer, request)
        judgements = team_set(
            self.principal, JudgementSet, fields["judgement_set"], param="judgement_set", noun="judgement set"
        )
        evaluation, is_new = evaluation_create(
            principal=self.principal,
            stage=stage_of(self.principal, fields),
            judgement_set=judgements,
            measures=fields["measures"],
            only_relevant=fields["only_relevant"],
        )
        place = {"Location": self.reverse_action("detail", kwargs={"pk": evaluation.pk})}
        return Response(_detail(evaluation), status=201 if is_new else 200, headers=place)

    @operation("Delete an evaluation; its job and its judgements stay", answer=None, status=204, errors=(*READ, 404))
    def destroy(self, request: Request, pk: str) -> Response:
        evaluation_delete(principal=self.principal, evaluation=self.found())
        return Response(status=204)

    @operation(
        "Complete evaluations of one query set and one version of the judgements, with differences from a baseline",
        answer=LeaderboardSerializer, example=LEADERBOARD, errors=(*READ, 404),
        parameters=(LeaderboardQuerySerializer,),
    )  # fmt: skip
    @action(detail=False, pagination_class=None, filterset_class=None, filter_backends=())
    def leaderboard(self, request: Request) -> Response:
        query = query_of(request, LeaderboardQuerySerializer)
        team_set(self.principal, QueriesSet, query["query_set"], param="query_set", noun="query set")
        judgements = team_set(
            self.principal, JudgementSet, query["judgement_set"], param="judgement_set", noun="judgement set"
        )
        found = leaderboard(
            self.principal, query_set=query["query_set"], judgements=judgements, measure=query["measure"],
            baseline=query.get("baseline"),
        )  # fmt: skip
        return Response(LeaderboardSerializer(found).data)

    @operation(
        "The values of each query",
        answer=QueryValuesSerializer(many=True), example=VALUES, errors=LISTED,
        parameters=(QueryValuesQuerySerializer,),
    )  # fmt: skip
    @action(detail=True, pagination_class=PositionPagination, filterset_class=None, filter_backends=())
    def queries(self, request: Request, pk: str) -> Response:
        query = query_of(request, QueryValuesQuerySerializer, paged=True)
        evaluation = self.found()
        arrays, query_set = evaluation_arrays(evaluation), evaluation.stage.job.query_set
        among = [query_tags(query_set).get(query["tag"], [])] if "tag" in query else []
        places = query_order(arrays, evaluation.measures, chosen=query["list"], order="query", among=among)
        page = self.paginate_queryset(Query.objects.filter(query_set=query_set, position__in=places)) or []
        found = query_values(evaluation, arrays, [one.position for one in page])
        return self.get_paginated_response(
            [QueryValuesSerializer({"query_id": one.external_id, **asdict(found[one.position])}).data for one in page]
        )

    @extend_schema(
        description="CSV with a row per query (`wide`) or per value (`long`), Markdown or LaTeX. Each begins with "
        "where its numbers come from.",
        **REPORT,
    )
    @action(detail=True, content_negotiation_class=OneRenderer)
    def export(self, request: Request, pk: str) -> StreamingHttpResponse:
        evaluation, name = self.found(), query_of(request, ReportQuerySerializer)["format"]
        audit_record(verb="evaluation.exported", principal=self.principal, target=evaluation, detail={"format": name})
        return report_response(evaluation_report(evaluation, evaluation_arrays(evaluation)), name)
