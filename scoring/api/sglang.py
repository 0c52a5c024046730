"""``/v1/score``: pairs as on ``/score``, or SGLang's shape, told by its ``label_token_ids``."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.serializers import CallSerializer, StrictBooleanField, StrictIntegerField, TextField, given_names
from scoring.api.generative import MAX_LABELS, labels_of
from scoring.api.openapi import SCORED, operation
from scoring.api.score import ScoreAnswerSerializer, ScoreSerializer, pairs_scored
from scoring.api.synchronous import (
    HEADERS,
    ScoringView,
    UsageSerializer,
    answer_headers,
    client_names,
    scored,
    validated,
)
from scoring.api.token_ids import MAX_ID, InputsField, QueryField
from scoring.payloads import SyncOptions
from scoring.selectors.models import GENERATIVE

JOINED = {False: "{{ query }}{{ item }}", True: "{{ item }}{{ query }}"}


class SglangScoreSerializer(CallSerializer):
    model = TextField(required=False, help_text="A generative model; absent: the default one of that kind")
    query = QueryField(help_text="A text, or token ids")
    items = InputsField(help_text="Texts, or lists of token ids")
    label_token_ids = serializers.ListField(
        child=StrictIntegerField(min_value=0, max_value=MAX_ID), min_length=1, max_length=MAX_LABELS,
        help_text="The tokens whose probability behind query and item is asked for",
    )  # fmt: skip
    apply_softmax = StrictBooleanField(default=False, help_text="Among the labels; false: among the whole vocabulary")
    item_first = StrictBooleanField(default=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        labels = attrs["label_token_ids"]
        if len(set(labels)) < len(labels):
            raise serializers.ValidationError({"label_token_ids": ["A token is given more than once; give it once."]})
        if len(labels) == 1 and attrs["apply_softmax"]:
            message = "One label alone always has the probability 1; give two, or set apply_softmax to false."
            raise serializers.ValidationError({"label_token_ids": [message]})
        return attrs


class SglangScoreAnswerSerializer(serializers.Serializer[Any]):
    scores = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField(allow_null=True)),
        help_text="For every item a number per label; null for an item that holds nothing",
    )
    model = serializers.CharField()
    object = serializers.CharField()
    usage = UsageSerializer()


@extend_schema(tags=["scoring"])
class V1ScoreView(ScoringView):
    @operation(
        "Score pairs, or read the probabilities of label tokens",
        description="Two shapes. A body with `label_token_ids` is SGLang's: query and item, joined as they are without "
        "a template, and how likely each of these tokens is behind them. Every other body is as on `/score`.",
        request=PolymorphicProxySerializer(
            component_name="V1Score",
            serializers=[ScoreSerializer, SglangScoreSerializer],
            resource_type_field_name=None,
        ),
        request_example={
            "model": "smollm2-judge",
            "query": "Is Lima the capital of Peru? Answer: ",
            "items": ["yes or no:"],
            "label_token_ids": [9005, 2901],
            "apply_softmax": True,
        },
        answer=PolymorphicProxySerializer(
            component_name="V1ScoreAnswer",
            serializers=[ScoreAnswerSerializer, SglangScoreAnswerSerializer],
            resource_type_field_name=None,
            many=False,
        ),
        example={
            "scores": [[0.8, 0.2]],
            "model": "smollm2-judge",
            "object": "scoring",
            "usage": {"prompt_tokens": 14, "total_tokens": 14},
        },
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        if "label_token_ids" not in given_names(request.data):
            return pairs_scored(request)
        fields = validated(SglangScoreSerializer, request)
        query, items, first = fields["query"], fields["items"], fields["item_first"]
        texts = isinstance(query, str) and isinstance(items[0], str)
        options = SyncOptions(
            label_token_ids=fields["label_token_ids"],
            apply_softmax=fields["apply_softmax"],
            item_first=first and not texts,
            template=JOINED[first] if texts else "",
            add_special_tokens=False,
        )
        given = {**fields, "texts": items}
        with client_names(documents="items", labels="label_token_ids"):
            answer = scored(request, given, queries=[query], options=options, kinds=GENERATIVE)
        tokens = answer.reply.prompt_tokens
        labels = answer.reply.labels
        body = {
            "scores": [[label["probability"] for label in labels_of(labels, item.index)] for item in answer.items],
            "model": answer.model.name,
            "object": "scoring",
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
        return Response(body, headers=answer_headers(answer))
