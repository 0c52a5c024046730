"""What the fields of forms say, where Django's own words name neither what is missing nor what to do."""

from __future__ import annotations

from typing import Final

from django import forms

REQUIRED: Final[dict[type[forms.Field], str]] = {
    forms.CharField: "Nothing stands here; fill it in.",
    forms.IntegerField: "No number stands here; give one.",
    forms.FloatField: "No number stands here; give one.",
    forms.DateField: "No day stands here; give one, such as 2026-11-30.",
    forms.DateTimeField: "No moment stands here; give one, such as 2026-11-30 14:00.",
    forms.FileField: "No file was chosen; choose one.",
    forms.ChoiceField: "Nothing is chosen; choose one.",
    forms.ModelChoiceField: "Nothing is chosen; choose one.",
    forms.MultipleChoiceField: "Nothing is chosen; choose at least one.",
    forms.ModelMultipleChoiceField: "Nothing is chosen; choose at least one.",
}


def field_messages_install() -> None:
    """Once, before any form is made: a field reads the messages of its classes then."""
    for field, message in REQUIRED.items():
        own = field.__dict__.get("default_error_messages", {})
        field.default_error_messages = {**own, "required": message}
