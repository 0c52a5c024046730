"""Serializers that guess nothing: an unknown field is refused with the list of the known ones, a number is a number."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar
from uuid import UUID

from django.utils.datastructures import MultiValueDict
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive
from rest_framework import serializers
from rest_framework.fields import empty

from assay.api.sentences import in_words, shortened, shown, wanted


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses unknown fields. ``aliases`` maps other accepted names to a field's own; both at once is refused."""

    aliases: ClassVar[Mapping[str, str]] = {}

    def run_validation(self, data: Any = empty) -> Any:
        may_be_null = self.allow_null or self.parent is not None  # of a field, null is told by the field's own name
        if data is not empty and not isinstance(data, Mapping) and not (data is None and may_be_null):
            message = f"{shown(data).capitalize()} was given; give {wanted(self)}."
            raise serializers.ValidationError({"non_field_errors": [message]}, code="invalid")
        return super().run_validation(data)

    def to_internal_value(self, data: Any) -> Any:
        data = self._own_names(data)
        known = [name for name, field in self.fields.items() if not field.read_only]
        if unknown := next((str(name) for name in data if name not in known), None):
            valid = ", ".join(sorted([*known, *self.aliases]))
            message = f"Unknown field '{shortened(unknown)}'; the valid ones are: {valid}."
            raise serializers.ValidationError({unknown: [message]}, code="unknown_field")
        try:
            return super().to_internal_value(data)
        except serializers.ValidationError as refusal:
            told = {
                name: in_words(self.fields[name], name, data.get(name, empty), detail)
                for name, detail in refusal.detail.items()  # type: ignore[union-attr]  # a serializer's is a mapping
            }
            raise serializers.ValidationError(told) from refusal

    def _own_names(self, data: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(data, MultiValueDict):
            refuse_repeated(data)
        named: dict[str, Any] = {}
        spelt: dict[str, str] = {}
        for given, value in data.items():
            name = self.aliases.get(given, given)
            if name in named:
                message = (
                    f"'{spelt[name]}' and '{given}' are names of one field, and both were given; give one of them."
                )
                raise serializers.ValidationError({given: [message]}, code="given_twice")
            named[name], spelt[name] = value, given
        return named


class CallSerializer(StrictSerializer):
    """An optional field that is null is one left out: many clients write all fields that they know, given or not."""

    def get_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().get_fields()
        for field in fields.values():
            field.allow_null = field.allow_null or not field.required
        return fields

    @cached_property
    def _optional(self) -> frozenset[str]:
        return frozenset(name for name, field in self.fields.items() if not field.required)

    def _own_names(self, data: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in data.items() if value is not None or name not in self.aliases}
        named = super()._own_names(given)
        return {name: value for name, value in named.items() if value is not None or name not in self._optional}


def given_names(body: Any) -> set[str]:
    """Of the members of ``body`` those that are not null; none of what has no members."""
    return {name for name, value in body.items() if value is not None} if isinstance(body, Mapping) else set()


def refuse_repeated(given: MultiValueDict[str, Any], *, several: Collection[str] = ()) -> None:
    """Raises ValidationError for a parameter or form field that is there twice, except for those of ``several``."""
    for name, values in given.lists():
        if len(values) > 1 and name not in several:
            first, second = map(shown, values[:2])
            message = f"'{shortened(name)}' is given {len(values)} times, as {first} and {second}; give it once."
            raise serializers.ValidationError({name: [message]}, code="given_twice")


class StrictIntegerField(serializers.IntegerField):
    """A JSON integer: "3", 2.5 and true are refused, not converted."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictNumberField(serializers.FloatField):
    """A JSON number, whole or not: "0.5" and true are refused, not converted."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictBooleanField(serializers.BooleanField):
    """true or false, nothing that merely resembles them."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class FlagField(serializers.BooleanField):
    """true or false where everything is text: in a form or in a query parameter. "1", "yes" and "" are neither."""

    TRUE_VALUES = {"true", "True", True}  # noqa: RUF012 - as its base has them
    FALSE_VALUES = {"false", "False", False}  # noqa: RUF012
    NULL_VALUES = set()  # noqa: RUF012


class TextField(serializers.CharField):
    """A text kept exactly as sent: no trimming, no conversion of numbers, empty allowed."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"trim_whitespace": False, "allow_blank": True, **kwargs})

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictUUIDField(serializers.UUIDField):
    """An id as text: a number is not one, though UUIDs can be written as numbers."""

    def to_internal_value(self, data: Any) -> UUID:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class MomentField(serializers.DateTimeField):
    """A date with a time and its zone: which moment a time without one means, only its sender knows."""

    def to_internal_value(self, data: Any) -> datetime:
        moment = super().to_internal_value(data)
        given = parse_datetime(data) if isinstance(data, str) else None
        if given is None or is_naive(given):
            self.fail("invalid", format="ISO 8601")
        return moment
