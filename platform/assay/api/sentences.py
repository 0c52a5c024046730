"""What is wrong with a field, in one form: what was given, and what to give instead.

The frameworks say "Ensure this value is greater than or equal to 1."; a client reads "'top_n' is 0; give a whole number
from 1 on." Messages that a field words itself are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from rest_framework import fields, serializers
from rest_framework.exceptions import ErrorDetail

SHOWN: Final = 60  # characters of a value that a sentence repeats
EXAMPLE_ID: Final = "01935f1e-7c7a-7e55-9d0e-2f6f3b1c8a11"
MOMENT: Final = "a moment with its time zone, such as 2026-11-29T20:00:00Z"
DAY: Final = "a day such as 2026-11-30"
ALSO_STOCK: Final = {
    "null_characters_not_allowed": "holds a NUL character; leave it out",
    "surrogate_characters_not_allowed": "holds half of a surrogate pair; send whole characters",
}


def shortened(text: str, limit: int = SHOWN) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def shown(value: Any) -> str:
    """A value as a sentence names it: small ones as they are in JSON, the others by what they are."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return shortened(str(value))
        case str():
            return repr(shortened(value)) if value else "empty"
        case Mapping():
            return "an object"
        case list() | tuple():
            return f"a list of {len(value):,}" if value else "an empty list"
        case _:
            return "a file"


def problem(name: str, field: Any, value: Any) -> str:
    """``name`` holds ``value``, which ``field``, of a serializer or a form, does not take; ``empty``: nothing was."""
    given = "missing" if value is fields.empty else shown(value)
    longest = getattr(field, "max_length", None)
    if isinstance(value, str) and longest is not None and len(value) > longest:
        given = f"{len(value):,} characters long"
    instead = ", or leave it out" if value in (None, "") and not field.required else ""
    return f"'{name}' is {given}; give {wanted(field)}{instead}."


def wanted(field: Any) -> str:
    """What ``field`` takes, in words. A field of a kind of its own says it in an attribute of this name."""
    if said := getattr(field, "wanted", None):
        return str(said)
    match field:
        case fields.FloatField() | fields.DecimalField() | forms.DecimalField() | forms.FloatField():
            return f"a number{_between(field)}"
        case fields.IntegerField() | forms.IntegerField():
            return f"a whole number{_between(field)}"
        case fields.BooleanField() | forms.NullBooleanField():
            return "true or false"
        case fields.UUIDField() | forms.UUIDField():
            return f"an id such as {EXAMPLE_ID}"
        case fields.ChoiceField() | forms.ChoiceField():
            return _one_of([str(key) for key, _ in _choices(field) if key != ""])
        case fields.DateField() | forms.DateField():
            return DAY
        case fields.DateTimeField() | forms.DateTimeField():
            return MOMENT
        case fields.FileField():
            return "a file"
        case fields.CharField() | forms.CharField():
            longest = f" of at most {field.max_length:,} characters" if field.max_length is not None else ""
            return f"a text{longest}" if getattr(field, "allow_blank", True) else f"a text{longest} that is not empty"
        case fields.ListField() | serializers.ListSerializer():
            return f"a list of {_several(field.child)}{_length(field)}"
        case serializers.Serializer():
            names = [name for name, own in field.fields.items() if not own.read_only]
            return f"an object with {', '.join(names)}"
        case fields.DictField():
            return "an object"
        case _:
            return "another value"


def in_words(field: Any, name: str, value: Any, detail: Any) -> Any:
    """``detail``, DRF's errors of one field that was given ``value``, with our sentences for the framework's own."""
    if isinstance(detail, list):
        return [_sentence(field, name, value, error) if isinstance(error, ErrorDetail) else error for error in detail]
    if isinstance(field, serializers.ListSerializer):  # the items of one are serializers, which worded theirs
        own = {key: in_words(field, name, value, errors) for key, errors in _flat(detail).items()}
        return {**detail, **own}
    if isinstance(field, fields.ListField) and isinstance(value, list | tuple):
        return {key: in_words(field.child, f"{name}[{key}]", value[int(key)], errors) for key, errors in detail.items()}
    if isinstance(field, fields.DictField) and isinstance(value, Mapping):
        return {key: in_words(field.child, f"{name}.{key}", value[key], errors) for key, errors in detail.items()}
    return detail


def _sentence(field: Any, name: str, value: Any, error: ErrorDetail) -> ErrorDetail:
    code = str(error.code)
    if code in ALSO_STOCK:
        return ErrorDetail(f"'{name}' {ALSO_STOCK[code]}.", code)
    return ErrorDetail(problem(name, field, value), code) if _is_stock(field, error) else error


def _is_stock(field: Any, error: ErrorDetail) -> bool:
    """Whether ``error`` is in the framework's words rather than in ones that a field or its class chose."""
    template = field.error_messages.get(error.code)
    for owner in type(field).__mro__:
        own = owner.__dict__.get("default_error_messages", {}).get(error.code)
        if own is not None:
            chosen = template is not own or not owner.__module__.startswith("rest_framework.")
            return not chosen and str(error).startswith(str(template).partition("{")[0])
    return False


def _flat(detail: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {key: errors for key, errors in detail.items() if isinstance(errors, list)}


def _between(field: Any) -> str:
    least, most = getattr(field, "min_value", None), getattr(field, "max_value", None)
    if least is not None and most is not None:
        return f" from {least:,} to {most:,}"
    if least is not None:
        return f" from {least:,} on"
    return f" up to {most:,}" if most is not None else ""


def _choices(field: Any) -> list[tuple[Any, Any]]:
    """A form's are pairs, a serializer's a mapping."""
    return list(field.choices.items() if isinstance(field.choices, Mapping) else field.choices)


def _one_of(choices: list[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def _several(child: Any) -> str:
    """``child``'s ``wanted`` in the plural."""
    what = wanted(child)
    for one, many in (("a text", "texts"), ("a whole number", "whole numbers"), ("a number", "numbers")):
        if what.startswith(one):
            return many + what.removeprefix(one)
    return "objects" if isinstance(child, serializers.Serializer) else f"values, each {what}"


def _length(field: Any) -> str:
    if not getattr(field, "allow_empty", True):
        return ", at least one"
    most = getattr(field, "max_length", None)
    return f", at most {most:,}" if most is not None else ""
