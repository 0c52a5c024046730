"""Reads of uploaded runs: which documents a query has, and in which order."""

from __future__ import annotations

from django.db.models import F, QuerySet

from scoring.models import RunEntry, RunSet


def run_entries(*, run_set: RunSet) -> QuerySet[RunEntry]:
    """The run query by query. Within a query: by rank if the file gives ranks, else by falling score; ties by line."""
    order = "rank" if run_set.mapping.get("rank") else F("score").desc()
    return RunEntry.objects.filter(run_set=run_set).order_by("query_id", order, "position")
