"""Serializers that guess nothing: an unknown field is refused with the list of the known ones, a number is a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework import serializers


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses unknown fields. ``aliases`` maps other accepted names to a field's own; both at once is refused."""

    aliases: ClassVar[Mapping[str, str]] = {}

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            data = self._own_names(data)
            known = [name for name, field in self.fields.items() if not field.read_only]
            if unknown := [str(name) for name in data if name not in known]:
                valid = ", ".join(sorted([*known, *self.aliases]))
                raise serializers.ValidationError(
                    {unknown[0]: [f"Unknown field '{unknown[0]}'; the valid ones are: {valid}."]}, code="unknown_field"
                )
        return super().to_internal_value(data)

    def _own_names(self, data: Mapping[str, Any]) -> dict[str, Any]:
        named: dict[str, Any] = {}
        for given, value in data.items():
            name = self.aliases.get(given, given)
            if name in named:
                raise serializers.ValidationError(
                    {given: [f"'{given}' is another name of '{name}', and both were given; give one."]},
                    code="given_twice",
                )
            named[name] = value
        return named


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


class TextField(serializers.CharField):
    """A text kept exactly as sent: no trimming, no conversion of numbers, empty allowed."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"trim_whitespace": False, "allow_blank": True, **kwargs})

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)
