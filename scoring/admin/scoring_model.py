"""The model page: settings, GPU MaxSim, self-test report, and load / unload / reload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from assay.api.principal import Principal, principal_of
from assay.errors import AssayError
from scoring.models import ScoringModel
from scoring.selectors.models import models_with_placements
from scoring.selectors.placements import placements_of_model
from scoring.services.placements import model_load, model_reload, model_unload
from scoring.services.registry import model_change, model_check, model_disable, model_register, model_self_test

SETTINGS = (
    "name", "kind", "source", "gguf_file", "engine", "endpoint", "remote_model", "credential", "device", "dtype",
    "max_length", "gpu_maxsim", "template", "labels", "positive_class", "weights",
)  # fmt: skip
PLACING = (
    "pinned", "min_replicas", "max_replicas", "memory_bytes", "min_residency", "max_concurrency",
    "document_cache_bytes", "cold_policy",
)  # fmt: skip
FOUND = ("state", "report", "placements", "revision", "generation", "facts", "created_by", "created_at", "updated_at")


class ScoringModelForm(forms.ModelForm[ScoringModel]):
    class Meta:
        model = ScoringModel
        fields = (*SETTINGS, "is_default", "self_test_mode", *PLACING)
        # The admin shows help texts as HTML, in which <distribution> would be a tag.
        help_texts: ClassVar = {"source": "a folder below one of MODEL_ROOTS, or package:DISTRIBUTION/FOLDER-IN-IT"}
        widgets: ClassVar = {
            "source": UnfoldAdminTextInputWidget(),
            "labels": UnfoldAdminTextareaWidget(attrs={"rows": 2}),
            "weights": UnfoldAdminTextareaWidget(attrs={"rows": 1}),
        }

    def clean_labels(self) -> Any:
        return self.cleaned_data["labels"] or []  # an emptied box is no list to the field

    def clean_weights(self) -> Any:
        return self.cleaned_data["weights"] or []

    def clean(self) -> dict[str, Any] | None:
        """The registry's own rules, said beside the field they are about."""
        data = super().clean()
        if not self.errors:
            try:
                model_check(ScoringModel(**self.cleaned_data))
            except AssayError as refusal:
                self.add_error(refusal.param if refusal.param in self.fields else None, refusal.message)
        return data


@admin.register(ScoringModel)
class ScoringModelAdmin(ModelAdmin):
    form = ScoringModelForm
    list_display = ("name", "kind", "state", "ready", "device", "dtype", "gpu_maxsim", "is_default", "updated_at")
    list_editable = ("gpu_maxsim",)
    list_filter = ("kind", "state")
    search_fields = ("name", "source")
    readonly_fields = (*FOUND, "estimated_bytes", "measured_bytes")
    fieldsets = (
        (None, {"fields": (*SETTINGS, "is_default", "self_test_mode")}),
        ("Where it is loaded", {"fields": (*PLACING, "estimated_bytes", "measured_bytes")}),
        ("What the platform found", {"fields": FOUND}),
    )
    actions = ("load", "unload", "reload", "self_test", "disable")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ScoringModel]:
        return models_with_placements()

    def get_fieldsets(self, request: HttpRequest, obj: ScoringModel | None = None) -> Any:
        return self.fieldsets if obj is not None else (self.fieldsets[0], (None, {"fields": PLACING}))

    def get_view_on_site_url(self, obj: Model | None = None) -> str | None:
        return reverse("web:model_detail", args=[obj.name]) if isinstance(obj, ScoringModel) else None

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # Jobs and requests name their model for good; one that is not wanted any more is disabled.
        return False

    def save_model(self, request: HttpRequest, obj: ScoringModel, form: Any, change: bool) -> None:
        """Also called for every row of the list whose toggle was changed."""
        given = {name: form.cleaned_data[name] for name in form.changed_data} if change else form.cleaned_data
        principal = principal_of(request)
        if change:
            saved = model_change(principal=principal, model=ScoringModel.objects.get(pk=obj.pk), **given)
        else:
            saved = model_register(principal=principal, **given)
        obj.__dict__.update(saved.__dict__)

    @admin.display(description="ready on")
    def ready(self, obj: Any) -> int:
        return obj.ready_count

    @admin.display(description="self-test")
    def report(self, obj: ScoringModel) -> SafeString | str:
        if not obj.self_test_report:
            return "has not run yet"
        checks = obj.self_test_report.get("checks", [])
        rows = (("passed" if check["passed"] else "FAILED", check["name"], check["detail"]) for check in checks)
        return format_html("<ul>{}</ul>", format_html_join("", "<li><strong>{}</strong> {}: {}</li>", rows))

    @admin.display(description="in force on")
    def placements(self, obj: ScoringModel) -> SafeString | str:
        rows = [
            (row.worker_name, row.placement.get_state_display(), _in_force(row), row.cause)
            for row in placements_of_model(obj)
        ]
        return format_html("<ul>{}</ul>", format_html_join("", "<li>{}: {}, {} {}</li>", rows)) if rows else "no worker"

    @admin.action(description="Load on every live worker", permissions=["change"])
    def load(self, request: HttpRequest, queryset: QuerySet[ScoringModel]) -> None:
        self._each(request, queryset, "asked to load", model_load)

    @admin.action(description="Unload", permissions=["change"])
    def unload(self, request: HttpRequest, queryset: QuerySet[ScoringModel]) -> None:
        self._each(request, queryset, "asked to unload", model_unload)

    @admin.action(description="Reload the files", permissions=["change"])
    def reload(self, request: HttpRequest, queryset: QuerySet[ScoringModel]) -> None:
        self._each(request, queryset, "asked to reload", model_reload)

    @admin.action(description="Run the self-test again", permissions=["change"])
    def self_test(self, request: HttpRequest, queryset: QuerySet[ScoringModel]) -> None:
        self._each(request, queryset, "waits for its self-test", model_self_test)

    @admin.action(description="Disable", permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[ScoringModel]) -> None:
        self._each(request, queryset, "is disabled", model_disable)

    def _each(
        self, request: HttpRequest, queryset: QuerySet[ScoringModel], done: str, service: Callable[..., Any]
    ) -> None:
        principal: Principal = principal_of(request)
        for model in queryset:
            try:
                outcome = service(principal=principal, model=model)
            except AssayError as refusal:
                self.message_user(request, refusal.message, messages.ERROR)
            else:
                who = f"{outcome} workers" if isinstance(outcome, int) else "it"
                self.message_user(request, f"{model.name}: {who} {done}.", messages.SUCCESS)


def _in_force(row: Any) -> str:
    backend = f", MaxSim on {row.placement.maxsim_backend}" if row.placement.maxsim_backend else ""
    return (f"as wanted{backend}" if row.in_force else row.pending or "not loaded") + (
        "" if row.worker_is_up else ", worker lost"
    )
