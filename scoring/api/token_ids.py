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
        faults: dict[str, Any] = {}
        for index, item in enumerate(data):
            try:
                token_ids(item)
            except serializers.ValidationError as error:
                faults[str(index)] = error.detail
        if faults:
            raise serializers.ValidationError(faults, code="not_token_ids")
        return data


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


def token_ids(given: list[Any]) -> list[int]:
    """``given``, if all of it can be token ids. Raises ValidationError with the place of the first that cannot."""
    for place, token_id in enumerate(given):
        if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id <= MAX_ID:
            what = token_id if isinstance(token_id, int | float) else shown(token_id)
            message = f"A token id is a whole number from 0 on, not {what} (at position {place})."
            raise serializers.ValidationError(message, code="not_token_ids")
    return given
