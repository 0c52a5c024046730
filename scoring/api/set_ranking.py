"""``/api/v1/document-sets/{id}/rank``: one query, the documents of a stored set, best first."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar, Final

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.principal import principal_of
from assay.api.serializers import CallSerializer, StrictBooleanField, StrictIntegerField, TextField
from assay.callers import caller_of
from assay.errors import AssayError
from scoring.api.openapi import SCORED, operation
from scoring.api.rerank import EchoField
from scoring.api.resources import team_set
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
from scoring.models import DocumentSet
from scoring.payloads import SyncOptions
from scoring.selectors.models import RERANKERS, model_for_request
from scoring.services.set_ranking import MAX_IDS, Candidates, set_rank
from scoring.services.stage_plan import MAX_RETRIEVED

ENDPOINT: Final = "/api/v1/document-sets/{id}/rank"  # as requests to it are listed and counted
SET: Final = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a11",
    "version": "5b0f0b1d8c6f4f4d7a1c2f0e9b8a7d6c5e4f3a2b1c0d9e8f7a6b5c4d3e2f1a0b",
}


class RankCandidatesSerializer(CallSerializer):
    """One of the two."""

    ids = serializers.ListField(
        child=TextField(allow_blank=False), required=False, allow_empty=False, max_length=MAX_IDS,
        help_text="Ids of documents of the set; one given twice is ranked once",
    )  # fmt: skip
    bm25 = StrictIntegerField(
        required=False, min_value=1, max_value=MAX_RETRIEVED, help_text="So many, the best by BM25"
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if len(attrs) != 1:
            raise serializers.ValidationError('Give either {"ids": [...]} or {"bm25": k}, or no candidates for all.')
        return attrs


class RankSerializer(CallSerializer):
    query = TextField()
    model = TextField(
        required=False, allow_blank=False,
        help_text="A registered name; absent: the endpoint's default model",
    )  # fmt: skip
    version = TextField(required=False, allow_blank=False, help_text="The set's checksum, if it must be that: else 409")
    candidates = RankCandidatesSerializer(required=False, help_text="Absent or null: all documents")
    top_n = StrictIntegerField(required=False, min_value=1, help_text="Absent or null: all")
    return_documents = StrictBooleanField(default=False)
    instruction = TextField(default="", help_text="What counts as relevant, for models that take an instruction")
    max_tokens_per_query = StrictIntegerField(required=False, min_value=0, help_text="0 or null: no limit")
    use_activation = StrictBooleanField(
        default=True, help_text="false: a cross-encoder's raw logit as the score, instead of a probability"
    )
    dimensions = StrictIntegerField(
        required=False, min_value=1,
        help_text="Of bi-encoders trained to be shortened (Matryoshka): score by so many dimensions of their vectors",
    )  # fmt: skip
    priority = StrictIntegerField(
        default=0, min_value=0, max_value=999, help_text="0: before jobs; anything above: behind interactive requests"
    )


class SetVersionSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    version = serializers.CharField(help_text="The set's checksum: its documents never change")


class RankResultSerializer(OutcomeSerializer):
    index = serializers.IntegerField(help_text="The document's place in the set, from 0")
    id = serializers.CharField(help_text="The document's own id")
    score = serializers.FloatField(allow_null=True)
    document = EchoField(required=False, help_text="Absent unless return_documents")


class RankAnswerSerializer(AnswerSerializer):
    document_set = SetVersionSerializer()
    results = RankResultSerializer(many=True)


@extend_schema(tags=["document sets"])
class SetRankView(ScoringView):
    required_scope: ClassVar[str] = "jobs"  # as whatever else scores a stored set, or shows its texts

    @operation(
        "Rank the documents of a stored set by their relevance to a query",
        description="Answered at once. Models that read a document by itself (bi-encoders, late interaction, sparse "
        "and hybrid models) rank from the set's encodings, which are kept once they are made: until then up to "
        "`limits.max_documents_per_request` documents are scored from their texts, and for more the answer is 503 "
        "`set_not_encoded` while they are encoded; come again after `Retry-After`. Other models rank up to that many "
        "candidates. Documents without a score come last.",
        request=RankSerializer,
        request_example={"query": "how do I descale a kettle?", "model": "late", "top_n": 1},
        answer=RankAnswerSerializer,
        example={
            **ENVELOPE_EXAMPLE,
            "model": "late",
            "document_set": SET,
            "results": [{"index": 0, "id": "d1", "score": 21.5, "raw_score": 21.5, "status": "ok"}],
        },
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request, pk: uuid.UUID) -> Response:
        principal = principal_of(request)
        document_set = team_set(principal, DocumentSet, pk, param=None, noun="document set")
        fields = validated(RankSerializer, request)
        check_version(document_set, fields.get("version"))
        answer = set_rank(
            principal=principal,
            endpoint=ENDPOINT,
            document_set=document_set,
            model=model_for_request(principal=principal, name=fields.get("model"), kinds=RERANKERS),
            query=fields["query"],
            candidates=Candidates(**(fields.get("candidates") or {})),
            top_n=fields.get("top_n"),
            with_texts=fields["return_documents"],
            options=rank_options(fields),
            timeout_ms=timeout_of(request),
            request_id=getattr(request, "request_id", ""),
            caller=caller_of(request._request),
        )
        results = [
            {"index": each.item.index, "id": each.id, "score": each.item.score, **outcome(each.item)}
            | ({} if each.text is None else {"document": {"text": each.text}})
            for each in answer.documents
        ]
        about = {"id": str(document_set.pk), "version": document_set.checksum}
        return answer_response(answer.scored, document_set=about, results=results)


def rank_options(fields: dict[str, Any]) -> SyncOptions:
    return SyncOptions(
        max_tokens_per_query=fields.get("max_tokens_per_query") or None,
        instruction=fields["instruction"],
        use_activation=fields["use_activation"],
        dimensions=fields.get("dimensions"),
        priority="batch" if fields["priority"] else "interactive",
    )


def check_version(document_set: DocumentSet, version: str | None) -> None:
    if version is not None and version != document_set.checksum:
        raise AssayError(
            "other_version",
            f"The version {version[:80]!r} was asked for, and the set's is {document_set.checksum}. Leave it out, or "
            "name the set that was made of that file.",
            status=409,
            param="version",
        )
