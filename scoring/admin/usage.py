"""What teams used, by day."""

from __future__ import annotations

from django.contrib import admin

from scoring.admin.base import ReadOnlyAdmin
from scoring.models import Usage


@admin.register(Usage)
class UsageAdmin(ReadOnlyAdmin):
    list_display = (
        "day", "team", "token", "model_name", "source", "requests", "errors", "documents", "tokens", "compute_seconds",
    )  # fmt: skip
    list_filter = ("source", "team", "model_name")
    list_select_related = ("team", "token")
    date_hierarchy = "day"
