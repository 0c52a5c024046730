"""Jobs: the list."""

from __future__ import annotations

from typing import Any, ClassVar

from accounts.scopes import Scope
from assay.web.errors import not_here
from assay.web.mixins import PrincipalMixin
from scoring.filters import JobFilter
from scoring.models import Job
from scoring.selectors.jobs import jobs_of
from scoring.web.columns import ColumnsMixin
from scoring.web.exports import ExportsMixin
from scoring.web.filtered import FilteredListView


def job_or_404(view: PrincipalMixin, pk: Any) -> Job:
    job = jobs_of(view.principal).filter(pk=pk).first()
    if job is None:
        raise not_here("job", pk)
    return job


class JobListView(ExportsMixin, ColumnsMixin, FilteredListView):
    required_scope: ClassVar[str] = Scope.JOBS
    table_name = "jobs"
    export_source = "jobs"
    filterset_class = JobFilter
    template_name = "jobs/list.html"

    def get_queryset(self) -> Any:
        return jobs_of(self.principal)
