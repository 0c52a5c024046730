from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Lower

from scoring.models.scoring_model import ScoringModel


class ModelAlias(models.Model):
    """Another name for a model, wherever a request names one. It can be pointed at another model at any moment."""

    name = models.SlugField(primary_key=True, max_length=64)
    model = models.ForeignKey(ScoringModel, on_delete=models.CASCADE, related_name="aliases")
    moved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, editable=False, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    moved_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "model aliases"
        constraints = (models.UniqueConstraint(Lower("name"), name="model_alias_name_any_case"),)

    def __str__(self) -> str:
        return self.name
