"""One job: progress, results, evaluation, details."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from django.db.models import Sum
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.generic.base import View

from accounts.scopes import Scope
from assay.errors import AssayError
from assay.web.errors import not_here
from assay.web.mixins import PrincipalMixin
from scoring.models import Job, Stage
from scoring.selectors.counting import RowCount
from scoring.selectors.evaluation import EVALUATED
from scoring.selectors.evaluations import evaluations_of
from scoring.selectors.job_events import KINDS, log_page
from scoring.selectors.jobs import JobProgress, chunk_problems, job_progress, job_stage, results_of
from scoring.selectors.stage_progress import chunks_in_hand, stages_progress
from scoring.services.evaluations import evaluation_create
from scoring.services.job_control import PAUSABLE
from scoring.states import RETRIABLE_JOB_STATES, STOPPABLE_JOB_STATES, ChunkState, ItemStatus, JobState
from scoring.web.evaluations import CHOICES, EvaluationForm
from scoring.web.exports import Choice, export_choices
from scoring.web.htmx import polled
from scoring.web.job_actions import JobChangeForm, change_form
from scoring.web.jobs import job_or_404
from scoring.web.results import ResultsPage, results_page

PROBLEMS_SHOWN = 50
EVALUATIONS_SHOWN = 20
LOG_KINDS = {"main": "What matters", "problems": "Problems", "all": "Everything"}
STRIP_ORDER = (ChunkState.DONE, ChunkState.LEASED, ChunkState.FAILED, ChunkState.CANCELLED, ChunkState.PENDING)


@dataclass(frozen=True, slots=True)
class JobPage:
    """What every view of a job shows above its own part."""

    job: Job
    stage: Stage  # whose ranking is shown
    progress: JobProgress
    kept: int

    @property
    def stages(self) -> list[Stage]:
        return list(self.job.stages.all())

    @property
    def stage_query(self) -> str:
        """Keeps the stage from one address to the next; nothing where it is the last one anyway."""
        return "" if self.stage.index == self.job.last_stage.index else f"?stage={self.stage.index}"

    @property
    def ended(self) -> bool:
        return JobState(self.job.state).is_final

    @property
    def cancellable(self) -> bool:
        return self.job.state in STOPPABLE_JOB_STATES

    @property
    def pausable(self) -> bool:
        return self.job.state in PAUSABLE

    @property
    def resumable(self) -> bool:
        return self.job.state == JobState.PAUSED

    @property
    def retriable(self) -> bool:
        return self.job.state in RETRIABLE_JOB_STATES

    @property
    def max_error_percent(self) -> str:
        return f"{self.job.max_error_rate:.4%}".removesuffix("%").rstrip("0").removesuffix(".")

    @property
    def change_form(self) -> JobChangeForm:
        return change_form(self.job)

    @property
    def exports(self) -> list[Choice]:
        """Each row is a document in a query's ranking."""
        parameters = {"job": self.job.pk, "stage": self.stage.index}
        return export_choices("results", parameters=parameters, count=RowCount(self.kept), trec="TREC run")

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


def job_page(job: Job, stage: Stage) -> JobPage:
    return JobPage(job, stage, job_progress(job), results_of(stage).aggregate(kept=Sum("kept"))["kept"] or 0)


def stage_or_404(request: HttpRequest, job: Job) -> Stage:
    """The stage that the address names, else the last one."""
    given = request.GET.get("stage")
    if given is not None and not (given.isdecimal() and len(given) < 4):
        raise not_here(f"stage of the job “{job.name}”", given)
    try:
        return job_stage(job, None if given is None else int(given))
    except AssayError as error:
        raise Http404(error.message) from error


class JobView(PrincipalMixin, View):
    """A whole page of one job; subclasses name their tab and add their context."""

    required_scope: ClassVar[str] = Scope.JOBS
    tab: ClassVar[str]
    template_name: ClassVar[str]

    def get(self, request: HttpRequest, pk: Any) -> HttpResponse:
        job = job_or_404(self, pk)
        page = job_page(job, stage_or_404(request, job))
        return render(request, self.template_name, {"page": page, "tab": self.tab, "view": self, **self.context(page)})

    def context(self, page: JobPage) -> dict[str, Any]:
        return {**_details(page, self.request.GET), **_under_way(page)}


class JobDetailView(JobView):
    """The results where there are any; until then, what happens."""

    tab = "results"
    template_name = "jobs/detail.html"

    def context(self, page: JobPage) -> dict[str, Any]:
        if not (page.ended and page.kept):
            return {**_details(page, self.request.GET), **_under_way(page)}
        results: ResultsPage = results_page(page.stage, self.request.GET, user=self.principal.user)
        return {"results": results}


class JobDetailsView(JobView):
    tab = "details"
    template_name = "jobs/detail.html"


class JobEvaluationView(JobView):
    """What was measured of a stage, and the form that measures it."""

    tab = "evaluation"
    template_name = "jobs/evaluation.html"
    form: EvaluationForm | None = None

    def context(self, page: JobPage) -> dict[str, Any]:
        form = self.form or EvaluationForm(principal=self.principal)
        versions = list(form.fields["judgement_set"].queryset[:2])  # type: ignore[attr-defined]
        if len(versions) == 1:
            form.initial["judgement_set"] = versions[0].pk
        made = evaluations_of(self.principal).filter(stage=page.stage)
        return {
            "form": form,
            "groups": CHOICES,
            "any_judgements": bool(versions),
            "made": made[:EVALUATIONS_SHOWN],
        }

    def post(self, request: HttpRequest, pk: Any) -> HttpResponse:
        self.form = form = EvaluationForm(request.POST, principal=self.principal)
        if form.is_valid():
            fields = form.cleaned_data
            try:
                evaluation, _ = evaluation_create(
                    principal=self.principal,
                    stage=stage_or_404(request, job_or_404(self, pk)),
                    judgement_set=fields["judgement_set"],
                    measures=fields["names"],
                    only_relevant=fields["only_relevant"],
                )
            except AssayError as refusal:
                form.add_error(refusal.param if refusal.param in form.fields else None, refusal.message)
            else:
                return redirect("web:evaluation_detail", pk=evaluation.pk)
        return self.get(request, pk)


class JobProgressView(PrincipalMixin, View):
    """The part of a running job's page that renews itself; at the end the page loads anew, with the results."""

    required_scope: ClassVar[str] = Scope.JOBS

    def get(self, request: HttpRequest, pk: Any) -> HttpResponse:
        job = job_or_404(self, pk)
        page = job_page(job, job.last_stage)
        context = {"page": page, "polled": True, **_details(page, request.GET), **_under_way(page)}
        return polled(request, "jobs/_progress.html", context, ended=page.ended)


def _details(page: JobPage, query: QueryDict) -> dict[str, Any]:
    """The log and the chunks that came back. ``?log=`` names the kind of events, ``?before=`` where to go on."""
    kind = query.get("log", "main")
    before = query.get("before", "")
    return {
        "log": log_page(
            page.job,
            kind=kind if kind in KINDS else "main",
            before=int(before) if re.fullmatch("[0-9]{1,18}", before, re.ASCII) else None,
        ),
        "log_kinds": LOG_KINDS,
        "problems": chunk_problems(page.job).select_related("lease_owner")[:PROBLEMS_SHOWN],
    }


def _under_way(page: JobPage) -> dict[str, Any]:
    """Of a job that has not ended."""
    return {} if page.ended else {"stages": stages_progress(page.job), "in_hand": list(chunks_in_hand(page.job))}
