"""The page on which a job is put together."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.generic.base import View

from accounts.scopes import Scope
from assay.callers import caller_of
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from scoring.selectors.home import start_of
from scoring.selectors.models import RERANKERS, models_with_placements
from scoring.selectors.pace import model_paces
from scoring.services.jobs import job_submit, request_fingerprint
from scoring.services.trials import Trial, trial_run
from scoring.web.job_estimate import job_estimate
from scoring.web.job_form import DEFAULT_BM25, WHEN, Candidates, JobForm, JobForms, cleaned, job_forms, rows_of

DEFAULT_TOP_K = 100
TRIAL_ENDPOINT = "page /jobs/new/"
CHOSEN_BY_LINK = ("document_set", "query_set", "run_set", "model")


class JobNewView(PrincipalMixin, View):
    required_scope: ClassVar[str] = Scope.JOBS

    def get(self, request: HttpRequest) -> HttpResponse:
        given = {name: request.GET[name] for name in CHOSEN_BY_LINK if name in request.GET}
        defaults = {
            "candidates": Candidates.RUN if "run_set" in given else Candidates.ALL,
            "bm25_top_k": DEFAULT_BM25,
            "top_k": DEFAULT_TOP_K,
            "priority": 0,
            "form_key": uuid.uuid4().hex,
        }
        only = _only_choices(JobForm(principal=self.principal))
        return self._page(job_forms(self.principal, data={**defaults, **only, **given}, bound=False))

    def post(self, request: HttpRequest) -> HttpResponse:
        if "add" in request.POST or "remove" in request.POST:
            step = 1 if "add" in request.POST else -1
            rows = str(max(0, rows_of(request.POST) + step))
            return self._page(job_forms(self.principal, data={**request.POST.dict(), "rows": rows}, bound=False))
        forms = job_forms(self.principal, data=request.POST, bound=True)
        if not forms.is_valid():
            return self._page(forms)
        plans, fields = forms.plans(), forms.job.cleaned_data
        own = {name: fields[name] for name in ("document_set", "query_set", "priority", "name", *WHEN)}
        # The same form sent twice is one job; the same form with something changed is another.
        key = f"page:{request_fingerprint(fields['form_key'], own, plans)}"
        try:
            job, _ = job_submit(principal=self.principal, idempotency_key=key, stages=plans, **own)
        except AssayError as refusal:
            form, field = forms.place_of(refusal.param)
            form.add_error(field, refusal.message)
            return self._page(forms)
        return HttpResponseRedirect(reverse("web:job_detail", args=[job.pk]))

    def _page(self, forms: JobForms, **more: Any) -> HttpResponse:
        filled = forms
        if not forms.job.is_bound:
            filled = job_forms(self.principal, data=_values(forms), bound=True)
        models = list(models_with_placements().filter(kind__in=RERANKERS))
        context = {
            "form": forms.job,
            "forms": forms,
            "models": models,
            "paces": model_paces(model.name for model in models),
            "start": start_of(self.principal),
            "chosen_model": str(forms.job["model"].value() or ""),
            "estimate": job_estimate(filled, self.principal),
            "view": self,
            **more,
        }
        return render(self.request, "jobs/new.html", context)


class JobTrialView(JobNewView):
    """The form again, with real scores of a few documents in it."""

    waits_for_model: ClassVar[bool] = True

    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponseRedirect(reverse("web:job_new"))

    def post(self, request: HttpRequest) -> HttpResponse:
        filled = job_forms(self.principal, data=request.POST, bound=True)
        filled.is_valid()
        shown = job_forms(self.principal, data={**request.POST.dict(), "rows": len(filled.further)}, bound=False)
        try:
            return self._page(shown, trial=self._trial(filled))
        except AssayError as refusal:
            return self._page(shown, trial_refusal=refusal.message)

    def _trial(self, forms: JobForms) -> Trial:
        fields = cleaned(forms.job)
        models = {plan.model.pk: plan.model for plan in forms.plans() if plan.model}
        missing = [noun for noun in ("document set", "query set") if fields.get(noun.replace(" ", "_")) is None]
        if missing := missing + ([] if models else ["model"]):
            message = f"Choose a {' and a '.join(missing)} first; then this shows what the scores look like."
            raise AssayError("incomplete", message, status=422)
        return trial_run(
            principal=self.principal,
            models=list(models.values()),
            document_set=fields["document_set"],
            query_set=fields["query_set"],
            query_id=fields.get("try_query", ""),
            run_set=fields.get("run_set") if fields.get("candidates") == Candidates.RUN else None,
            endpoint=TRIAL_ENDPOINT,
            caller=caller_of(self.request),
        )


class JobSizeView(PrincipalMixin, View):
    """The number of pairs and what they take, renewed while the form is filled in."""

    required_scope: ClassVar[str] = Scope.JOBS

    def get(self, request: HttpRequest) -> HttpResponse:
        estimate = job_estimate(job_forms(self.principal, data=request.GET, bound=True), self.principal)
        return render(request, "jobs/_size.html", {"estimate": estimate})


def _only_choices(form: JobForm) -> dict[str, Any]:
    """Where there is only one choice, it is made."""
    only = {}
    for name in ("document_set", "query_set", "model"):
        choices = form.fields[name].queryset.values_list("pk", flat=True)[:2]  # type: ignore[attr-defined]
        if len(choices) == 1:
            only[name] = str(choices[0])
    return only


def _values(forms: JobForms) -> dict[str, Any]:
    """What unbound forms show, as their page would send it."""
    shown = {name: forms.job[name].value() for name in forms.job.fields}
    for form in forms.further:
        shown |= {form.add_prefix(name): form[name].value() for name in form.fields}
    return {**shown, "rows": str(len(forms.further))}
