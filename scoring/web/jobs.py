"""Jobs: the list, a new one, cancel."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any, ClassVar

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.generic import FormView
from django.views.generic.base import View
from django_filters.views import FilterView
from django_tables2 import SingleTableMixin

from accounts.scopes import Scope
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from scoring.filters import JobFilter
from scoring.models import Job
from scoring.selectors.home import start_of
from scoring.selectors.jobs import jobs_of
from scoring.selectors.models import models_with_placements
from scoring.services.jobs import job_cancel, job_submit
from scoring.services.stages import StagePlan
from scoring.web.actions import ActionView
from scoring.web.forms import JobForm
from scoring.web.tables import JobTable

DEFAULT_TOP_K = 100


def job_or_404(view: PrincipalMixin, pk: Any) -> Job:
    job = jobs_of(view.principal).filter(pk=pk).first()
    if job is None:
        raise Http404
    return job


class JobListView(PrincipalMixin, SingleTableMixin, FilterView):
    required_scope: ClassVar[str] = Scope.JOBS
    table_class = JobTable
    filterset_class = JobFilter
    template_name = "jobs/list.html"
    paginate_by = 25

    def get_queryset(self) -> Any:
        return jobs_of(self.principal)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        is_empty = not self.request.GET and not self.object_list
        return super().get_context_data(is_empty=is_empty, **kwargs)


class JobNewView(PrincipalMixin, FormView[JobForm]):
    required_scope: ClassVar[str] = Scope.JOBS
    form_class = JobForm
    template_name = "jobs/new.html"

    def get_initial(self) -> dict[str, Any]:
        named = {name: self.request.GET.get(name) for name in ("document_set", "query_set", "model")}
        return {"top_k": DEFAULT_TOP_K, "priority": 0, "form_key": uuid.uuid4().hex, **named}

    def get_form(self, form_class: Any = None) -> JobForm:
        """Where there is only one choice, it is made."""
        form = super().get_form(form_class)
        for name in ("document_set", "query_set", "model"):
            choices = form.fields[name].queryset.values_list("pk", flat=True)[:2]  # type: ignore[attr-defined]
            if not form.initial[name] and len(choices) == 1:
                form.initial[name] = choices[0]
        return form

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "principal": self.principal}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        form = context["form"]
        return {
            **context,
            "models": models_with_placements(),
            "start": start_of(self.principal),
            "chosen_model": str(form["model"].value() or ""),
            "size": job_size(form, form["document_set"].value(), form["query_set"].value()),
        }

    def form_valid(self, form: JobForm) -> HttpResponse:
        fields = dict(form.cleaned_data)
        key = idempotency_key(fields)
        del fields["form_key"]
        stages = [StagePlan(model=fields.pop("model"), top_k=fields.pop("top_k"))]
        try:
            job, _ = job_submit(principal=self.principal, idempotency_key=key, stages=stages, **fields)
        except AssayError as refusal:
            form.add_error(refusal.param if refusal.param in form.fields else None, refusal.message)
            return self.form_invalid(form)
        return HttpResponseRedirect(reverse("web:job_detail", args=[job.pk]))


def idempotency_key(fields: dict[str, Any]) -> str:
    """The same form sent twice is one job; the same form with something changed is another."""
    said = "\x1f".join(f"{name}={getattr(value, 'pk', value)}" for name, value in sorted(fields.items()))
    return f"page:{hashlib.sha256(said.encode()).hexdigest()}"


def job_size(form: JobForm, document_set: Any, query_set: Any) -> dict[str, int] | None:
    """How much there is to score, once both sets are chosen."""
    documents, queries = _rows(form, "document_set", document_set), _rows(form, "query_set", query_set)
    if documents is None or queries is None:
        return None
    return {"documents": documents, "queries": queries, "pairs": documents * queries}


def _rows(form: JobForm, field: str, pk: Any) -> int | None:
    try:
        chosen = uuid.UUID(str(pk))
    except ValueError:
        return None
    counts = form.fields[field].queryset.filter(pk=chosen).values_list("counts", flat=True).first()  # type: ignore[attr-defined]
    return counts.get("kept") if counts else None


class JobSizeView(PrincipalMixin, View):
    """The number of pairs, renewed while the form is filled in."""

    required_scope: ClassVar[str] = Scope.JOBS

    def get(self, request: HttpRequest) -> HttpResponse:
        form = JobForm(principal=self.principal)
        size = job_size(form, request.GET.get("document_set"), request.GET.get("query_set"))
        return render(request, "jobs/_size.html", {"size": size})


class JobCancelView(ActionView):
    required_scope: ClassVar[str] = Scope.JOBS

    def act(self) -> str:
        job = job_cancel(principal=self.principal, job=job_or_404(self, self.kwargs["pk"]))
        return f"Job “{job.name}” is being cancelled. What was scored already stays."

    def after(self) -> str:
        return reverse("web:job_detail", args=[self.kwargs["pk"]])
