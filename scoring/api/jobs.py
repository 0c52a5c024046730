"""``/api/v1/jobs``: batch jobs, their results, measures and exports."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet as Rows
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response

from assay.errors import AssayError
from audit.services import audit_record
from scoring.api import job_shapes as shapes
from scoring.api.job_control import IDEMPOTENCY_KEY, JobControlViewSet, idempotency_key
from scoring.api.job_stages import named_as_given, plans_of
from scoring.api.openapi import BODY, LISTED, READ, operation
from scoring.api.resources import Pagination, query_of, team_set
from scoring.api.synchronous import validated
from scoring.export.formats import FORMATS, file_name, table_parts
from scoring.export.results import stage_table
from scoring.filters import JobFilter
from scoring.measures import measures_split
from scoring.models import DocumentSet, Job, JudgementSet, QuerySet
from scoring.models.base import UploadedSet
from scoring.selectors.evaluation import DEFAULT_MEASURES, stage_evaluate
from scoring.selectors.jobs import (
    job_stage,
    jobs_of,
    previous_ranks,
    query_named,
    ranked_documents_of,
    results_of,
)
from scoring.selectors.texts import query_texts_shown
from scoring.services.jobs import job_submit
from scoring.states import JobState


class QueryOrder(Pagination):
    ordering = "query_position"


class OneRenderer(DefaultContentNegotiation):
    """``?format=`` names the file's format here, not DRF's renderer."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


@extend_schema(tags=["jobs"])
class JobViewSet(JobControlViewSet):
    required_scope = "jobs"
    model = Job
    filterset_class = JobFilter
    lookup_value_converter = "uuid"
    serializer_class = shapes.JobSerializer

    def rows(self) -> Rows[Job]:
        return jobs_of(self.principal)

    @operation("List the team's jobs", answer=shapes.JobSerializer(many=True), example=shapes.JOB, errors=LISTED)
    def list(self, request: Request) -> Response:
        return self.paged(self.get_queryset(), shapes.JobSerializer)

    @operation(
        "One job, with its progress", answer=shapes.JobDetailSerializer, example=shapes.JOB_DETAIL, errors=(*READ, 404)
    )
    def retrieve(self, request: Request, pk: str) -> Response:
        return Response(shapes.JobDetailSerializer(self.found()).data)

    @operation(
        "Rank the documents of a set for every query of a set",
        description="By one model (`model`, `top_k`, and `candidates` unless every document is to be scored), or in "
        "several `stages`: each scores what its `source` kept. `top_n` is another name of `top_k`. A person with too "
        "many jobs in the queue has to wait: the job is `scheduled` then, too. With an `Idempotency-Key` that was used "
        "before for the same job, the answer is that job, with status 200.",
        request=shapes.JobSubmitSerializer,
        request_example=shapes.SUBMITTED,
        answer=shapes.JobDetailSerializer,
        example=shapes.JOB_DETAIL,
        status=201,
        other_answers={200: shapes.JobDetailSerializer},
        errors=(*BODY, 404, 409, 429),
        parameters=(IDEMPOTENCY_KEY,),
    )
    def create(self, request: Request) -> Response:
        fields = validated(shapes.JobSubmitSerializer, request)
        document_set = self._set(DocumentSet, fields, "document_set")
        query_set = self._set(QuerySet, fields, "query_set")
        as_given = ("name", "priority", "start_at", "complete_within", "max_error_rate")
        with named_as_given(fields):
            job, is_new = job_submit(
                principal=self.principal,
                document_set=document_set,
                query_set=query_set,
                stages=plans_of(fields, self.principal),
                idempotency_key=idempotency_key(request),
                **{name: fields[name] for name in as_given},
            )
        return self.submitted(job, is_new)

    @operation(
        "The best documents of each query",
        answer=shapes.QueryResultSerializer(many=True),
        example=shapes.RESULT,
        errors=LISTED,
        parameters=(shapes.ResultsQuerySerializer,),
    )
    @action(detail=True, pagination_class=QueryOrder, filterset_class=None, filter_backends=())
    def results(self, request: Request, pk: str) -> Response:
        query = query_of(request, shapes.ResultsQuerySerializer, paged=True)
        job = self.found()
        stage = job_stage(job, query.get("stage"))
        rows = results_of(stage)
        if "query_id" in query:
            rows = rows.filter(query=query_named(job, query["query_id"]))
        page = self.paginate_queryset(rows) or []
        query_texts_shown(page, job.query_set)
        ranked = ranked_documents_of(job, page, start=query["start"], limit=query["top_n"])
        before = previous_ranks(stage, page, ranked)
        return self.get_paginated_response(
            [shapes.result_body(*pair, before, texts=query["texts"]) for pair in zip(page, ranked, strict=True)]
        )

    @extend_schema(
        summary="Download all rankings as a file",
        description="CSV for spreadsheets (no cell is a formula), JSON lines, Parquet or a TREC run.",
        parameters=[shapes.ExportQuerySerializer],
        responses={(200, each.content_type.partition(";")[0]): OpenApiTypes.STR for each in FORMATS.values()}
        | shapes.refusals(*READ, 404, 409, 422),
        examples=[shapes.RUN_EXAMPLE],
    )
    @action(detail=True, content_negotiation_class=OneRenderer)
    def export(self, request: Request, pk: str) -> StreamingHttpResponse:
        job, query = self.found(), query_of(request, shapes.ExportQuerySerializer)
        if not JobState(job.state).is_final:
            message = f"Job '{job.name}' is {job.get_state_display()}; its results can be exported when it has ended."
            raise AssayError("job_not_ended", message, status=409)
        table, name = stage_table(job_stage(job, query.get("stage"))), query["format"]
        audit_record(verb="job.exported", principal=self.principal, target=job, detail={"format": name})
        place = {"Content-Disposition": f'attachment; filename="{file_name(table, name)}"'}
        return StreamingHttpResponse(table_parts(table, name), content_type=FORMATS[name].content_type, headers=place)

    @operation(
        "Measure a job against judgements",
        answer=shapes.JobEvaluationSerializer,
        example=shapes.EVALUATION,
        errors=(*READ, 404, 409, 422),
        parameters=(shapes.EvaluationQuerySerializer,),
    )
    @action(detail=True)
    def evaluation(self, request: Request, pk: str) -> Response:
        job, query = self.found(), query_of(request, shapes.EvaluationQuerySerializer)
        measures = measures_split(query["measures"]) if "measures" in query else DEFAULT_MEASURES
        evaluation = stage_evaluate(
            job_stage(job, query.get("stage")), self._set(JudgementSet, query, "judgement_set"), measures=measures
        )
        return Response(shapes.JobEvaluationSerializer(evaluation).data)

    def _set(self, model: type[UploadedSet], fields: dict[str, Any], param: str) -> Any:
        """The team's set that ``fields`` name."""
        return team_set(self.principal, model, fields[param], param=param, noun=param.replace("_", " "))
