"""What the operations on jobs take and give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema_field
from rest_framework import serializers

from assay.api.serializers import (
    FlagField,
    MomentField,
    StrictIntegerField,
    StrictNumberField,
    StrictSerializer,
    StrictUUIDField,
    TextField,
)
from scoring.api.job_stages import (
    BM25_STAGE,
    STAGE,
    CandidatesSerializer,
    StagePlanSerializer,
    StageSerializer,
)
from scoring.api.openapi import REFUSALS, ErrorSerializer, state_field
from scoring.export.formats import FORMATS
from scoring.models import Job, QueryResult
from scoring.selectors.evaluation import DEFAULT_MEASURES
from scoring.selectors.jobs import PreviousRanks, RankedDocument, job_progress
from scoring.services.stage_plan import MAX_KEPT
from scoring.states import ItemStatus, JobState

MAX_TOP: Final = 1000


class JobSubmitSerializer(StrictSerializer):
    aliases: ClassVar[Mapping[str, str]] = {"top_n": "top_k"}

    model = TextField(
        required=False, allow_null=True, allow_blank=False, help_text="A registered name; absent: the default model"
    )
    document_set = StrictUUIDField()
    query_set = StrictUUIDField()
    top_k = StrictIntegerField(
        required=False, allow_null=True, min_value=1, max_value=MAX_KEPT,
        help_text="Documents kept per query; absent or null: all",
    )  # fmt: skip
    candidates = CandidatesSerializer(
        required=False, allow_null=True, help_text="Score these documents of each query instead of all"
    )
    stages = StagePlanSerializer(
        many=True, required=False,
        help_text="A cascade, or several models to compare, instead of model, top_k and candidates",
    )  # fmt: skip
    priority = StrictIntegerField(default=0, min_value=-100, max_value=100, help_text="Higher runs first")
    name = TextField(default="", max_length=200, help_text="Absent: made from the names of the sets and the model")
    start_at = MomentField(
        default=None,
        allow_null=True,
        help_text="Joins the queue then (ISO 8601, with its zone); absent, null or past: at once",
    )
    complete_within = StrictIntegerField(
        default=None, allow_null=True, min_value=1, max_value=2**31 - 1,
        help_text="Seconds since it joined the queue after which it expires: what is scored then is ranked",
    )  # fmt: skip
    max_error_rate = StrictNumberField(
        default=None, allow_null=True, min_value=0, max_value=1,
        help_text="Share of failed pairs in the first chunks that stops the job; absent or null: 0.5; 1: none does",
    )  # fmt: skip


class NamedSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()


class JobSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    state = state_field(JobState)()
    failure = serializers.CharField(help_text="Why it failed; else empty")
    end_reason = serializers.CharField(
        help_text="What stopped it before everything was scored: cancelled, expired or too_many_errors; else empty"
    )
    attempt = serializers.IntegerField(help_text="Grows with every retry")
    cloned_from = serializers.UUIDField(source="cloned_from_id", allow_null=True)
    stages = StageSerializer(many=True)
    model = serializers.CharField(
        source="last_stage.model.name",
        default=None,
        allow_null=True,
        help_text="Of the last stage, as are the next ones",
    )
    model_revision = serializers.CharField(source="last_stage.model_revision")
    document_set = NamedSerializer()
    query_set = NamedSerializer()
    top_k = serializers.IntegerField(source="last_stage.top_k", allow_null=True)
    priority = serializers.IntegerField()
    query_count = serializers.IntegerField()
    document_count = serializers.IntegerField()
    pair_count = serializers.IntegerField()
    settings = serializers.DictField(
        source="last_stage.settings", help_text="The model as it was when the job was submitted"
    )
    statistics = serializers.DictField(help_text="Written when the job ends; empty before")
    max_error_rate = serializers.FloatField()
    complete_within = serializers.IntegerField(allow_null=True)
    created_at = serializers.DateTimeField()
    start_at = serializers.DateTimeField(allow_null=True)
    queued_at = serializers.DateTimeField(help_text="When it last joined the queue")
    expires_at = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True, help_text="The first lease since it last joined the queue")
    finished_at = serializers.DateTimeField(allow_null=True)
    cancel_requested_at = serializers.DateTimeField(allow_null=True)


class ProgressSerializer(serializers.Serializer[Any]):
    pairs_done = serializers.IntegerField()
    pairs_total = serializers.IntegerField()
    percent = serializers.FloatField()
    chunks = serializers.DictField(child=serializers.IntegerField(), help_text="By state")
    rate = serializers.FloatField(allow_null=True, help_text="Pairs per second")
    eta_seconds = serializers.FloatField(allow_null=True)
    workers = serializers.ListField(child=serializers.CharField())
    waiting = serializers.CharField(
        source="waiting.code",
        help_text="What it waits for: scheduled, quota, paused, pausing, model_not_served, no_worker, model_loading, "
        "no_placement, behind or next; empty while it gets on",
    )
    reason = serializers.CharField(source="waiting.sentence", help_text="The same in words")


class JobDetailSerializer(JobSerializer):
    progress = serializers.SerializerMethodField()

    @extend_schema_field(ProgressSerializer)
    def get_progress(self, job: Job) -> dict[str, Any]:
        return ProgressSerializer(job_progress(job)).data


class StageQuerySerializer(StrictSerializer):
    stage = serializers.IntegerField(
        required=False, min_value=0, help_text="Index of the stage whose ranking is meant; absent: the last one"
    )


class ResultsQuerySerializer(StageQuerySerializer):
    aliases: ClassVar[Mapping[str, str]] = {"top_k": "top_n"}

    query_id = TextField(required=False, help_text="Only this query, by its id in the uploaded file")
    top_n = serializers.IntegerField(default=10, min_value=1, max_value=MAX_TOP, help_text="Documents per query")
    start = serializers.IntegerField(default=0, min_value=0, max_value=2**31 - 1, help_text="Ranks passed over")
    texts = FlagField(default=False, help_text="With titles and texts")


class RankedDocumentSerializer(serializers.Serializer[Any]):
    rank = serializers.IntegerField()
    previous_rank = serializers.IntegerField(
        allow_null=True, help_text="In the ranking that it was taken from, else in the stage before; null: none"
    )
    index = serializers.IntegerField(help_text="The document's position in its set")
    document_id = serializers.CharField()
    score = serializers.FloatField(allow_null=True)
    raw_score = serializers.FloatField(allow_null=True)
    status = serializers.ChoiceField(ItemStatus.choices)
    error = serializers.CharField(required=False, help_text="Of a failed pair: a code such as worker_crashed")
    title = serializers.CharField(required=False)
    text = serializers.CharField(required=False)


class QueryResultSerializer(serializers.Serializer[Any]):
    query_id = serializers.CharField()
    query = serializers.CharField()
    kept = serializers.IntegerField(help_text="Documents in the ranking")
    scored = serializers.IntegerField(help_text="Of these, with a score")
    documents = RankedDocumentSerializer(many=True)


class ExportQuerySerializer(StageQuerySerializer):
    format = serializers.ChoiceField(list(FORMATS))


class EvaluationQuerySerializer(StageQuerySerializer):
    judgement_set = StrictUUIDField()
    measures = TextField(
        required=False, allow_blank=False,
        help_text=f"Names of ir-measures, separated by commas; absent: {','.join(DEFAULT_MEASURES)}",
    )  # fmt: skip


class JobEvaluationSerializer(serializers.Serializer[Any]):
    measures = serializers.ListField(child=serializers.CharField())
    means = serializers.DictField(child=serializers.FloatField(allow_null=True))
    per_query = serializers.DictField(
        child=serializers.DictField(child=serializers.FloatField(allow_null=True)),
        help_text="Null where a measure is not defined: Judged of an empty list",
    )
    evaluated = serializers.IntegerField(help_text="Queries that have judgements: the means are over these")
    queries = serializers.IntegerField()
    unjudged_queries = serializers.ListField(child=serializers.CharField(), help_text="Left out")
    queries_without_results = serializers.ListField(child=serializers.CharField(), help_text="Counted as 0")
    complete = serializers.BooleanField(help_text="False: not every pair was scored, the means are partial")


class LogSerializer(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    from_state = serializers.CharField()
    to_state = serializers.CharField()
    actor = serializers.CharField()
    reason = serializers.CharField()
    detail = serializers.DictField()


def result_body(
    result: QueryResult, ranked: Sequence[RankedDocument], before: PreviousRanks, *, texts: bool
) -> dict[str, Any]:
    return {
        "query_id": result.query.external_id,
        "query": result.query.text,
        "kept": result.kept,
        "scored": result.scored,
        "documents": [
            _document_body(row, before.get((result.query_position, row.document.position)), texts=texts)
            for row in ranked
        ],
    }


def _document_body(row: RankedDocument, previous_rank: int | None, *, texts: bool) -> dict[str, Any]:
    body = {
        "rank": row.rank,
        "previous_rank": previous_rank,
        "index": row.document.position,
        "document_id": row.document.external_id,
        "score": row.score,
        "raw_score": row.raw_score,
        "status": str(row.status),
        **({"error": row.failure} if row.failure else {}),
    }
    return {**body, "title": row.document.title, "text": row.document.text} if texts else body


def refusals(*codes: int) -> dict[int, OpenApiResponse]:
    return {code: OpenApiResponse(ErrorSerializer, REFUSALS[code]) for code in codes}


SET_ID: Final = "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a11"
JOB: Final[dict[str, Any]] = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a12",
    "name": "Household questions on Household advice by minilm",
    "state": "running",
    "failure": "",
    "end_reason": "",
    "attempt": 1,
    "cloned_from": None,
    "stages": [BM25_STAGE, STAGE],
    "model": "minilm",
    "model_revision": "9f2c6e0b1d4a",
    "document_set": {"id": SET_ID, "name": "Household advice"},
    "query_set": {"id": SET_ID, "name": "Household questions"},
    "top_k": 100,
    "priority": 0,
    "query_count": 12,
    "document_count": 72,
    "pair_count": 1728,
    "settings": {"model": "minilm", "kind": "bi-encoder", "dtype": "auto", "truncation": "document"},
    "statistics": {},
    "max_error_rate": 0.5,
    "complete_within": 3600,
    "created_at": "2026-11-29T20:00:00Z",
    "start_at": None,
    "queued_at": "2026-11-29T20:00:00Z",
    "expires_at": "2026-11-29T21:00:00Z",
    "started_at": "2026-11-29T20:00:01Z",
    "finished_at": None,
    "cancel_requested_at": None,
}
SUBMITTED: Final[dict[str, Any]] = {
    "document_set": SET_ID,
    "query_set": SET_ID,
    "stages": [
        {"method": "bm25", "top_k": 1000},
        {"model": "minilm", "source": 0, "top_k": 100},
        {"model": "cross-encoder", "source": 1, "top_k": 10},
    ],
}
JOB_DETAIL: Final[dict[str, Any]] = {
    **JOB,
    "progress": {
        "pairs_done": 1632,
        "pairs_total": 1728,
        "percent": 94.4,
        "chunks": {"pending": 0, "leased": 1, "done": 2, "failed": 0, "cancelled": 0},
        "rate": 512.0,
        "eta_seconds": 0.2,
        "workers": ["worker-1"],
        "waiting": "",
        "reason": "",
    },
}
RESULT: Final = {
    "query_id": "q1",
    "query": "How do I get rid of limescale?",
    "kept": 72,
    "scored": 72,
    "documents": [
        {
            "rank": 1,
            "previous_rank": 4,
            "index": 0,
            "document_id": "d1",
            "score": 0.6712,
            "raw_score": 0.6712,
            "status": "ok",
        },
    ],
}
RUN_EXAMPLE: Final = OpenApiExample(
    "A TREC run", value="q1 Q0 d1 1 0.6712 minilm\n", response_only=True, media_type="text/plain", status_codes=["200"]
)
EVALUATION: Final = {
    "measures": ["nDCG@10"],
    "means": {"nDCG@10": 0.93},
    "per_query": {"q1": {"nDCG@10": 0.93}},
    "evaluated": 1,
    "queries": 1,
    "unjudged_queries": [],
    "queries_without_results": [],
    "complete": True,
}
LOG: Final = {
    "at": "2026-11-29T20:00:00Z",
    "from_state": "",
    "to_state": "queued",
    "actor": "token demo",
    "reason": "submitted",
    "detail": {},
}
