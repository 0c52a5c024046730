"""What people asked of workers once."""

from __future__ import annotations

from django.contrib import admin

from scoring.admin.base import ReadOnlyAdmin
from scoring.models import Errand


@admin.register(Errand)
class ErrandAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "kind", "model", "state", "worker", "created_by", "team", "finished_at")
    list_filter = ("kind", "state", "team")
    list_select_related = ("model", "worker", "created_by", "team")
    deferred = ("given", "found", "error")
