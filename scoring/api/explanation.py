"""Why a pair has its score: of two texts, of a ranked document of a job, of an item of a kept request."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from math import isfinite
from typing import Any, ClassVar, Final

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.principal import principal_of
from assay.api.serializers import CallSerializer, StrictBooleanField, StrictIntegerField, StrictSerializer, TextField
from assay.callers import caller_of
from scoring.api.job_shapes import StageQuerySerializer
from scoring.api.openapi import SCORED, operation
from scoring.api.resources import query_of
from scoring.api.synchronous import (
    ENVELOPE_EXAMPLE,
    HEADERS,
    AnswerSerializer,
    OutcomeSerializer,
    ScoringView,
    answer_response,
    outcome,
    timeout_of,
    validated,
)
from scoring.models import ScoreRequest
from scoring.models.scoring_model import ModelKind
from scoring.payloads import SyncMatches, SyncOptions
from scoring.selectors.jobs import job_stage, jobs_of
from scoring.selectors.models import RERANKERS, model_for_request
from scoring.services.explanations import Asked, Explanation, item_explain, pair_explain, result_explain, similarities

KINDS: Final = (*RERANKERS, ModelKind.GENERATIVE)
DIGITS: Final = 6


class ExplainSerializer(CallSerializer):
    model = TextField(
        required=False, allow_blank=False,
        help_text="A registered name; absent: the default model",
    )  # fmt: skip
    query = TextField()
    document = TextField()
    instruction = TextField(default="", help_text="What counts as relevant, for models that take an instruction")
    max_tokens_per_query = StrictIntegerField(required=False, min_value=0, help_text="0 or null: no limit")
    max_tokens_per_doc = StrictIntegerField(required=False, min_value=0, help_text="0 or null: no limit")
    use_activation = StrictBooleanField(
        default=True, help_text="false: a cross-encoder's raw logit as the score, instead of a probability"
    )


class JobExplanationQuerySerializer(StageQuerySerializer):
    query = TextField(help_text="The query's id in the uploaded file")
    document = TextField(help_text="The document's id in the uploaded file")


class ItemQuerySerializer(StrictSerializer):
    index = serializers.IntegerField(default=0, min_value=0, help_text="Which of the request's results")


class RowSerializer(serializers.Serializer[Any]):
    role = serializers.CharField(help_text="query, document, or prompt, where both are in it")
    token_ids = serializers.ListField(child=serializers.IntegerField())
    texts = serializers.ListField(
        child=serializers.CharField(),
        help_text="Joined they are the text as it was read: a sub-word has no blank before",
    )
    uses = serializers.ListField(child=serializers.CharField(), help_text="text, prefix, special, expansion or skipped")


class PartSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="dense, sparse or tokens")
    weight = serializers.FloatField()
    score = serializers.FloatField(allow_null=True)


class MatchSerializer(serializers.Serializer[Any]):
    query_token = serializers.IntegerField(help_text="Place in the query's row")
    document_token = serializers.IntegerField(help_text="Place in the document's row: the counted one")
    contribution = serializers.FloatField(allow_null=True, help_text="All together are the score of the part")


class TermSerializer(serializers.Serializer[Any]):
    token_id = serializers.IntegerField()
    text = serializers.CharField()
    query_weight = serializers.FloatField()
    document_weight = serializers.FloatField()
    product = serializers.FloatField(help_text="All together are the score of the part")


class LabelShareSerializer(serializers.Serializer[Any]):
    label = serializers.CharField()  # type: ignore[assignment]
    probability = serializers.FloatField(allow_null=True)


class CutSerializer(serializers.Serializer[Any]):
    query = serializers.CharField(help_text="The end of the query that was cut; empty: none was")
    document = serializers.CharField(help_text="The end of the document that was cut; empty: none was")


class StoredScoreSerializer(serializers.Serializer[Any]):
    raw_score = serializers.FloatField(allow_null=True)
    agrees = serializers.BooleanField(
        allow_null=True, help_text="The score explained is the stored one; null: cannot be told"
    )


class ExplanationSerializer(AnswerSerializer):
    kind = serializers.CharField()
    result = OutcomeSerializer()
    score = serializers.FloatField(allow_null=True)
    stored = StoredScoreSerializer(allow_null=True, help_text="Null for texts that were not scored before")
    notes = serializers.ListField(child=serializers.CharField(), help_text="What to know before believing it")
    rows = RowSerializer(many=True)
    parts = PartSerializer(many=True, help_text="The raw score is the sum of weight times score")
    matches = MatchSerializer(many=True, help_text="Late interaction: each query token's best document token")
    similarities = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField(allow_null=True)),
        help_text="Late interaction: by `matches`, and in each by `document_tokens`",
    )
    document_tokens = serializers.ListField(
        child=serializers.IntegerField(), help_text="Places in the document's row that are compared"
    )
    terms = TermSerializer(many=True, help_text="Sparse: what query and document share, the largest product first")
    labels = LabelShareSerializer(many=True, help_text="Generative")
    cut = CutSerializer()


EXAMPLE: Final = {
    **ENVELOPE_EXAMPLE,
    "kind": "bi-encoder",
    "result": {"index": 0, "raw_score": 0.7313, "status": "ok"},
    "score": 0.7313,
    "stored": None,
    "notes": [],
    "rows": [
        {
            "role": "query",
            "token_ids": [101, 8870, 102],
            "texts": ["[CLS]", " cats", " [SEP]"],
            "uses": ["special", "text", "special"],
        }
    ],
    "parts": [{"name": "dense", "weight": 1.0, "score": 0.7313}],
    "matches": [],
    "similarities": [],
    "document_tokens": [],
    "terms": [],
    "labels": [],
    "cut": {"query": "", "document": ""},
}
WHAT: Final = (
    "Computed afresh, by the code that scores. Late interaction: how similar each pair of tokens is, and which are "
    "counted; sparse: the shared terms; hybrid: the parts with their weights; generative: the labels' probabilities "
    "and the prompt; of every kind the tokens that were read and what was cut. A bi-encoder compares two vectors and "
    "can say no more than that."
)


@extend_schema(tags=["scoring"])
class ExplainView(ScoringView):
    @operation(
        "Score one pair and say why",
        description=WHAT,
        request=ExplainSerializer,
        request_example={"model": "minilm", "query": "cats", "document": "Cats purr."},
        answer=ExplanationSerializer,
        example=EXAMPLE,
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        fields = validated(ExplainSerializer, request)
        options = SyncOptions(
            instruction=fields["instruction"],
            use_activation=fields["use_activation"],
            max_tokens_per_query=fields.get("max_tokens_per_query") or None,
            max_tokens_per_document=fields.get("max_tokens_per_doc") or None,
        )
        model = model_for_request(principal=principal_of(request), name=fields.get("model"), kinds=KINDS)
        asked = asked_by(request, request.path)
        found = pair_explain(
            asked=asked, model=model, query=fields["query"], document=fields["document"], options=options
        )
        return explanation_response(found)


@extend_schema(tags=["jobs"])
class JobExplanationView(ScoringView):
    required_scope: ClassVar[str] = "jobs"

    @operation(
        "Why a document has its rank",
        description=f"{WHAT} `stored` says whether it is the score that the job stored.",
        answer=ExplanationSerializer,
        example=EXAMPLE,
        errors=SCORED,
        parameters=(JobExplanationQuerySerializer, *HEADERS),
    )
    def get(self, request: Request, pk: uuid.UUID) -> Response:
        job = jobs_of(principal_of(request)).filter(pk=pk).first()
        if job is None:
            raise Http404
        given = query_of(request, JobExplanationQuerySerializer)
        asked = asked_by(request, "/api/v1/jobs/{id}/explanation")
        stage = job_stage(job, given.get("stage"))
        return explanation_response(
            result_explain(asked=asked, stage=stage, query=given["query"], document=given["document"])
        )


@extend_schema(tags=["score requests"])
class ItemExplanationView(ScoringView):
    @operation(
        "Why an item of a kept request has its score",
        description=f"{WHAT} `stored` says whether it is the score that the request was answered with.",
        answer=ExplanationSerializer,
        example=EXAMPLE,
        errors=SCORED,
        parameters=(ItemQuerySerializer, *HEADERS),
    )
    def get(self, request: Request, pk: uuid.UUID) -> Response:
        rows = ScoreRequest.objects.for_team(principal_of(request).team).select_related("model")
        row = rows.filter(pk=pk).first()
        if row is None:
            raise Http404
        index = query_of(request, ItemQuerySerializer)["index"]
        asked = asked_by(request, "/api/v1/score-requests/{id}/explanation")
        return explanation_response(item_explain(asked=asked, row=row, index=index))


def asked_by(request: Request, endpoint: str) -> Asked:
    return Asked(
        principal=principal_of(request),
        endpoint=endpoint,
        timeout_ms=timeout_of(request),
        request_id=getattr(request, "request_id", ""),
        caller=caller_of(request._request),
    )


def explanation_response(found: Explanation) -> Response:
    item, why = found.item, found.why
    matches = why.matches
    stored = found.stored
    return answer_response(
        found.answer,
        kind=found.answer.model.kind,
        result={"index": 0, **outcome(item)},
        score=item.score,
        stored=None if stored is None else {"raw_score": stored.raw_score, "agrees": stored.agrees},
        notes=found.notes,
        rows=[asdict(row) for row in why.rows],
        parts=[asdict(part) for part in why.parts],
        matches=_matches(matches) if matches else [],
        similarities=_rounded(matches) if matches else [],
        document_tokens=matches.document_places if matches else [],
        terms=[asdict(term) for term in why.terms],
        labels=[{"label": label, "probability": probability} for label, probability in found.labels],
        cut={"query": why.cut_query, "document": why.cut_document},
    )


def _matches(matches: SyncMatches) -> list[dict[str, Any]]:
    found = zip(matches.query_places, matches.best, matches.contributions, strict=True)
    return [
        {"query_token": place, "document_token": matches.document_places[best], "contribution": contribution}
        for place, best, contribution in found
    ]


def _rounded(matches: SyncMatches) -> list[list[float | None]]:
    return [
        [round(value, DIGITS) if isfinite(value) else None for value in row] for row in similarities(matches).tolist()
    ]
