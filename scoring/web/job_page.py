"""One job: progress, results, evaluation, details, export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from django.core.paginator import Paginator
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.generic.base import View

from accounts.scopes import Scope
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from audit.services import audit_record
from scoring.export.results import export_of
from scoring.models import Job, Query, Stage
from scoring.selectors.evaluation import EVALUATED, Evaluation, stage_evaluate
from scoring.selectors.jobs import JobProgress, chunk_problems, job_log, job_progress, results_of
from scoring.services.jobs import STOPPABLE
from scoring.states import ChunkState, ItemStatus, JobState
from scoring.web.forms import EvaluationForm
from scoring.web.htmx import polled
from scoring.web.jobs import job_or_404
from scoring.web.results import ResultsPage, results_page

PROBLEMS_SHOWN = 50
QUERIES_PER_PAGE = 50
STRIP_ORDER = (ChunkState.DONE, ChunkState.LEASED, ChunkState.FAILED, ChunkState.CANCELLED, ChunkState.PENDING)
MEANINGS = {
    "nDCG@10": "graded relevance of the first ten, discounted by rank; 1 is the ideal order",
    "RR@10": "one over the rank of the first relevant document; 0 when it is not among ten",
    "R@100": "share of the relevant documents that are among the first hundred",
    "Judged@10": "share of the first ten that somebody judged at all",
}


@dataclass(frozen=True, slots=True)
class JobPage:
    """What every view of a job shows above its own part."""

    job: Job
    progress: JobProgress
    kept: int

    @property
    def stage(self) -> Stage:
        return self.job.last_stage

    @property
    def ended(self) -> bool:
        return JobState(self.job.state).is_final

    @property
    def cancellable(self) -> bool:
        return self.job.state in STOPPABLE

    @property
    def measurable(self) -> bool:
        return self.job.state in EVALUATED and self.kept > 0

    @property
    def strip(self) -> list[tuple[str, float, float]]:
        """Chunks by state as (state, start, width) in percent."""
        total = sum(self.progress.chunks.values()) or 1
        parts, start = [], 0.0
        for state in STRIP_ORDER:
            width = 100 * self.progress.chunks[state] / total
            parts.append((str(state), round(start, 3), round(width, 3)))
            start += width
        return parts

    @property
    def chunks(self) -> list[tuple[ChunkState, int]]:
        return [(state, self.progress.chunks[state]) for state in STRIP_ORDER]

    @property
    def pairs_a_second(self) -> float | None:
        seconds = self.job.statistics.get("seconds")
        return self.progress.pairs_done / seconds if seconds else None

    @property
    def pair_counts(self) -> list[tuple[ItemStatus, int]]:
        pairs = self.job.statistics.get("pairs", {})
        return [(status, pairs.get(status, 0)) for status in ItemStatus]


def job_page(job: Job) -> JobPage:
    return JobPage(job, job_progress(job), results_of(job.last_stage).aggregate(kept=Sum("kept"))["kept"] or 0)


class JobView(PrincipalMixin, View):
    """A whole page of one job; subclasses name their tab and add their context."""

    required_scope: ClassVar[str] = Scope.JOBS
    tab: ClassVar[str]
    template_name: ClassVar[str]

    def get(self, request: HttpRequest, pk: Any) -> HttpResponse:
        page = job_page(job_or_404(self, pk))
        return render(request, self.template_name, {"page": page, "tab": self.tab, "view": self, **self.context(page)})

    def context(self, page: JobPage) -> dict[str, Any]:
        return _details(page)


class JobDetailView(JobView):
    """The results where there are any; until then, what happens."""

    tab = "results"
    template_name = "jobs/detail.html"

    def context(self, page: JobPage) -> dict[str, Any]:
        if not (page.ended and page.kept):
            return _details(page)
        results: ResultsPage = results_page(page.stage, self.request.GET)
        return {"results": results}


class JobDetailsView(JobView):
    tab = "details"
    template_name = "jobs/detail.html"


class JobEvaluationView(JobView):
    tab = "evaluation"
    template_name = "jobs/evaluation.html"

    def context(self, page: JobPage) -> dict[str, Any]:
        form = EvaluationForm(self.request.GET or None, principal=self.principal)
        choices = list(form.fields["judgement_set"].queryset[:2])  # type: ignore[attr-defined]
        chosen = form.cleaned_data["judgement_set"] if form.is_valid() else choices[0] if len(choices) == 1 else None
        context: dict[str, Any] = {
            "form": form,
            "chosen": chosen,
            "any_judgements": bool(choices),
            "meanings": MEANINGS,
        }
        if chosen is None or not page.measurable:
            return context
        try:
            evaluation = stage_evaluate(page.stage, chosen)
        except AssayError as refusal:
            return {**context, "refusal": refusal.message}
        return {**context, "evaluation": evaluation, **self._by_query(page.job, evaluation)}

    def _by_query(self, job: Job, evaluation: Evaluation) -> dict[str, Any]:
        """A page of queries, the worst by the first measure first, and its rows (query, values in measure order)."""
        first = evaluation.measures[0]
        ordered = sorted(evaluation.per_query, key=lambda query_id: evaluation.per_query[query_id][first])
        page = Paginator(ordered, QUERIES_PER_PAGE).get_page(self.request.GET.get("page"))
        queries = Query.objects.filter(query_set=job.query_set_id, external_id__in=list(page))
        by_id = {query.external_id: query for query in queries}
        rows = [
            (by_id[name], [evaluation.per_query[name][measure] for measure in evaluation.measures]) for name in page
        ]
        return {"queries": page, "rows": rows}


class JobProgressView(PrincipalMixin, View):
    """The part of a running job's page that renews itself; at the end the page loads anew, with the results."""

    required_scope: ClassVar[str] = Scope.JOBS

    def get(self, request: HttpRequest, pk: Any) -> HttpResponse:
        page = job_page(job_or_404(self, pk))
        context = {"page": page, "polled": True, **_details(page)}
        return polled(request, "jobs/_progress.html", context, ended=page.ended)


class JobExportView(PrincipalMixin, View):
    required_scope: ClassVar[str] = Scope.JOBS

    def get(self, request: HttpRequest, pk: Any, export_format: str) -> StreamingHttpResponse:
        job = job_or_404(self, pk)
        lines, content_type, file_name = export_of(job.last_stage, export_format)
        audit_record(verb="job.exported", principal=self.principal, target=job, detail={"format": export_format})
        response = StreamingHttpResponse(lines, content_type=content_type)
        response["Content-Disposition"] = f'attachment; filename="{file_name}"'
        return response


def _details(page: JobPage) -> dict[str, Any]:
    return {
        "log": job_log(page.job),
        "problems": chunk_problems(page.job).select_related("lease_owner")[:PROBLEMS_SHOWN],
    }
