"""``/pooling`` and ``/classify``: what vLLM's clients ask of models that read one text at a time."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.principal import principal_of
from assay.api.serializers import StrictBooleanField, StrictIntegerField
from assay.errors import AssayError
from scoring.api.openapi import SCORED, operation
from scoring.api.pooled import (
    BASE64,
    POOLED_EXAMPLE,
    HowReadSerializer,
    InputSerializer,
    PooledAnswerSerializer,
    ReturnTokensSerializer,
    input_options,
    pooled,
    pooled_response,
)
from scoring.api.synchronous import HEADERS, ScoringView, how_read, validated
from scoring.models.scoring_model import ModelKind
from scoring.selectors.models import CLASSIFIERS, EMBEDDERS, POOLERS, TOKEN_EMBEDDERS, model_for_request
from scoring.services.pooling import Floats, PooledItem, numbers

BOTH: Final = "embed&token_classify"
# Who can do it, and in which order a default model is looked for.
KINDS: Final = {
    "embed": (*EMBEDDERS, ModelKind.SPARSE),
    "classify": CLASSIFIERS,
    "token_embed": TOKEN_EMBEDDERS,
    "token_classify": (*CLASSIFIERS, ModelKind.HYBRID),
    BOTH: (ModelKind.HYBRID,),
}
USUAL: Final = {ModelKind.LATE_INTERACTION: "token_embed", ModelKind.CLASSIFIER: "classify"}


class PoolingSerializer(InputSerializer, ReturnTokensSerializer):
    aliases: ClassVar[Mapping[str, str]] = {"softmax": "use_activation", "activation": "use_activation"}

    task = serializers.ChoiceField(list(KINDS), required=False, help_text="Absent: what models of this kind mostly do")
    encoding_format = serializers.ChoiceField(
        ["float", BASE64], default="float", help_text="Of vectors: numbers, or base64 of little-endian float32"
    )
    dimensions = StrictIntegerField(
        required=False, min_value=1, help_text="Of models trained to be shortened (Matryoshka)"
    )
    normalize = StrictBooleanField(required=False, help_text="Vectors of length one; absent: as the checkpoint does")
    use_activation = StrictBooleanField(default=True, help_text="Of classes: shares; false: logits")


@extend_schema_field({
    "oneOf": [
        {"type": "array", "items": {}, "description": "Numbers, rows of numbers, or weighted tokens"},
        {"type": "string", "description": "base64 of the numbers, row by row"},
        {"type": "null"},
    ]
})  # fmt: skip
class DataField(serializers.Field[Any, Any, Any, Any]):
    """What the task gives for one text; null for one that holds nothing."""


class WeightedTokenSerializer(serializers.Serializer[Any]):
    token_id = serializers.IntegerField()
    token = serializers.CharField()
    weight = serializers.FloatField()


class SpanSerializer(serializers.Serializer[Any]):
    label = serializers.CharField()  # type: ignore[assignment]
    score = serializers.FloatField()
    start = serializers.IntegerField(help_text="First character in the text as it was sent")
    end = serializers.IntegerField(help_text="Last character plus one")


class PoolingItemSerializer(HowReadSerializer):
    object = serializers.CharField()
    data = DataField()  # type: ignore[assignment]
    sparse = WeightedTokenSerializer(many=True, required=False, help_text="Beside a hybrid model's vector")
    token_data = DataField(required=False, help_text=f"With {BOTH}: each token's weight")
    labels = serializers.ListField(child=serializers.CharField(), required=False, help_text="Of classes, in order")
    spans = SpanSerializer(many=True, required=False, help_text="Neighbouring tokens of one label")
    token_ids = serializers.ListField(child=serializers.IntegerField(), required=False)
    tokens = serializers.ListField(child=serializers.CharField(), required=False)


class PoolingAnswerSerializer(PooledAnswerSerializer):
    data = PoolingItemSerializer(many=True)  # type: ignore[assignment]


@extend_schema(tags=["single texts"])
class PoolingView(ScoringView):
    @operation(
        "Vectors, classes or weights of texts or of their tokens",
        description="`data` of each text: numbers for `embed` and `classify`, one row of numbers per token for "
        "`token_embed` and `token_classify`, weighted tokens for a sparse model's `embed`. With `return_tokens` each "
        "row's token is told.",
        request=PoolingSerializer,
        request_example={"model": "splade", "task": "embed", "input": "Cats purr."},
        answer=PoolingAnswerSerializer,
        example={
            **POOLED_EXAMPLE,
            "model": "splade",
            "data": [
                {
                    "index": 0,
                    "object": "pooling",
                    "data": [{"token_id": 4937, "token": "cat", "weight": 1.9}],
                    "status": "ok",
                }
            ],
        },
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        fields = validated(PoolingSerializer, request)
        kinds = KINDS[fields["task"]] if fields.get("task") else POOLERS
        model = model_for_request(principal=principal_of(request), name=fields.get("model"), kinds=kinds)
        if model.kind == ModelKind.SPARSE and fields["encoding_format"] == BASE64:
            message = f"'{model.name}' is a sparse model: its weighted tokens are no vector. Give float."
            raise AssayError("unsupported_option", message, status=422, param="encoding_format")
        task = fields.get("task") or USUAL.get(ModelKind(model.kind), "embed")
        sparse = task == "embed" and model.kind in (ModelKind.SPARSE, ModelKind.HYBRID)
        options = input_options(
            fields,
            dimensions=fields.get("dimensions"),
            normalize=fields.get("normalize"),
            use_activation=fields["use_activation"],
            return_tokens=fields["return_tokens"] or sparse,
        )
        user = fields.get("user", "")
        answer = pooled(request, model=model, inputs=fields["input"], task=task, options=options, user=user)
        return pooled_response(answer, [_item(item, fields, answer.labels) for item in answer.items])


def _item(item: PooledItem, fields: Mapping[str, Any], labels: list[str]) -> dict[str, Any]:
    """What one text became. A sparse vector is the data where there is no other."""
    encoding, payload = fields["encoding_format"], item.payload
    told: dict[str, Any] = {"index": item.index, "object": "pooling", "data": None}
    for values in (item.token_classes, item.token_vectors, item.classes, item.vector):
        if values is not None:
            shown = _shown(values, encoding)
            if told["data"] is not None:  # what was found for the tokens stands beside the text's own
                told["token_data"] = told["data"]
            told["data"] = shown
    if payload.weights:
        told["data" if told["data"] is None else "sparse"] = weighted_tokens(item)
    elif fields["return_tokens"]:
        told |= {"token_ids": payload.token_ids, "tokens": payload.tokens}
    if labels:
        told["labels"] = labels
    if payload.spans:
        told["spans"] = [dict(zip(("label", "score", "start", "end"), span, strict=True)) for span in payload.spans]
    return {**told, **how_read(item)}


def _shown(values: Floats, encoding: str) -> Any:
    return base64.b64encode(values.tobytes()).decode() if encoding == BASE64 else numbers(values)


def weighted_tokens(item: PooledItem) -> list[dict[str, Any]]:
    columns = zip(item.payload.token_ids, item.payload.tokens, item.sparse_weights, strict=True)
    return [{"token_id": token_id, "token": token, "weight": weight} for token_id, token, weight in columns]


class ClassifySerializer(InputSerializer):
    aliases: ClassVar[Mapping[str, str]] = {"softmax": "use_activation", "activation": "use_activation"}

    use_activation = StrictBooleanField(default=True, help_text="Shares of the labels; false: logits")


class ClassifiedSerializer(HowReadSerializer):
    label = serializers.CharField(allow_null=True, help_text="The likeliest one; null for a text without anything")  # type: ignore[assignment]
    probs = serializers.ListField(child=serializers.FloatField())
    num_classes = serializers.IntegerField()


class ClassifyAnswerSerializer(PooledAnswerSerializer):
    data = ClassifiedSerializer(many=True)  # type: ignore[assignment]


@extend_schema(tags=["single texts"])
class ClassifyView(ScoringView):
    @operation(
        "Classify texts: the likeliest label and every label's share",
        request=ClassifySerializer,
        request_example={"model": "sentiment", "input": ["Cats purr.", "Rain again."]},
        answer=ClassifyAnswerSerializer,
        example={
            **POOLED_EXAMPLE,
            "model": "sentiment",
            "data": [
                {"index": 0, "label": "positive", "probs": [0.12, 0.88], "num_classes": 2, "status": "ok"},
                {"index": 1, "label": "negative", "probs": [0.71, 0.29], "num_classes": 2, "status": "ok"},
            ],
        },
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        fields = validated(ClassifySerializer, request)
        answer = pooled(
            request,
            model=model_for_request(principal=principal_of(request), name=fields.get("model"), kinds=CLASSIFIERS),
            inputs=fields["input"],
            task="classify",
            options=input_options(fields, use_activation=fields["use_activation"]),
            user=fields.get("user", ""),
        )
        return pooled_response(answer, [_classified(item, answer.labels) for item in answer.items])


def _classified(item: PooledItem, labels: list[str]) -> dict[str, Any]:
    label = None if item.classes is None else labels[int(item.classes.argmax())]
    probs = [] if item.classes is None else numbers(item.classes)
    return {"index": item.index, "label": label, "probs": probs, "num_classes": len(labels), **how_read(item)}
