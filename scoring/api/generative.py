"""``/generative_scoring``: the probability of an answer such as "yes", read off a causal model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.serializers import StrictBooleanField, TextField
from scoring.api.items import id_of
from scoring.api.openapi import SCORED, operation
from scoring.api.synchronous import (
    ABOUT_EXAMPLE,
    ENVELOPE_EXAMPLE,
    HEADERS,
    AnswerSerializer,
    OutcomeSerializer,
    ScoringSerializer,
    ScoringView,
    answer_response,
    options_of,
    outcome,
    scored,
    validated,
)
from scoring.api.token_ids import ItemsField, LabelIdsField, QueryField
from scoring.payloads import SyncLabels
from scoring.ranking import decimals
from scoring.selectors.models import GENERATIVE

MAX_LABELS = 128


class GenerativeSerializer(ScoringSerializer):
    documents_field = "items"
    aliases: ClassVar[Mapping[str, str]] = {"documents": "items", "texts": "items"}

    query = QueryField(help_text="A text, or token ids, which are joined with the items as they are")
    items = ItemsField(help_text="Texts and objects, or lists of token ids; then no template is used")
    labels = serializers.ListField(
        child=TextField(allow_blank=False), required=False, min_length=1, max_length=MAX_LABELS,
        help_text="The answers to weigh, the one that counts as the score first; absent: the model's own",
    )  # fmt: skip
    label_token_ids = serializers.ListField(
        child=LabelIdsField(), required=False, min_length=1, max_length=MAX_LABELS,
        help_text="The same as token ids: one each, or a list for a label of several tokens",
    )  # fmt: skip
    apply_softmax = StrictBooleanField(default=True, help_text="Among the labels; false: among the whole vocabulary")
    item_first = StrictBooleanField(default=False)
    add_special_tokens = StrictBooleanField(
        default=True, help_text="To a query given as text beside items given as token ids"
    )
    template = TextField(default="", help_text="Jinja with {{ query }} and {{ item }}; absent: the model's own")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "labels" in attrs and "label_token_ids" in attrs:
            message = "Both labels and label_token_ids were given; give one of them."
            raise serializers.ValidationError({"label_token_ids": [message]}, code="given_twice")
        for name in ("labels", "label_token_ids"):
            values = [tuple(each) if isinstance(each, list) else each for each in attrs.get(name, [])]
            if len(set(values)) < len(values):
                raise serializers.ValidationError({name: ["A label is given more than once; give each one once."]})
            if len(values) == 1 and attrs["apply_softmax"]:
                message = "One label alone always has the probability 1; give two, or set apply_softmax to false."
                raise serializers.ValidationError({name: [message]})
        if isinstance(attrs["items"][0], list):
            return {**attrs, "texts": attrs["items"]}
        return super().validate(attrs)


class LabelSerializer(serializers.Serializer[Any]):
    label = serializers.CharField()  # type: ignore[assignment]
    token_ids = serializers.ListField(child=serializers.IntegerField())
    probability = serializers.FloatField(allow_null=True)
    logprob = serializers.FloatField(allow_null=True)


class GenerativeItemSerializer(OutcomeSerializer):
    object = serializers.CharField()
    score = serializers.FloatField(allow_null=True, help_text="The first label's probability")
    id = serializers.JSONField(required=False, help_text="The item's own id, if it was sent with one")
    labels = LabelSerializer(many=True)


class GenerativeAnswerSerializer(AnswerSerializer):
    data = GenerativeItemSerializer(many=True)  # type: ignore[assignment]


@extend_schema(tags=["scoring"])
class GenerativeView(ScoringView):
    @operation(
        "Ask a causal model about every item and read the labels' probabilities",
        description="The prompt is the template filled with the query and one item; only the item is ever cut. "
        "`score` is the first label's probability; `labels` holds all of them. The logarithm of a label of several "
        "tokens is the sum over its tokens. Query and items given as token ids are joined without a template.",
        request=GenerativeSerializer,
        request_example={
            "query": "Is this about cats?",
            "items": ["Cats purr.", "Rain falls."],
            "labels": ["yes", "no"],
        },
        answer=GenerativeAnswerSerializer,
        example={
            **ENVELOPE_EXAMPLE,
            "model": "smollm2-judge",
            "assay": {**ABOUT_EXAMPLE, "scale": "probability"},
            "data": [
                {
                    "index": index,
                    "object": "score",
                    "score": yes,
                    "raw_score": raw,
                    "status": "ok",
                    "labels": [
                        {"label": "yes", "token_ids": [9005], "probability": yes, "logprob": -0.51},
                        {"label": "no", "token_ids": [2901], "probability": no, "logprob": -0.92},
                    ],
                }
                for index, yes, no, raw in ((0, 0.6, 0.4, 0.4055), (1, 0.3, 0.7, -0.8473))
            ],
        },
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        fields = validated(GenerativeSerializer, request)
        names = ("labels", "label_token_ids", "apply_softmax", "item_first", "template", "add_special_tokens")
        options = options_of(fields, **{name: fields[name] for name in names if name in fields})
        answer = scored(request, fields, queries=[fields["query"]], options=options, kinds=GENERATIVE)
        data = [
            {
                "index": item.index,
                "object": "score",
                "score": item.score,
                **outcome(item),
                **id_of(fields["items"][item.index]),
                "labels": labels_of(answer.reply.labels, item.index),
            }
            for item in answer.items
        ]
        return answer_response(answer, data=data)


def labels_of(labels: SyncLabels | None, index: int) -> list[dict[str, Any]]:
    if labels is None:
        return []
    probabilities, logprobs = decimals(labels.probabilities[index]), decimals(labels.logprobs[index])
    columns = zip(labels.labels, labels.token_ids, probabilities, logprobs, strict=True)
    return [
        {"label": label, "token_ids": token_ids, "probability": probability, "logprob": logprob}
        for label, token_ids, probability, logprob in columns
    ]
