"""Workers and what is placed on them: written by the workers themselves."""

from __future__ import annotations

from django.contrib import admin
from unfold.admin import TabularInline

from scoring.admin.base import ReadOnlyAdmin
from scoring.models import Placement, Worker


class PlacementInline(TabularInline):
    model = Placement
    can_delete = False
    extra = 0
    fields = ("model", "present", "state", "generation", "claimed_bytes", "maxsim_backend", "cause", "loaded_at")
    readonly_fields = fields


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = (
        "name", "state", "hold", "device", "host", "pid", "heartbeat_at", "progress_at", "progress", "memory_bytes",
        "memory_budget_bytes",
    )  # fmt: skip
    list_filter = ("state", "hold", "device")
    search_fields = ("name", "host")
    inlines = (PlacementInline,)


@admin.register(Placement)
class PlacementAdmin(ReadOnlyAdmin):
    list_display = (
        "model", "worker", "state", "present", "demand", "generation", "claimed_bytes", "claim_source",
        "maxsim_backend", "cause", "loaded_at",
    )  # fmt: skip
    list_filter = ("state", "model", "worker")
    list_select_related = ("model", "worker")
