"""What the endpoints that score at once share: common fields, the call, headers, the parts of every answer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Final, cast

from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from assay.api.principal import principal_of
from assay.api.renderers import FastJSONRenderer
from assay.api.serializers import (
    CallSerializer,
    StrictBooleanField,
    StrictIntegerField,
    StrictSerializer,
    TextField,
    refuse_repeated,
)
from assay.callers import caller_of
from assay.errors import AssayError
from scoring.api.items import ranked_texts
from scoring.api.openapi import header
from scoring.models.scoring_model import ModelKind
from scoring.payloads import SyncOptions
from scoring.selectors.models import RERANKERS, model_for_request
from scoring.services.pooling import PooledItem, PoolingAnswer
from scoring.services.scoring import ScoredItem, ScoringAnswer, Side, scoring_run
from scoring.states import ItemStatus

PHASES: Final = ("queue", "tokenise", "forward", "maxsim", "total")
HEADERS: Final = (
    header("X-Timeout-Ms", "Give up after this many milliseconds; capped by a setting of the server", int),
    header("X-Request-Id", "A label of yours, echoed in the answer and in the log; never used as a key"),
)


class PromptTokensField(StrictIntegerField):
    """vLLM's ``truncate_prompt_tokens``; -1 becomes None, the model's own limit."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, min_value=-1, **kwargs)

    def run_validation(self, data: Any = empty) -> Any:
        tokens = super().run_validation(data)
        if tokens == 0:
            raise serializers.ValidationError("0 tokens leave nothing; give -1, or 1 and more.", code="min_value")
        return None if tokens == -1 else tokens


class TruncationSideField(serializers.ChoiceField):
    def __init__(self) -> None:
        super().__init__(["right"], default="right", help_text="Only a text's end is ever cut")


class ScoringSerializer(CallSerializer):
    """Fields that every scoring endpoint takes. ``documents_field`` is the name under which it takes its documents."""

    documents_field: ClassVar[str] = "documents"

    model = TextField(
        required=False, allow_blank=False,
        help_text="A registered name; absent: the endpoint's default model",
    )  # fmt: skip
    rank_fields = serializers.ListField(
        child=TextField(allow_blank=False), allow_empty=False, default=["text"],
        help_text="Of documents given as objects: the fields to rank; several are joined as `name: value` lines",
    )  # fmt: skip
    truncation = serializers.ChoiceField(
        ["document", "error"], default="document",
        help_text="Of a pair over the model's limit: cut the document and flag it, or refuse the request",
    )  # fmt: skip
    truncate_prompt_tokens = PromptTokensField(
        help_text="Tokens of a pair, its template included, of models that read both texts in one go; of the others "
        "tokens of each text. -1 or null: as many as the model can",
    )  # fmt: skip
    truncation_side = TruncationSideField()
    max_tokens_per_query = StrictIntegerField(required=False, min_value=0, help_text="0 or null: no limit")
    max_tokens_per_doc = StrictIntegerField(required=False, min_value=0, help_text="0 or null: no limit")
    long_documents = serializers.ChoiceField(
        ["truncate", "chunk_max"], default="truncate",
        help_text="Of documents over the model's limit: their beginning, or the best of windows over all of it",
    )  # fmt: skip
    chunk_overlap = StrictIntegerField(
        default=64, min_value=0, max_value=2**31 - 1,
        help_text="Tokens that a window of chunk_max shares with the one before; at most half of a window",
    )  # fmt: skip

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        param = self.documents_field
        attrs["texts"] = ranked_texts(attrs[param], attrs["rank_fields"], param=param)
        return attrs


class RerankingSerializer(ScoringSerializer):
    """Fields for endpoints whose models may be cross-encoders."""

    instruction = TextField(default="", help_text="What counts as relevant, for models that take an instruction")
    use_activation = StrictBooleanField(
        default=True, help_text="false: a cross-encoder's raw logit as the score, instead of a probability"
    )
    dimensions = StrictIntegerField(
        required=False, min_value=1,
        help_text="Of bi-encoders trained to be shortened (Matryoshka): score by so many dimensions of their vectors",
    )  # fmt: skip


