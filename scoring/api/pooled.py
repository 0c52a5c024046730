"""What the endpoints share whose texts are read one by one: the call, and the parts of every answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from assay.api.principal import principal_of
from assay.api.serializers import CallSerializer, StrictBooleanField, TextField
from assay.callers import caller_of
from scoring.api.synchronous import (
    PromptTokensField,
    TruncationSideField,
    UsageSerializer,
    answer_headers,
    behind,
    client_names,
    enveloped,
    timeout_of,
)
from scoring.api.token_ids import InputsField
from scoring.models import ScoringModel
from scoring.payloads import SyncOptions
from scoring.services.pooling import PoolingAnswer, pooling_run
from scoring.services.scoring import Side
from scoring.states import ItemStatus

BASE64: Final = "base64"


class InputSerializer(CallSerializer):
    """Fields of the endpoints that read ``input``."""

    model = TextField(required=False, help_text="A registered name; absent: the endpoint's default model")
    input = InputsField(help_text="A text, several, or token ids in their place, which are read as they are")
    input_type = serializers.ChoiceField(
        ["query", "document"], default="document", help_text="Which of the model's prompts the texts get, if it has any"
    )
    truncation = serializers.ChoiceField(
        ["document", "error"], default="document",
        help_text="Of a text over the limit: cut its end and say so, or refuse the request",
    )  # fmt: skip
    truncate_prompt_tokens = PromptTokensField(
        help_text="Tokens of a text's own that are read; -1 or null: as many as the model can"
    )
    truncation_side = TruncationSideField()
    user = TextField(required=False, max_length=256, help_text="Whom you ask for; kept with the request")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["input_type"] == "query" and not isinstance(attrs["input"][0], str):
            message = "No prompt is put before token ids, which are read as they are; give texts, or leave it out."
            raise serializers.ValidationError({"input_type": [message]}, code="token_ids_have_no_prompt")
        return attrs


class ReturnTokensSerializer(CallSerializer):
    return_tokens = StrictBooleanField(default=False, help_text="The tokens' own texts beside what they became")


def input_options(fields: Mapping[str, Any], **more: Any) -> SyncOptions:
    return SyncOptions(
        max_tokens_per_document=fields.get("truncate_prompt_tokens"),
        truncation=fields["truncation"],
        role=fields["input_type"],
        **more,
    )


def pooled(
    request: Request,
    *,
    model: ScoringModel,
    inputs: Sequence[Side],
    task: str,
    options: SyncOptions,
    param: str = "input",
    whole: bool = False,
    query: str | None = None,
    user: str = "",
) -> PoolingAnswer:
    """Send ``inputs`` to ``model`` for the caller; see ``pooling_run``."""
    with client_names(documents=param, items=param, query=param):
        return pooling_run(
            principal=principal_of(request),
            endpoint=request.path,
            model=model,
            inputs=inputs,
            task=task,
            options=behind(request, options),
            query=query,
            param=param,
            whole=whole,
            timeout_ms=timeout_of(request),
            request_id=getattr(request, "request_id", ""),  # set by the middleware: the client's, or a new one
            user=user,
            caller=caller_of(request._request),
        )


def bare_response(answer: PoolingAnswer, body: Any) -> Response:
    return Response(body, headers=answer_headers(answer))


def pooled_response(answer: PoolingAnswer, data: list[dict[str, Any]]) -> Response:
    """In the envelope that OpenAI's and vLLM's clients expect."""
    reply = answer.reply
    about: dict[str, Any] = {"backend": reply.backend, "dtype": reply.dtype, "revision": reply.revision}
    return enveloped(answer, about, data=data)


# The shapes of the answers, for the schema


class PooledAboutSerializer(serializers.Serializer[Any]):
    backend = serializers.CharField()
    dtype = serializers.CharField()
    revision = serializers.CharField(help_text="Hash of the model's files")
    cold_start = serializers.FloatField(
        required=False, help_text="Seconds that the request waited for its model to be loaded; absent when it was"
    )


class PooledAnswerSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(help_text="Of the stored request: /api/v1/score-requests/{id}")
    object = serializers.CharField()
    created = serializers.IntegerField(help_text="Seconds since 1970")
    model = serializers.CharField()
    usage = UsageSerializer()
    assay = PooledAboutSerializer()


class HowReadSerializer(serializers.Serializer[Any]):
    index = serializers.IntegerField(help_text="Position in the submitted list")
    status = serializers.ChoiceField(ItemStatus.choices)
    truncated_tokens = serializers.IntegerField(
        required=False, help_text="Tokens cut from the text's end; absent when none was"
    )
    error = serializers.CharField(required=False, help_text="Code of what failed for this text alone")


POOLED_EXAMPLE: Final = {
    "id": "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a10",
    "object": "list",
    "created": 1760000000,
    "model": "minilm",
    "usage": {"prompt_tokens": 9, "total_tokens": 9},
    "assay": {"backend": "cpu", "dtype": "float32", "revision": "9f2c6e0b1d4a"},
}
