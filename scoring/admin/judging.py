"""Pools that people judge, models that were asked to judge them, and the cut-offs that teams settled on."""

from __future__ import annotations

from django.contrib import admin

from scoring.admin.base import ReadOnlyAdmin
from scoring.models import ModelJudging, Pool, ThresholdAdvice


@admin.register(Pool)
class PoolAdmin(ReadOnlyAdmin):
    list_display = ("name", "state", "query_set", "document_set", "quorum", "rule", "team", "created_by", "created_at")
    list_filter = ("state", "rule", "team")
    list_select_related = ("query_set", "document_set", "team", "created_by")
    search_fields = ("name", "id")
    date_hierarchy = "created_at"
    deferred = ("guidelines", "sources")


@admin.register(ModelJudging)
class ModelJudgingAdmin(ReadOnlyAdmin):
    list_display = ("pool", "judge", "job", "verdicts", "created_by", "created_at", "stored_at")
    list_filter = ("judge__model",)
    list_select_related = ("pool", "judge", "job", "created_by")
    search_fields = ("pool__name", "judge__name")
    date_hierarchy = "created_at"


@admin.register(ThresholdAdvice)
class ThresholdAdviceAdmin(ReadOnlyAdmin):
    list_display = ("model", "score", "per_query_token", "judgement_set", "team", "created_by", "created_at")
    list_filter = ("model", "team")
    list_select_related = ("model", "judgement_set", "team", "created_by")
    search_fields = ("model__name", "note")
    date_hierarchy = "created_at"
    deferred = ("settings", "evidence")