def options_of(fields: Mapping[str, Any], **more: Any) -> SyncOptions:
    return SyncOptions(
        max_tokens_per_query=fields.get("max_tokens_per_query") or None,
        max_tokens_per_document=fields.get("max_tokens_per_doc") or None,
        max_tokens=fields.get("truncate_prompt_tokens"),
        truncation=fields["truncation"],
        instruction=fields.get("instruction", ""),
        use_activation=fields.get("use_activation", True),
        long_documents=fields["long_documents"],
        chunk_overlap=fields["chunk_overlap"],
        dimensions=fields.get("dimensions"),
        **more,
    )


class ScoringView(APIView):
    """A view whose ``post`` scores at once."""

    required_scope: ClassVar[str] = "score"
    renderer_classes = (FastJSONRenderer,)
    waits_for_model: ClassVar[bool] = True  # the server gives it a thread of those that may wait

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        refuse_repeated(request.query_params)


def validated(serializer_class: type[StrictSerializer], request: Request) -> dict[str, Any]:
    """The checked body. Raises ValidationError."""
    return cast("dict[str, Any]", _serializer_of(serializer_class).run_validation(request.data))


@cache
def _serializer_of(serializer_class: type[StrictSerializer]) -> StrictSerializer:
    """One for all requests: making one copies each of its fields, and checking a body leaves nothing in it."""
    return serializer_class()


def scored(
    request: Request,
    fields: Mapping[str, Any],
    *,
    queries: Sequence[Side],
    pairing: str = "matrix",
    options: SyncOptions,
    kinds: Sequence[ModelKind] = RERANKERS,
) -> ScoringAnswer:
    """Send ``queries`` × the documents of ``fields`` to the model that they name."""
    principal = principal_of(request)
    return scoring_run(
        principal=principal,
        endpoint=request.path,
        model=model_for_request(principal=principal, name=fields.get("model"), kinds=kinds),
        queries=queries,
        documents=fields["texts"],
        pairing=pairing,
        options=behind(request, options),
        timeout_ms=timeout_of(request),
        request_id=getattr(request, "request_id", ""),  # set by the middleware: the client's, or a new one
        caller=caller_of(request._request),
    )


def behind(request: Request, options: SyncOptions) -> SyncOptions:
    """A line of a request batch goes behind interactive work, whatever it asks for."""
    return replace(options, priority="batch") if getattr(request._request, "waits_behind", False) else options


@contextmanager
def client_names(**names: str) -> Iterator[None]:
    """Refusals tell the field at fault by the client's own name of it: ``client_names(documents="texts")``."""
    try:
        yield
    except AssayError as error:
        error.param = names.get(error.param or "", error.param)
        raise


def timeout_of(request: Request) -> int | None:
    given = request.headers.get("X-Timeout-Ms")
    if given is None:
        return None
    if not (given.isascii() and given.isdecimal() and int(given[:12]) > 0):
        raise AssayError(
            "bad_timeout", f"X-Timeout-Ms is {given[:40]!r}; give a whole number of milliseconds from 1 on.",
            status=422, param="X-Timeout-Ms",
        )  # fmt: skip
    return int(given[:12])


def server_timing(timings: Mapping[str, float]) -> str:
    return ", ".join(f"{phase};dur={timings.get(phase, 0.0):.2f}" for phase in PHASES)


def answer_response(answer: ScoringAnswer, **members: Any) -> Response:
    """``members`` beside those that every answer has: whose it is, what it cost, how it came about."""
    reply = answer.reply
    about = {
        "scale": reply.scale,
        "backend": reply.backend,
        "dtype": reply.dtype,
        "revision": reply.revision,
        "cached_documents": reply.cached_documents,
        "fallback": reply.fallback,
    }
    if any(reply.query_truncated_tokens):
        about["query_truncated_tokens"] = reply.query_truncated_tokens
    return enveloped(answer, about, **members)


