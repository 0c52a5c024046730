"""Evaluations: the list, the form that makes one, and the buttons."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django import forms
from django.http import Http404
from django.urls import reverse

from accounts.scopes import Scope
from assay.api.principal import Principal
from assay.web.mixins import PrincipalMixin
from scoring.filters import EvaluationFilter
from scoring.measures import DEFAULT_MEASURES, EXPONENTIAL, INCOMPLETE_OFFERED, MAX_MEASURES, OFFERED
from scoring.models import Evaluation, JudgementSet
from scoring.selectors.evaluations import evaluations_of
from scoring.services.evaluations import evaluation_delete
from scoring.web.actions import ActionView
from scoring.web.columns import ColumnsMixin
from scoring.web.filtered import FilteredListView
from scoring.web.forms import ready_sets

CHOICES: Final = (
    ("Measures", [(name, name) for name in OFFERED]),
    ("With gains 2^grade - 1", [(EXPONENTIAL, "nDCG@10, exponential gains")]),
    ("For incomplete judgements: judged documents alone", [(name, name) for name in INCOMPLETE_OFFERED]),
)


class VersionChoice(forms.ModelChoiceField):
    """A version of a judgement set, with its size."""

    def label_from_instance(self, obj: Any) -> str:
        return f"{obj.name}, version {obj.version} — {obj.counts.get('kept', 0):,} judgements"


class EvaluationForm(forms.Form):
    judgement_set = VersionChoice(JudgementSet.objects.none(), empty_label="Choose a judgement set")
    measures = forms.MultipleChoiceField(
        choices=CHOICES, initial=DEFAULT_MEASURES, required=False, widget=forms.CheckboxSelectMultiple
    )
    more = forms.CharField(
        required=False, max_length=1000, label="Other measures",
        help_text="In the names of ir-measures, with spaces between them: P(rel=2)@5 nDCG(gains={1:1,2:3})@10",
    )  # fmt: skip
    only_relevant = forms.BooleanField(required=False, label="Only queries with a relevant document")

    def __init__(self, *args: Any, principal: Principal, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        versions = ready_sets(JudgementSet, principal).only("name", "counts", "version", "root")
        self.fields["judgement_set"].queryset = versions.order_by("-created_at")  # type: ignore[attr-defined]

    def clean(self) -> None:
        names = [*self.cleaned_data.get("measures", ()), *self.cleaned_data.get("more", "").split()]
        if not 1 <= len(names) <= MAX_MEASURES:
            self.add_error("measures", f"Choose between 1 and {MAX_MEASURES} measures; {len(names)} are chosen.")
        self.cleaned_data["names"] = names


def evaluation_or_404(view: PrincipalMixin) -> Evaluation:
    evaluation = evaluations_of(view.principal).filter(pk=view.kwargs["pk"]).first()
    if evaluation is None:
        raise Http404
    return evaluation


class EvaluationListView(ColumnsMixin, FilteredListView):
    required_scope: ClassVar[str] = Scope.JOBS
    table_name = "evaluations"
    filterset_class = EvaluationFilter
    template_name = "evaluations/list.html"

    def get_queryset(self) -> Any:
        return evaluations_of(self.principal)


class EvaluationDeleteView(ActionView):
    required_scope: ClassVar[str] = Scope.JOBS

    def act(self) -> str:
        evaluation = evaluation_or_404(self)
        evaluation_delete(principal=self.principal, evaluation=evaluation)
        return f"The evaluation of {evaluation} is deleted; its job and its judgements stay."

    def after(self) -> str:
        return reverse("web:evaluation_list")
