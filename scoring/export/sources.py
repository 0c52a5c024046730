"""Every table that can be taken away: who may have it, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from accounts.scopes import Scope
from assay.api.principal import Principal
from assay.api.sentences import shortened
from assay.errors import AssayError
from scoring.export.formats import ExportTable
from scoring.export.lists import audit_table, jobs_table, requests_table, verdicts_table
from scoring.export.parameters import Parameters, parameters_check, row_named, whole_number
from scoring.export.results import stage_table
from scoring.export.sets import table_of
from scoring.export.usage import usage_table
from scoring.models import DocumentSet, JudgementSet, QuerySet, RunSet
from scoring.selectors.jobs import job_stage, jobs_of
from scoring.states import JobState


@dataclass(frozen=True, slots=True)
class Source:
    title: str
    scope: Scope
    opened: Callable[[Principal, Parameters], ExportTable]
    verb: str = "table.exported"  # of the record that it was exported


def results_table(principal: Principal, parameters: Parameters) -> ExportTable:
    """Raises AssayError 409 ``job_not_ended``."""
    parameters_check(parameters, ("job", "stage"), needed="job")
    job = row_named(jobs_of(principal), parameters, "job")
    if not JobState(job.state).is_final:
        message = f"Job '{job.name}' is {job.get_state_display()}; its results can be exported when it has ended."
        raise AssayError("job_not_ended", message, status=409)
    return stage_table(job_stage(job, whole_number(parameters, "stage")))


SOURCES: Final = {
    "jobs": Source("Jobs", Scope.JOBS, jobs_table),
    "results": Source("Rankings of a job", Scope.JOBS, results_table, "job.exported"),
    "documents": Source("Documents of a set", Scope.JOBS, table_of(DocumentSet)),
    "queries": Source("Queries of a set", Scope.JOBS, table_of(QuerySet)),
    "judgements": Source("Judgements of a set", Scope.JOBS, table_of(JudgementSet)),
    "runs": Source("Entries of a run", Scope.JOBS, table_of(RunSet)),
    "verdicts": Source("Verdicts of a pool", Scope.JOBS, verdicts_table),
    "score-requests": Source("Score requests", Scope.SCORE, requests_table),
    "usage": Source("Usage", Scope.SCORE, usage_table),
    "audit-events": Source("Audit log", Scope.ADMIN, audit_table),
}


def export_table(name: str, *, principal: Principal, parameters: Parameters) -> ExportTable:
    """The table as the principal may see it, narrowed by ``parameters``.

    Raises AssayError 422 for a table or a parameter that cannot be, 404 for an id that is not the team's, 409 for a
    job that has not ended; PermissionDenied without the table's scope.
    """
    if name not in SOURCES:
        message = f"'{shortened(name)}' is no table that can be exported; give one of {', '.join(SOURCES)}."
        raise AssayError("unknown_table", message, status=422, param="table")
    principal.require_scope(SOURCES[name].scope)
    return SOURCES[name].opened(principal, parameters)
