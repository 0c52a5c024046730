from __future__ import annotations

import secrets
from typing import Final

from django.db import models

from scoring.models.base import OwnedModel

ALPHABET: Final = "23456789abcdefghjkmnpqrstuvwxyz"  # nothing that is taken for another
LENGTH: Final = 10


def new_short_id() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


class PlaygroundExample(OwnedModel):
    """What the playground was given, kept under a short address that its team can share. It does not change."""

    short_id = models.CharField(max_length=16, unique=True, default=new_short_id, editable=False)
    title = models.CharField(max_length=120)
    model_names = models.JSONField(help_text="names, in the order shown")
    query = models.TextField()
    documents = models.JSONField()
    options = models.JSONField(default=dict, help_text="instruction, labels and template, where they were given")

    class Meta(OwnedModel.Meta):
        ordering = ("-created_at",)
        indexes = (models.Index(fields=("team", "-created_at"), name="playground_example_recent"),)

    def __str__(self) -> str:
        return self.title