def enveloped(answer: ScoringAnswer | PoolingAnswer, about: dict[str, Any], **members: Any) -> Response:
    reply = answer.reply
    if answer.cold_start:
        about["cold_start"] = answer.cold_start
    body = {
        "id": answer.id,
        "object": "list",
        "created": int(time.time()),
        "model": answer.model.name,
        "usage": {"prompt_tokens": reply.prompt_tokens, "total_tokens": reply.prompt_tokens},
        "assay": about,
        **members,
    }
    return Response(body, headers=answer_headers(answer))


def answer_headers(answer: ScoringAnswer | PoolingAnswer) -> dict[str, str]:
    return {"Server-Timing": server_timing(answer.reply.timings), **answer.rate_limit}


def outcome(item: ScoredItem) -> dict[str, Any]:
    """The extras of one pair; what does not apply is absent."""
    extras = {"raw_score": item.raw_score, **how_read(item)}
    if item.window is not None:
        extras["window"] = item.window
    return extras


def how_read(item: ScoredItem | PooledItem) -> dict[str, Any]:
    extras: dict[str, Any] = {"status": str(item.status)}
    if item.truncated_tokens:
        extras["truncated_tokens"] = item.truncated_tokens
    if item.error:
        extras["error"] = item.error
    return extras


# The shapes of the answers, for the schema


class UsageSerializer(serializers.Serializer[Any]):
    prompt_tokens = serializers.IntegerField()
    total_tokens = serializers.IntegerField()


class AboutSerializer(serializers.Serializer[Any]):
    scale = serializers.CharField(help_text="What the scores mean: cosine, dot, maxsim, fused, probability or logit")
    backend = serializers.CharField()
    dtype = serializers.CharField()
    revision = serializers.CharField(help_text="Hash of the model's files")
    cached_documents = serializers.IntegerField()
    fallback = serializers.CharField(allow_null=True, help_text="Why the GPU MaxSim that was wanted did not run")
    query_truncated_tokens = serializers.ListField(
        child=serializers.IntegerField(), required=False, help_text="Tokens cut from each query; absent when none was"
    )
    cold_start = serializers.FloatField(
        required=False, help_text="Seconds that the request waited for its model to be loaded; absent when it was"
    )


class OutcomeSerializer(serializers.Serializer[Any]):
    index = serializers.IntegerField(help_text="Position in the submitted list")
    raw_score = serializers.FloatField(allow_null=True, help_text="What ranking uses: before activation, float32")
    status = serializers.ChoiceField(ItemStatus.choices)
    truncated_tokens = serializers.IntegerField(
        required=False, help_text="Tokens cut from the document; absent when none was"
    )
    window = serializers.ListField(
        child=serializers.IntegerField(), min_length=2, max_length=2, required=False,
        help_text="With chunk_max: first and last-plus-one character of the part of the ranked text that the score is "
        "from; of token ids, their positions",
    )  # fmt: skip
    error = serializers.CharField(required=False, help_text="Code of what failed for this item alone")


class AnswerSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(help_text="Of the stored request: /api/v1/score-requests/{id}")
    object = serializers.CharField()
    created = serializers.IntegerField(help_text="Seconds since 1970")
    model = serializers.CharField()
    usage = UsageSerializer()
    assay = AboutSerializer()


ABOUT_EXAMPLE: Final = {
    "scale": "cosine",
    "backend": "cpu",
    "dtype": "float32",
    "revision": "9f2c6e0b1d4a",
    "cached_documents": 0,
    "fallback": None,
}
ENVELOPE_EXAMPLE: Final = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a10",
    "object": "list",
    "created": 1760000000,
    "model": "minilm",
    "usage": {"prompt_tokens": 31, "total_tokens": 31},
    "assay": ABOUT_EXAMPLE,
}
