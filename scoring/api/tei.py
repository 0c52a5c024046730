"""The shapes of text-embeddings-inference: ``/embed``, ``/embed_sparse``, ``/embed_all``, ``/predict`` and its
``/rerank``. Answers are bare lists; its servers have one model, so ``model`` is ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.principal import principal_of
from assay.api.serializers import CallSerializer, StrictBooleanField, StrictIntegerField, TextField, given_names
from scoring.api.items import shown
from scoring.api.openapi import SCORED, operation
from scoring.api.pooled import bare_response, pooled
from scoring.api.rerank import RerankAnswerSerializer, RerankSerializer, reranked
from scoring.api.synchronous import HEADERS, ScoringView, answer_headers, client_names, scored, validated
from scoring.api.token_ids import InputsField
from scoring.models.scoring_model import ModelKind
from scoring.payloads import SyncOptions
from scoring.selectors.models import (
    CLASSIFIERS,
    EMBEDDERS,
    RERANKERS,
    SPARSE_EMBEDDERS,
    TOKEN_EMBEDDERS,
    model_for_request,
)
from scoring.services.pooling import PoolingAnswer, numbers

OWN_FIELDS: Final = {"raw_scores", "return_text", "truncate", "truncation_direction"}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


LABEL_SCORES: Final = {"type": "array", "items": _object(score={"type": "number"}, label={"type": "string"})}


class TeiSerializer(CallSerializer):
    model = TextField(required=False, help_text="A registered name; absent: the endpoint's default model")
    truncate = StrictBooleanField(
        default=True,
        allow_null=True,
        help_text="Of a text over the limit: cut its end (true, null), or refuse the request",
    )
    truncation_direction = serializers.ChoiceField(
        ["right", "Right"], default="right", help_text="Only a text's end is ever cut"
    )


class TeiInputsSerializer(TeiSerializer):
    inputs = InputsField(help_text="A text, several, or token ids in their place, which are read as they are")
    prompt_name = serializers.ChoiceField(
        ["query", "document"], required=False,
        help_text="Which of the model's prompts the texts get, if it has any; absent: the document's",
    )  # fmt: skip


class TeiEmbedSerializer(TeiInputsSerializer):
    normalize = StrictBooleanField(default=True, help_text="To vectors of length one")
    dimensions = StrictIntegerField(
        required=False, min_value=1, help_text="Of models trained to be shortened (Matryoshka)"
    )


def _options(fields: Mapping[str, Any], **more: Any) -> SyncOptions:
    return SyncOptions(
        truncation="error" if fields["truncate"] is False else "document",
        role=fields.get("prompt_name") or "document",
        **more,
    )


def _embedded(
    request: Request, fields: Mapping[str, Any], kinds: Sequence[ModelKind], task: str, **more: Any
) -> PoolingAnswer:
    model = model_for_request(principal=principal_of(request), name=fields.get("model"), kinds=kinds)
    options = _options(fields, **more)
    return pooled(request, model=model, inputs=fields["inputs"], task=task, options=options, param="inputs", whole=True)


@extend_schema(tags=["single texts"])
class EmbedView(ScoringView):
    @operation(
        "Embed texts, one vector each, as a bare list",
        request=TeiEmbedSerializer,
        request_example={"inputs": ["Cats purr."]},
        answer={"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        example=[[0.012, 0.088, -0.093]],
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        fields = validated(TeiEmbedSerializer, request)
        more = {"normalize": fields["normalize"], "dimensions": fields.get("dimensions")}
        answer = _embedded(request, fields, EMBEDDERS, "embed", **more)
        return bare_response(answer, [numbers(item.vector) for item in answer.items if item.vector is not None])


@extend_schema(tags=["single texts"])
class EmbedSparseView(ScoringView):
    @operation(
        "Weights of token ids for texts, as a bare list",
        request=TeiInputsSerializer,
        request_example={"inputs": ["Cats purr."]},
        answer={
            "type": "array",
            "items": {"type": "array", "items": _object(index={"type": "integer"}, value={"type": "number"})},
        },
        example=[[{"index": 4937, "value": 1.9}]],
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        fields = validated(TeiInputsSerializer, request)
        answer = _embedded(request, fields, SPARSE_EMBEDDERS, "embed")
        body = [
            [
                {"index": token_id, "value": weight}
                for token_id, weight in zip(item.payload.token_ids, item.sparse_weights, strict=True)
            ]
            for item in answer.items
        ]
        return bare_response(answer, body)


@extend_schema(tags=["single texts"])
class EmbedAllView(ScoringView):
    @operation(
        "Embed texts, one vector for each of their tokens, as a bare list",
        description="For late-interaction and hybrid models: the vectors that MaxSim compares.",
        request=TeiInputsSerializer,
        request_example={"inputs": "Cats purr."},
        answer={
            "type": "array",
            "items": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        },
        example=[[[0.012, 0.088], [0.031, -0.127]]],
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        fields = validated(TeiInputsSerializer, request)
        answer = _embedded(request, fields, TOKEN_EMBEDDERS, "token_embed")
        rows = [item.token_vectors for item in answer.items]
        return bare_response(answer, [[] if vectors is None else numbers(vectors) for vectors in rows])


@extend_schema_field({
    "oneOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1},
        {
            "type": "array",
            "items": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1},
            "minItems": 1,
        },
    ]
})  # fmt: skip
class PredictInputsField(serializers.Field[Any, Any, Any, Any]):
    """``"text"`` or ``["text"]`` for one text, ``[["a"], ["b"]]`` for several; a list of two is a pair there."""

    default_error_messages: ClassVar = {
        "pair": "A list of two texts is a pair, and classifiers read one text at a time. For several texts give "
        '[["…"], ["…"]]; pairs are scored by /rerank and /score.',
        "empty": "The list is empty; give at least one text.",
        "not_a_text": 'Give "…", ["…"], or [["…"], ["…"]] for several texts, not {given}.',
    }

    def to_internal_value(self, data: Any) -> str | list[str]:
        if isinstance(data, str):
            return data
        if not isinstance(data, list):
            self.fail("not_a_text", given=shown(data))
        if not data:
            self.fail("empty")
        if all(isinstance(each, list) for each in data):
            return [self._alone(each) for each in data]
        return self._alone(data)

    def _alone(self, given: list[Any]) -> str:
        if len(given) == 2 and all(isinstance(each, str) for each in given):
            self.fail("pair")
        if len(given) != 1 or not isinstance(given[0], str):
            self.fail("not_a_text", given="a list of other things")
        return str(given[0])


class PredictSerializer(TeiSerializer):
    inputs = PredictInputsField(help_text="One text, or several as lists of one")
    raw_scores = StrictBooleanField(default=False, help_text="true: logits instead of shares")


@extend_schema(tags=["single texts"])
class PredictView(ScoringView):
    @operation(
        "Shares of labels for one text or several, the best first, as a bare list",
        request=PredictSerializer,
        request_example={"inputs": "Cats purr."},
        answer={"oneOf": [LABEL_SCORES, {"type": "array", "items": LABEL_SCORES}]},
        example=[{"score": 0.88, "label": "positive"}, {"score": 0.12, "label": "negative"}],
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        fields = validated(PredictSerializer, request)
        one = isinstance(fields["inputs"], str)
        answer = pooled(
            request,
            model=model_for_request(principal=principal_of(request), name=fields.get("model"), kinds=CLASSIFIERS),
            inputs=[fields["inputs"]] if one else fields["inputs"],
            task="classify",
            options=_options(fields, use_activation=not fields["raw_scores"]),
            param="inputs",
            whole=True,
        )
        ranked = [_ranked(numbers(item.classes), answer.labels) for item in answer.items if item.classes is not None]
        return bare_response(answer, ranked[0] if one else ranked)


def _ranked(scores: list[float], labels: list[str]) -> list[dict[str, Any]]:
    rows = [{"score": score, "label": label} for score, label in zip(scores, labels, strict=True)]
    return sorted(rows, key=lambda row: -float(str(row["score"])))


class TeiRerankSerializer(TeiSerializer):
    query = TextField()
    texts = serializers.ListField(child=TextField(), allow_empty=False)
    raw_scores = StrictBooleanField(
        default=False, help_text="true: a cross-encoder's raw logits; the scores of other kinds are raw as they are"
    )
    return_text = StrictBooleanField(default=False)


class TeiRankSerializer(serializers.Serializer[Any]):
    index = serializers.IntegerField(help_text="Position in the submitted list")
    score = serializers.FloatField(allow_null=True, help_text="Null, and last, for a text that holds nothing")
    text = serializers.CharField(required=False)


def _is_tei(body: Any) -> bool:
    """``texts``, and nothing that its ``/rerank`` does not have, or something that only it has."""
    given = given_names(body)
    return "texts" in given and (bool(given & OWN_FIELDS) or given <= {"query", "texts"})


@extend_schema(tags=["scoring"])
class RootRerankView(ScoringView):
    @operation(
        "Rank documents by their relevance to a query",
        description="Two shapes. A body with `texts` that holds nothing beside `query`, or "
        "any of `raw_scores`, `return_text`, `truncate`, `truncation_direction`, is text-embeddings-inference's and is "
        "answered by a bare list, the best first. Every other body is as on `/v1/rerank`.",
        request=PolymorphicProxySerializer(
            component_name="RootRerank",
            serializers=[RerankSerializer, TeiRerankSerializer],
            resource_type_field_name=None,
            many=False,
        ),
        request_example={"query": "capital of Peru?", "texts": ["Cats purr.", "Lima is the capital of Peru."]},
        answer=PolymorphicProxySerializer(
            component_name="RootRerankAnswer",
            serializers=[RerankAnswerSerializer, TeiRankSerializer(many=True)],
            resource_type_field_name=None,
            many=False,
        ),
        example=[{"index": 1, "score": 0.8519}, {"index": 0, "score": 0.0214}],
        errors=SCORED,
        parameters=HEADERS,
    )
    def post(self, request: Request) -> Response:
        if not _is_tei(request.data):
            return reranked(request)
        fields = validated(TeiRerankSerializer, request)
        named = model_for_request(principal=principal_of(request), name=fields.get("model"), kinds=RERANKERS)
        # Of every other kind the scores are raw as they are.
        activated = not fields["raw_scores"] or named.kind != ModelKind.CROSS_ENCODER
        options = _options(fields, use_activation=activated)
        with client_names(documents="texts"):
            answer = scored(request, {**fields, "model": named.name}, queries=[fields["query"]], options=options)
        body = []
        for item in answer.ranked():
            text = {"text": fields["texts"][item.index]} if fields["return_text"] else {}
            body.append({"index": item.index, **text, "score": item.score})
        return Response(body, headers=answer_headers(answer))
