"""What a request may give as a document: a text, or an object of which some fields are ranked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

Given = str | dict[str, Any]

DOCUMENT_SCHEMA: Final[dict[str, Any]] = {
    "oneOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {
                "text": {"type": ["string", "number", "boolean", "null"]},
                "id": {"type": ["string", "integer"], "description": "given back with the result"},
            },
            "additionalProperties": True,
        },
    ]
}


@extend_schema_field({"oneOf": [{"type": "array", "items": DOCUMENT_SCHEMA, "minItems": 1}, *DOCUMENT_SCHEMA["oneOf"]]})
class DocumentsField(serializers.Field[list[Given], Any, Any, Any]):
    """A list of texts and objects; one alone counts as a list of one. The empty list is refused."""

    wanted: ClassVar = 'a list of texts or of objects such as {"text": "…"}'
    default_error_messages: ClassVar = {
        "empty": "The list is empty; give at least one document.",
        "not_a_document": 'A document is a text or an object such as {{"text": "…"}}, not {given}.',
        "bad_id": "'id' must be a text or a whole number, not {given}.",
    }

    def to_internal_value(self, data: Any) -> list[Given]:
        documents = data if isinstance(data, list) else [data]
        if not documents:
            self.fail("empty")
        for index, document in enumerate(documents):
            if isinstance(document, dict):
                given = document.get("id", "")
                if isinstance(given, bool) or not isinstance(given, str | int):
                    raise _at(index, self.error_messages["bad_id"].format(given=shown(given)), "id")
            elif not isinstance(document, str):
                raise _at(index, self.error_messages["not_a_document"].format(given=shown(document)))
        return documents


@extend_schema_field({"oneOf": [{"type": "array", "items": {"type": "string"}, "minItems": 1}, {"type": "string"}]})
class TextsField(serializers.ListField):
    """A list of texts; one alone counts as a list of one."""

    def __init__(self, **kwargs: Any) -> None:
        from assay.api.serializers import TextField

        super().__init__(child=TextField(), allow_empty=False, **kwargs)

    def to_internal_value(self, data: Any) -> list[str]:
        return super().to_internal_value([data] if isinstance(data, str) else data)


def ranked_texts(documents: Sequence[Given], fields: Sequence[str], *, param: str) -> list[str]:
    """What the model reads of each document. Raises ValidationError with the index of an object or list in a field."""
    return [
        document if isinstance(document, str) else _joined(document, fields, param, index)
        for index, document in enumerate(documents)
    ]


def _joined(document: dict[str, Any], fields: Sequence[str], param: str, index: int) -> str:
    texts = {}
    for name in fields:
        value = document.get(name)
        if isinstance(value, dict | list):
            message = f"The ranked field '{name}' is {shown(value)}; it must be a text, a number, true, false or null."
            raise serializers.ValidationError({param: {str(index): {name: [message]}}}, code="not_a_text")
        texts[name] = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    if len(fields) == 1:
        return texts[fields[0]]
    return "\n".join(f"{name}: {text}" for name, text in texts.items() if text.strip())


def echoed(document: Given, text: str) -> dict[str, Any]:
    """The document as it was sent; ``text`` is there in any case, for clients that rely on it."""
    return {"text": text} if isinstance(document, str) else {"text": text, **document}


def id_of(document: Given) -> dict[str, Any]:
    return {"id": document["id"]} if isinstance(document, dict) and "id" in document else {}


def shown(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        type(None): "null",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "a text")


def _at(index: int, message: str, name: str | None = None) -> serializers.ValidationError:
    return serializers.ValidationError({str(index): {name: [message]} if name else [message]}, code="invalid")
