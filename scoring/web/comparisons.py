"""Comparisons: the list, the form of a new one, and the buttons."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.generic import TemplateView

from accounts.scopes import Scope
from assay.api.principal import Principal
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from scoring.filters import ComparisonFilter
from scoring.models import Comparison, ComparisonTest, Job, JudgementSet
from scoring.selectors.comparisons import comparisons_of, stages_comparable
from scoring.selectors.evaluation import DEFAULT_MEASURES, EVALUATED
from scoring.selectors.jobs import jobs_of
from scoring.services.comparisons import (
    comparison_change,
    comparison_create,
    comparison_delete,
    comparison_recompute,
    comparison_set_baseline,
)
from scoring.web.actions import ActionView
from scoring.web.columns import ColumnsMixin
from scoring.web.filtered import FilteredListView
from scoring.web.forms import SetChoice, ready_sets
from scoring.web.jobs import job_or_404

DEEDS: Final = ("pin", "unpin", "baseline", "recompute", "delete")
JOBS_OFFERED: Final = 100
USUAL_MEASURES: Final = ("nDCG@10", "nDCG@5", "nDCG@20", "AP", "RR@10", "P@5", "P@10", "R@10", "R@100", "Success@1")


def comparison_or_404(view: PrincipalMixin) -> Comparison:
    comparison = comparisons_of(view.principal).filter(pk=view.kwargs["pk"]).first()
    if comparison is None:
        raise Http404
    return comparison


class ComparisonForm(forms.Form):
    """Over the query set of ``job``, whose own stages stand first."""

    stages = forms.MultipleChoiceField(label="Rankings", widget=forms.CheckboxSelectMultiple)
    judgement_set = SetChoice(JudgementSet.objects.none(), required=False, empty_label="None: how alike they are")
    name = forms.CharField(max_length=200, required=False, help_text="left empty: the names of the rankings")
    primary_measure = forms.CharField(
        max_length=100, initial=DEFAULT_MEASURES[0], widget=forms.TextInput(attrs={"list": "measures"}),
        help_text="decides; the others are shown as exploratory",
    )  # fmt: skip
    test = forms.ChoiceField(
        choices=ComparisonTest.choices, initial=ComparisonTest.T, help_text="of the differences, query by query"
    )
    usual_measures = USUAL_MEASURES

    def __init__(self, *args: Any, principal: Principal, job: Job, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        found = stages_comparable(principal, job.query_set_id)
        self.offered = {str(stage.pk): stage for stage in sorted(found, key=lambda stage: stage.job_id != job.pk)}
        field = self.fields["stages"]
        field.choices = [(key, stage) for key, stage in self.offered.items()]  # type: ignore[attr-defined]
        field.initial = [key for key, stage in self.offered.items() if stage.job_id == job.pk]
        field.error_messages["required"] = "Choose two to four rankings."
        self.fields["judgement_set"].queryset = ready_sets(JudgementSet, principal)  # type: ignore[attr-defined]

    def clean_stages(self) -> list[Any]:
        return [self.offered[key] for key in self.offered if key in self.cleaned_data["stages"]]


class ComparisonListView(ColumnsMixin, FilteredListView):
    required_scope: ClassVar[str] = Scope.JOBS
    table_name = "comparisons"
    filterset_class = ComparisonFilter
    template_name = "comparisons/list.html"

    def get_queryset(self) -> Any:
        return comparisons_of(self.principal)


class ComparisonNewView(PrincipalMixin, TemplateView):
    """First a job, then which rankings for its queries."""

    required_scope: ClassVar[str] = Scope.JOBS
    template_name = "comparisons/new.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        job = self._job()
        if job is None:
            ended = jobs_of(self.principal).filter(state__in=EVALUATED)[:JOBS_OFFERED]
            return super().get_context_data(jobs=ended, **kwargs)
        kwargs.setdefault("form", ComparisonForm(principal=self.principal, job=job))
        return super().get_context_data(job=job, **kwargs)

    def post(self, request: HttpRequest) -> HttpResponse:
        job = self._job()
        if job is None:
            return redirect("web:comparison_new")
        form = ComparisonForm(request.POST, principal=self.principal, job=job)
        if form.is_valid():
            try:
                comparison = comparison_create(principal=self.principal, **form.cleaned_data)
            except AssayError as refusal:
                form.add_error(_field_of(refusal), refusal.message)
            else:
                return redirect("web:comparison_detail", pk=comparison.pk)
        return self.render_to_response(self.get_context_data(form=form), status=422)

    def _job(self) -> Job | None:
        given = self.request.GET.get("job")
        try:
            return job_or_404(self, forms.UUIDField().clean(given)) if given else None
        except forms.ValidationError as error:
            raise Http404 from error


def _field_of(refusal: AssayError) -> str:
    if "judgements" in refusal.code:
        return "judgement_set"
    return refusal.param if refusal.param in ("primary_measure", "test") else "stages"


class ComparisonActionView(ActionView):
    required_scope: ClassVar[str] = Scope.JOBS
    deed: str = ""
    made: Comparison | None = None

    def act(self) -> str:
        comparison = comparison_or_404(self)
        if self.deed == "delete":
            comparison_delete(principal=self.principal, comparison=comparison)
            return f"The comparison “{comparison.name}” is deleted; its jobs stay."
        if self.deed == "baseline":
            given = self.request.POST.get("position", "")
            position = int(given) if given.isdecimal() and len(given) < 3 else -1
            comparison_set_baseline(principal=self.principal, comparison=comparison, position=position)
            return "The baseline is another one now; all differences are against it."
        if self.deed == "recompute":
            self.made = comparison_recompute(principal=self.principal, comparison=comparison)
            return "Computed anew as a comparison of its own; the old one keeps its numbers."
        comparison_change(principal=self.principal, comparison=comparison, pinned=self.deed == "pin")
        return "Pinned: it stands first in the list." if self.deed == "pin" else "No longer pinned."

    def after(self) -> str:
        if self.deed == "delete":
            return reverse("web:comparison_list")
        return reverse("web:comparison_detail", args=[self.made.pk if self.made else self.kwargs["pk"]])
