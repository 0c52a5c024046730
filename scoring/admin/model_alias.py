"""Names that point at models."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from assay.api.principal import principal_of
from assay.errors import AssayError
from scoring.models import ModelAlias
from scoring.selectors.models import models_served
from scoring.services.model_names import alias_delete, alias_point


class ModelAliasForm(forms.ModelForm[ModelAlias]):
    class Meta:
        model = ModelAlias
        fields = ("name", "model")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].queryset = models_served()  # type: ignore[attr-defined]


@admin.register(ModelAlias)
class ModelAliasAdmin(ModelAdmin):
    form = ModelAliasForm
    list_display = ("name", "model", "moved_at", "moved_by")
    list_select_related = ("model", "moved_by")
    search_fields = ("name", "model__name")

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        return () if obj is None else ("name",)

    def save_model(self, request: HttpRequest, obj: ModelAlias, form: Any, change: bool) -> None:
        try:
            alias_point(principal=principal_of(request), name=obj.name, model=obj.model)
        except AssayError as refusal:
            raise forms.ValidationError(refusal.message) from refusal

    def delete_model(self, request: HttpRequest, obj: ModelAlias) -> None:
        alias_delete(principal=principal_of(request), alias=obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ModelAlias]) -> None:
        for alias in queryset.select_related("model"):
            alias_delete(principal=principal_of(request), alias=alias)
