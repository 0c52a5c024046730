"""How operations are described in the schema: a sentence, the true shapes, the refusals, one worked example."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db.models import TextChoices
from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
from drf_spectacular.serializers import PolymorphicProxySerializerExtension
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers

REFUSALS = {
    400: "The body is not JSON, or cannot be read.",
    401: "No token or session, or one that is not valid.",
    403: "The token lacks the scope, or is not for the model or the network.",
    404: "There is no such resource, or it belongs to another team.",
    409: "The request conflicts with the present state.",
    413: "The body or the number of documents is over the limit.",
    415: "The media type of the body is not accepted here.",
    422: "A field or a query parameter is missing, unknown or out of range; `param` names it.",
    429: "Too much is in flight, or a quota is used up, which `quota`, `limit`, `used` and `reset` tell then; come "
    "again after `Retry-After` seconds.",
    500: "Something failed on the server's side.",
    503: "No worker, or the message queue, can answer now.",
    504: "The deadline passed before the answer came.",
    507: "The disk is full.",
}
READ = (401, 403, 422)
LISTED = (*READ, 404)
BODY = (400, 401, 403, 413, 415, 422)
SCORED = (*BODY, 404, 409, 429, 500, 503, 504)


class ErrorDetailSerializer(serializers.Serializer[Any]):
    message = serializers.CharField(help_text="What was given, why it cannot be, what to give instead")
    type = serializers.CharField()
    param = serializers.CharField(allow_null=True, help_text="Path of the field at fault, such as documents[3].text")
    code = serializers.CharField(help_text="Stable, for programs")
    request_id = serializers.CharField(allow_null=True)


class ErrorSerializer(serializers.Serializer[Any]):
    """Every refusal has this one shape. Some codes add members to ``error``, such as ``existing`` or ``problems``."""

    error = ErrorDetailSerializer()


class BearerScheme(OpenApiAuthenticationExtension):
    target_class = "assay.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


class SessionScheme(OpenApiAuthenticationExtension):
    target_class = "assay.api.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "assay_session"}


class ShapesScheme(PolymorphicProxySerializerExtension):
    """Of several shapes a body may have more than one, which ``oneOf`` would refuse."""

    priority = 0  # before the one that it is made from

    def map_serializer(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        return {"anyOf": super().map_serializer(auto_schema, direction)["oneOf"]}


class StrictSerializerScheme(OpenApiSerializerExtension):
    """No field but the known ones, each under one of its names."""

    target_class = "assay.api.serializers.StrictSerializer"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        properties, required = schema.setdefault("properties", {}), schema.get("required", [])
        own_names: dict[str, list[str]] = {}
        for alias, name in self.target.aliases.items():
            own_names.setdefault(name, [name]).append(alias)
            described = {**properties[name], "description": f"Another name of {name}"}
            described.pop("default", None)
            properties[alias] = described
        for name, names in own_names.items():
            one: list[dict[str, Any]] = [{"required": [each]} for each in names]
            if name in required:
                required.remove(name)
            else:
                one.append({"not": {"anyOf": list(one)}})
            schema.setdefault("allOf", []).append({"oneOf": one})
        schema["additionalProperties"] = False
        return {key: value for key, value in schema.items() if key != "required" or value}


def operation(
    summary: str,
    *,
    answer: Any,
    example: Any = None,
    request: Any = None,
    request_example: Any = None,
    status: int = 200,
    other_answers: Mapping[int, Any] | None = None,
    errors: Sequence[int] = (401, 403),
    parameters: Sequence[Any] = (),
    description: str = "",
    media_type: str = "application/json",
    operation_id: str | None = None,
) -> Callable[[Any], Any]:
    """Describe one operation. ``example`` is its answer in full, ``request_example`` what was sent to get it."""
    examples = []
    if request_example is not None:
        examples.append(OpenApiExample("Request", value=request_example, request_only=True, media_type=media_type))
    if example is not None:
        examples.append(OpenApiExample("Answer", value=example, response_only=True, status_codes=[str(status)]))
    refusals = {code: OpenApiResponse(ErrorSerializer, REFUSALS[code]) for code in sorted(set(errors))}
    return extend_schema(
        operation_id=operation_id,
        summary=summary,
        description=description or f"{summary}.",
        request=request,
        responses={status: answer, **(other_answers or {}), **refusals},
        examples=examples,
        parameters=list(parameters),
    )


def state_field(choices: type[TextChoices]) -> type[serializers.CharField]:
    """A read-only state. Several resources have a ``state`` with values of their own, so each lists them in place."""

    @extend_schema_field({"oneOf": [{"type": "string", "enum": choices.values}]})
    class StateField(serializers.CharField):
        pass

    return StateField


def header(name: str, description: str, kind: type = str) -> OpenApiParameter:
    return OpenApiParameter(name, kind, OpenApiParameter.HEADER, description=description)
