"""Synchronous requests. Texts, where they are kept, are shown on one request's page only."""

from __future__ import annotations

from django.contrib import admin

from scoring.admin.base import ReadOnlyAdmin
from scoring.models import ScoreRequest


@admin.register(ScoreRequest)
class ScoreRequestAdmin(ReadOnlyAdmin):
    list_display = (
        "created_at",
        "endpoint",
        "model_name",
        "status_code",
        "error_code",
        "document_count",
        "team",
        "token",
    )
    list_filter = ("endpoint", "model_name", "status_code", "team")
    list_select_related = ("team", "token")
    search_fields = ("id", "request_id")
    date_hierarchy = "created_at"
    deferred = ("queries", "documents", "results")
