"""``/tokenize`` and ``/detokenize``: what a model reads of a text, or of a query and a document as it scores them."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.principal import principal_of
from assay.api.serializers import CallSerializer, StrictBooleanField, StrictIntegerField, TextField
from scoring.api.openapi import SCORED, operation
from scoring.api.pooled import bare_response, pooled
from scoring.api.synchronous import HEADERS, ScoringView, validated
from scoring.api.token_ids import MAX_ID
from scoring.payloads import SyncOptions, SyncRow, TokenTask
from scoring.selectors.models import CLASSIFIERS, RERANKERS, model_for_request

READERS: Final = (*RERANKERS, *CLASSIFIERS)


class TokenizeSerializer(CallSerializer):
    model = TextField(required=False, help_text="A registered name; absent: the default model")
    prompt = TextField(required=False, help_text="A text by itself, uncut")
    query = TextField(required=False, help_text="With document: what the scorer reads of the two, cut as then")
    document = TextField(required=False)
    instruction = TextField(default="", help_text="With query and document, for models that take one")
    add_special_tokens = StrictBooleanField(default=True, help_text="To a prompt: the control tokens around a text")
    return_token_strs = StrictBooleanField(default=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        given = {"prompt", "query", "document"} & attrs.keys()
        if given not in ({"prompt"}, {"query", "document"}):
            what = ", ".join(sorted(given)) or "nothing"
            message = f"Give prompt, or query and document; given was {what}."
            raise serializers.ValidationError({"prompt": [message]}, code="prompt_or_pair")
        if "prompt" in attrs and attrs["instruction"]:
            message = "An instruction belongs to a query and a document; leave it out beside a prompt."
            raise serializers.ValidationError({"instruction": [message]})
        if "query" in attrs and not attrs["add_special_tokens"]:
            message = "A pair is told as it is scored, with its control tokens; leave it out beside a query."
            raise serializers.ValidationError({"add_special_tokens": [message]})
        return attrs


class TokenRowSerializer(serializers.Serializer[Any]):
    role = serializers.CharField(help_text="query, document, or prompt: both of them in one row")
    tokens = serializers.ListField(child=serializers.IntegerField())
    token_strs = serializers.ListField(child=serializers.CharField(allow_blank=True), required=False)


class TokenizeAnswerSerializer(serializers.Serializer[Any]):
    count = serializers.IntegerField()
    max_model_len = serializers.IntegerField(allow_null=True)
    tokens = serializers.ListField(child=serializers.IntegerField(), help_text="Of all rows, one after the other")
    token_strs = serializers.ListField(child=serializers.CharField(allow_blank=True), required=False)
    rows = TokenRowSerializer(many=True, help_text="What the model reads in one go: two where it encodes them apart")


@extend_schema(tags=["single texts"])
class TokenizeView(ScoringView):
    @operation(
        "Token ids of a text, or of a query and a document as they are scored",
        description="Literal control tokens in a text are text here too. A side that holds nothing has no row.",
        request=TokenizeSerializer,
        request_example={"model": "minilm", "prompt": "Cats purr.", "return_token_strs": True},
        answer=TokenizeAnswerSerializer,
        example={
            "count": 4,
            "max_model_len": 256,
            "tokens": [101, 8870, 24479, 102],
            "token_strs": ["[CLS]", "cats", "purr", "[SEP]"],
            "rows": [
                {
                    "role": "document",
                    "tokens": [101, 8870, 24479, 102],
                    "token_strs": ["[CLS]", "cats", "purr", "[SEP]"],
                }
            ],
        },
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        fields = validated(TokenizeSerializer, request)
        model = model_for_request(principal=principal_of(request), name=fields.get("model"), kinds=READERS)
        param = "prompt" if "prompt" in fields else "document"
        options = SyncOptions(
            instruction=fields["instruction"],
            add_special_tokens=fields["add_special_tokens"],
            return_tokens=fields["return_token_strs"],
        )
        text, query = fields[param], fields.get("query")
        answer = pooled(
            request, model=model, inputs=[text], query=query, task=TokenTask.TOKENIZE, options=options, param=param
        )
        rows = answer.items[0].payload.rows
        whole = SyncRow(
            role="",
            token_ids=[i for row in rows for i in row.token_ids],
            tokens=[t for row in rows for t in row.tokens],
        )
        named = fields["return_token_strs"]
        body = {
            "count": len(whole.token_ids),
            "max_model_len": model.facts.get("max_length"),
            **_told(whole, named),
            "rows": [{"role": row.role, **_told(row, named)} for row in rows],
        }
        return bare_response(answer, body)


def _told(row: SyncRow, named: bool) -> dict[str, Any]:
    return {"tokens": row.token_ids, **({"token_strs": row.tokens} if named else {})}


class DetokenizeSerializer(CallSerializer):
    model = TextField(required=False, help_text="A registered name; absent: the default model")
    tokens = serializers.ListField(child=StrictIntegerField(min_value=0, max_value=MAX_ID), allow_empty=False)


class DetokenizeAnswerSerializer(serializers.Serializer[Any]):
    prompt = serializers.CharField(help_text="The text that the tokens stand for, control tokens by their names")


@extend_schema(tags=["single texts"])
class DetokenizeView(ScoringView):
    @operation(
        "The text that token ids stand for",
        request=DetokenizeSerializer,
        request_example={"model": "minilm", "tokens": [101, 8870, 24479, 102]},
        answer=DetokenizeAnswerSerializer,
        example={"prompt": "[CLS] cats purr [SEP]"},
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        fields = validated(DetokenizeSerializer, request)
        answer = pooled(
            request,
            model=model_for_request(principal=principal_of(request), name=fields.get("model"), kinds=READERS),
            inputs=[fields["tokens"]],
            task=TokenTask.DETOKENIZE,
            options=SyncOptions(),
            param="tokens",
        )
        return bare_response(answer, {"prompt": answer.items[0].payload.text})
