"""Jobs, their chunks and results, and the log of all states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from unfold.admin import ModelAdmin

from assay.api.principal import principal_of
from assay.errors import AssayError
from scoring.admin.base import ReadOnlyAdmin
from scoring.models import Chunk, Job, JobLimit, QueryResult, Transition
from scoring.services.job_control import job_cancel, job_pause, job_resume
from scoring.services.job_limits import job_limit_delete, job_limit_set
from scoring.services.job_retry import job_retry


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = ("name", "state", "pair_count", "team", "created_by", "queued_at", "finished_at")
    list_filter = ("state", "team")
    list_select_related = ("team", "created_by")
    search_fields = ("name", "id")
    date_hierarchy = "queued_at"
    actions = ("pause", "resume", "cancel", "retry")

    def get_view_on_site_url(self, obj: Job | None = None) -> str | None:
        return reverse("web:job_detail", args=[obj.pk]) if obj is not None else None

    @admin.action(description="Pause the selected jobs", permissions=["view"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self._each(request, queryset, job_pause)

    @admin.action(description="Resume the selected jobs", permissions=["view"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self._each(request, queryset, job_resume)

    @admin.action(description="Cancel the selected jobs", permissions=["view"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self._each(request, queryset, job_cancel)

    @admin.action(description="Retry what is unfinished of the selected jobs", permissions=["view"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self._each(request, queryset, job_retry)

    def _each(self, request: HttpRequest, jobs: QuerySet[Job], move: Callable[..., Job]) -> None:
        for job in jobs:
            try:
                moved = move(principal=principal_of(request), job=job)
                self.message_user(request, f"“{moved.name}” is {moved.get_state_display()}.", messages.SUCCESS)
            except AssayError as refusal:
                self.message_user(request, refusal.message, messages.ERROR)


@admin.register(JobLimit)
class JobLimitAdmin(ModelAdmin):
    list_display = ("team", "user", "running_jobs", "waiting_jobs", "open_pairs")
    list_filter = ("team",)
    list_select_related = ("team", "user")

    def save_model(self, request: HttpRequest, obj: JobLimit, form: Any, change: bool) -> None:
        job_limit_set(principal=principal_of(request), limit=obj)

    def delete_model(self, request: HttpRequest, obj: JobLimit) -> None:
        job_limit_delete(principal=principal_of(request), limit=obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[JobLimit]) -> None:
        for limit in queryset.select_related("team", "user"):
            self.delete_model(request, limit)


@admin.register(Chunk)
class ChunkAdmin(ReadOnlyAdmin):
    list_display = ("job", "stage", "index", "state", "attempts", "cause", "lease_owner", "started_at", "finished_at")
    list_filter = ("state", "cause")
    list_select_related = ("job", "stage__model", "lease_owner")
    search_fields = ("job__name", "job__id")
    exclude = ("raw_scores", "scores", "statuses", "document_positions")
    deferred = exclude


@admin.register(QueryResult)
class QueryResultAdmin(ReadOnlyAdmin):
    list_display = ("stage", "query_position", "query", "kept", "scored")
    list_select_related = ("stage__model", "query")
    search_fields = ("stage__job__name", "stage__job__id", "query__external_id")
    exclude = ("positions", "raw_scores", "scores", "statuses")
    deferred = (*exclude, "query__text", "query__metadata")


@admin.register(Transition)
class TransitionAdmin(ReadOnlyAdmin):
    list_display = ("at", "entity", "entity_id", "from_state", "to_state", "actor", "reason")
    list_filter = ("entity", "to_state")
    search_fields = ("entity_id", "actor")
    ordering = ("-id",)
