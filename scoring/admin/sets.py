"""Uploaded sets, their rows, and files that wait for their import. Lists show ids, not texts."""

from __future__ import annotations

from django.contrib import admin

from scoring.admin.base import ReadOnlyAdmin
from scoring.models import Document, DocumentSet, Judgement, JudgementSet, Query, QuerySet, RunEntry, RunSet, Upload
from scoring.models.base import UploadedSet


@admin.register(DocumentSet, QuerySet, JudgementSet, RunSet)
class UploadedSetAdmin(ReadOnlyAdmin):
    list_display = ("name", "state", "rows", "file_name", "file_format", "team", "created_by", "created_at")
    list_filter = ("state", "file_format", "team")
    list_select_related = ("team", "created_by")
    search_fields = ("name", "file_name", "checksum")
    date_hierarchy = "created_at"
    deferred = ("problems", "mapping", "error")

    @admin.display(description="rows")
    def rows(self, obj: UploadedSet) -> int:
        return obj.counts.get("kept", 0)


@admin.register(Document)
class DocumentAdmin(ReadOnlyAdmin):
    list_display = ("external_id", "document_set", "position", "is_empty")
    list_filter = ("is_empty",)
    list_select_related = ("document_set",)
    search_fields = ("external_id",)
    deferred = ("title", "text", "metadata")


@admin.register(Query)
class QueryAdmin(ReadOnlyAdmin):
    list_display = ("external_id", "query_set", "position", "is_empty")
    list_filter = ("is_empty",)
    list_select_related = ("query_set",)
    search_fields = ("external_id",)
    deferred = ("text", "metadata")


@admin.register(Judgement)
class JudgementAdmin(ReadOnlyAdmin):
    list_display = ("query_id", "document_id", "grade", "judgement_set")
    list_filter = ("grade",)
    list_select_related = ("judgement_set",)
    search_fields = ("query_id", "document_id")


@admin.register(RunEntry)
class RunEntryAdmin(ReadOnlyAdmin):
    list_display = ("query_id", "document_id", "rank", "score", "run_set")
    list_select_related = ("run_set",)
    search_fields = ("query_id", "document_id")


@admin.register(Upload)
class UploadAdmin(ReadOnlyAdmin):
    list_display = ("file_name", "kind", "size", "team", "created_by", "created_at")
    list_filter = ("kind", "team")
    list_select_related = ("team", "created_by")
    exclude = ("file",)
