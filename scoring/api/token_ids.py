"""Token ids where a text is expected: clients that tokenise themselves send them to generative models."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from assay.api.serializers import TextField
from scoring.api.items import DOCUMENT_SCHEMA, DocumentsField, shown

MAX_ID: Final = 2**31 - 1  # no vocabulary is as large; which ids there are, the model knows
IDS_SCHEMA: Final[dict[str, Any]] = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": MAX_ID}}


@extend_schema_field({"oneOf": [{"type": "string"}, IDS_SCHEMA]})
class QueryField(TextField):
    """A text or a list of token ids."""

    wanted: ClassVar = "a text or a list of token ids"

    def to_internal_value(self, data: Any) -> Any:
        return token_ids(data) if isinstance(data, list) else super().to_internal_value(data)


@extend_schema_field({
    "oneOf": [
        {"type": "array", "items": DOCUMENT_SCHEMA, "minItems": 1},
        {"type": "array", "items": IDS_SCHEMA, "minItems": 1},
        *DOCUMENT_SCHEMA["oneOf"],
    ]
})  # fmt: skip
class ItemsField(DocumentsField):
    """Documents, or lists of token ids; not some of both."""

    default_error_messages: ClassVar = {
        "mixed": "Some items are lists of token ids and some are not; give one sort of them."
    }

    def to_internal_value(self, data: Any) -> list[Any]:
        lists = [isinstance(item, list) for item in data] if isinstance(data, list) else []
        if not any(lists):
            return super().to_internal_value(data)
        if not all(lists):
            self.fail("mixed")
        return _rows(data)


@extend_schema_field({"oneOf": [IDS_SCHEMA["items"], {**IDS_SCHEMA, "minItems": 1}]})
class LabelIdsField(serializers.Field[Any, Any, Any, Any]):
    """One token id, or those of a label of several tokens."""

    wanted: ClassVar = "a token id or a list of them"
    default_error_messages: ClassVar = {"empty": "The list is empty; give the label's token ids."}

    def to_internal_value(self, data: Any) -> int | list[int]:
        if data == []:
            self.fail("empty")
        ids = token_ids(data if isinstance(data, list) else [data])
        return ids if isinstance(data, list) and len(ids) > 1 else ids[0]


@extend_schema_field({
    "oneOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {**IDS_SCHEMA, "minItems": 1},
        {"type": "array", "items": IDS_SCHEMA, "minItems": 1},
    ]
})  # fmt: skip
class InputsField(serializers.Field[list[Any], Any, Any, Any]):
    """A text, a list of texts, one row of token ids, or a list of rows; one alone counts as a list of one."""

    default_error_messages: ClassVar = {
        "empty": "The list is empty; give at least one text.",
        "mixed": "The list holds things of several sorts; give texts only, or lists of token ids only.",
        "not_a_text": "Give a text, a list of texts, or lists of token ids, not {given}.",
    }

    def to_internal_value(self, data: Any) -> list[Any]:
        if isinstance(data, str):
            return [data]
        if not isinstance(data, list):
            self.fail("not_a_text", given=shown(data))
        if not data:
            self.fail("empty")
        if all(isinstance(each, str) for each in data):
            return data
        if all(isinstance(each, list) for each in data):
            return _rows(data)
        if any(isinstance(each, str | list | dict) for each in data):
            self.fail("mixed")
        return [token_ids(data)]


def _rows(given: list[list[Any]]) -> list[list[int]]:
    faults: dict[str, Any] = {}
    for index, row in enumerate(given):
        try:
            token_ids(row)
        except serializers.ValidationError as error:
            faults[str(index)] = error.detail
    if faults:
        raise serializers.ValidationError(faults, code="not_token_ids")
    return given


def token_ids(given: list[Any]) -> list[int]:
    """``given``, if all of it can be token ids. Raises ValidationError with the place of the first that cannot."""
    for place, token_id in enumerate(given):
        if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id <= MAX_ID:
            what = token_id if isinstance(token_id, int | float) else shown(token_id)
            message = f"A token id is a whole number from 0 on, not {what} (at position {place})."
            raise serializers.ValidationError(message, code="not_token_ids")
    return given
