"""The team's jobs, requests and audit log as tables, narrowed by the filters of their lists; the verdicts of a pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from django.db.models import QuerySet
from django.http import QueryDict
from django_filters import FilterSet

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.models import AuditEvent
from scoring.export.formats import ExportTable
from scoring.export.parameters import Parameters, parameters_check, row_named
from scoring.filters import AuditEventFilter, JobFilter, ScoreRequestFilter, faults_of
from scoring.models import ScoreRequest, Verdict
from scoring.selectors.counting import rows_count
from scoring.selectors.jobs import jobs_of
from scoring.selectors.pools import pools_of

ROWS_AT_ONCE: Final = 1_000
Columns = Mapping[str, tuple[str, Callable[[Any], Any]]]  # the type of each, and how a row tells it

JOBS: Final[Columns] = {
    "id": ("string", lambda job: str(job.pk)),
    "name": ("string", lambda job: job.name),
    "state": ("string", lambda job: job.state),
    "scored_by": ("string", lambda job: job.scored_by),
    "pairs": ("int64", lambda job: job.pair_count),
    "queries": ("int64", lambda job: job.query_count),
    "documents": ("int64", lambda job: job.document_count),
    "query_set": ("string", lambda job: job.query_set.name),
    "document_set": ("string", lambda job: job.document_set.name),
    "created_by": ("string", lambda job: str(job.created_by or "")),
    "created_at": ("moment", lambda job: job.created_at),
    "finished_at": ("moment", lambda job: job.finished_at),
    "failure": ("string", lambda job: job.failure),
}
REQUESTS: Final[Columns] = {
    "id": ("string", lambda row: str(row.pk)),
    "created_at": ("moment", lambda row: row.created_at),
    "endpoint": ("string", lambda row: row.endpoint),
    "model": ("string", lambda row: row.model_name),
    "model_revision": ("string", lambda row: row.model_revision),
    "request_id": ("string", lambda row: row.request_id),
    "token": ("string", lambda row: row.token.name if row.token else ""),
    "created_by": ("string", lambda row: str(row.created_by or "")),
    "status_code": ("int32", lambda row: row.status_code),
    "error_code": ("string", lambda row: row.error_code),
    "queries": ("int64", lambda row: row.query_count),
    "documents": ("int64", lambda row: row.document_count),
    "scored": ("int64", lambda row: row.scored_count),
    "prompt_tokens": ("int64", lambda row: row.prompt_tokens),
    "compute_seconds": ("double", lambda row: row.compute_seconds),
    "total_ms": ("double", lambda row: row.timings.get("total")),
}
EVENTS: Final[Columns] = {
    "at": ("moment", lambda event: event.at),
    "actor": ("string", lambda event: event.actor_label),
    "verb": ("string", lambda event: event.verb),
    "sentence": ("string", lambda event: event.sentence),
    "target_type": ("string", lambda event: event.target_type),
    "target_id": ("string", lambda event: event.target_id),
    "detail": ("json", lambda event: event.detail),
    "request_id": ("string", lambda event: event.request_id),
}

VERDICTS: Final[Columns] = {
    "query_id": ("string", lambda verdict: verdict.pair.query_id),
    "document_id": ("string", lambda verdict: verdict.pair.document_id),
    "judge": ("string", lambda verdict: verdict.judge.name),
    "source": ("string", lambda verdict: verdict.source),
    "grade": ("int32", lambda verdict: verdict.grade),
    "decided_at": ("moment", lambda verdict: verdict.decided_at),
}


def jobs_table(principal: Principal, parameters: Parameters) -> ExportTable:
    return _table("assay-jobs", jobs_of(principal).order_by("-queued_at", "-pk"), JobFilter, parameters, JOBS)


def requests_table(principal: Principal, parameters: Parameters) -> ExportTable:
    rows = ScoreRequest.objects.for_team(principal.team).select_related("token", "created_by")
    rows = rows.defer("queries", "documents", "results").order_by("-created_at", "-pk")
    return _table("assay-score-requests", rows, ScoreRequestFilter, parameters, REQUESTS)


def audit_table(principal: Principal, parameters: Parameters) -> ExportTable:
    rows = AuditEvent.objects.filter(team=principal.team).order_by("-at", "-pk")
    return _table("assay-audit-log", rows, AuditEventFilter, parameters, EVENTS)


def verdicts_table(principal: Principal, parameters: Parameters) -> ExportTable:
    """Of one pool, pair by pair in the order in which they are judged; a grade that is empty: it cannot be judged."""
    parameters_check(parameters, ("pool",), needed="pool")
    pool = row_named(pools_of(principal), parameters, "pool")
    rows = Verdict.objects.filter(pair__pool=pool).select_related("pair", "judge").order_by("pair__place", "pk")
    return replace(_rows_table("assay-verdicts", rows, VERDICTS), subject=pool)


def _table(
    name: str, rows: QuerySet[Any], filterset: type[FilterSet], parameters: Parameters, columns: Columns
) -> ExportTable:
    return _rows_table(name, _filtered(rows, filterset, parameters), columns)


def _rows_table(name: str, rows: QuerySet[Any], columns: Columns) -> ExportTable:
    return ExportTable(
        name=name,
        columns={column: kind for column, (kind, _) in columns.items()},
        rows=lambda: (
            {column: told(row) for column, (_, told) in columns.items()} for row in rows.iterator(ROWS_AT_ONCE)
        ),
        count=rows_count(rows),
    )


def _filtered(rows: QuerySet[Any], filterset: type[FilterSet], parameters: Parameters) -> QuerySet[Any]:
    """Raises AssayError 422 for a filter that is not known, or that was given what it cannot take."""
    parameters_check(parameters, tuple(filterset.base_filters))
    given = QueryDict(mutable=True)
    for name, value in parameters.items():
        given.setlist(name, [str(each) for each in value] if isinstance(value, list) else [str(value)])
    filtered = filterset(given, queryset=rows)
    for name, message, code in faults_of(filtered):
        raise AssayError(code, message, status=422, param=f"parameters.{name}")
    return filtered.qs
