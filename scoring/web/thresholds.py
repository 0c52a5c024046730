"""A cut-off for the scores of a model: measured on a job, chosen, kept as advice."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.generic import TemplateView

from accounts.scopes import Scope
from assay.api.principal import Principal
from assay.callers import caller_of
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from scoring.models import JudgementSet, ScoringModel, Stage
from scoring.selectors.evaluation import EVALUATED
from scoring.selectors.thresholds import advice_of
from scoring.services.explanations import Asked
from scoring.services.thresholds import (
    LONGEST_NOTE,
    ThresholdReport,
    advice_delete,
    advice_save,
    model_advice,
    thresholds_measure,
)
from scoring.web.actions import ActionView
from scoring.web.figures import Chart
from scoring.web.forms import SetChoice, ready_sets
from scoring.web.models import model_or_404

STAGES_OFFERED: Final = 100


class StageChoice(forms.ModelChoiceField):
    def label_from_instance(self, obj: Any) -> str:
        return f"{obj.job.name} — {obj.job.query_set.name} over {obj.job.document_set.name}, stage {obj.index}"


class MeasureForm(forms.Form):
    stage = StageChoice(Stage.objects.none(), label="Job", empty_label="Choose a job that the model scored")
    judgement_set = SetChoice(JudgementSet.objects.none(), empty_label="Choose a judgement set")
    relevant_from = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=2**15 - 1,
        label="Relevant from grade",
        help_text="left empty: the set's own",
    )
    per_query_token = forms.BooleanField(
        required=False,
        label="Per query token",
        help_text="MaxSim divided by the tokens of its query, so that long and short queries can be compared",
    )

    def __init__(self, *args: Any, principal: Principal, model: ScoringModel, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        stages = Stage.objects.filter(model=model, job__team=principal.team, job__state__in=EVALUATED)
        found = stages.select_related("job__query_set", "job__document_set", "model").order_by("-finished_at", "-pk")
        offered = found.filter(pk__in=list(found.values_list("pk", flat=True)[:STAGES_OFFERED]))
        self.fields["stage"].queryset = offered  # type: ignore[attr-defined]
        self.fields["judgement_set"].queryset = ready_sets(JudgementSet, principal)  # type: ignore[attr-defined]
        if model.facts.get("scale") != "maxsim":
            del self.fields["per_query_token"]


class CutOffForm(forms.Form):
    score = forms.FloatField(label="Cut-off", help_text="a document with this score or a higher one counts as relevant")
    note = forms.CharField(required=False, max_length=LONGEST_NOTE, help_text="what it is for, and why this one")


class ThresholdsView(PrincipalMixin, TemplateView):
    """What is measured stands in the address; a POST keeps the cut-off of such an address as advice."""

    required_scope: ClassVar[str] = Scope.JOBS
    waits_for_model: ClassVar[bool] = True
    template_name = "models/thresholds.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        model = model_or_404(self.kwargs["name"])
        given = self.request.GET if "stage" in self.request.GET else None
        form = MeasureForm(given, principal=self.principal, model=model)
        report, refusal = self._measured(form)
        score = self._score() if report else None
        if report is not None:
            score = report.best.score if score is None else score
            kwargs.setdefault("save_form", CutOffForm(initial={"score": score}))
        return super().get_context_data(
            model=model,
            form=form,
            report=report,
            refusal=refusal,
            chosen=report.at(score) if report and score is not None else None,
            chart=curve(report) if report else None,
            address=self._address(),
            advices=model_advice(self.principal, model),
            **kwargs,
        )

    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        model = model_or_404(name)
        self.principal.require_model(model.name)
        form, save = MeasureForm(request.GET, principal=self.principal, model=model), CutOffForm(request.POST)
        report, refusal = self._measured(form)
        if report is None or not save.is_valid():
            if refusal:
                messages.error(request, refusal)
            return self.render_to_response(self.get_context_data(save_form=save), status=422)
        try:
            advice_save(principal=self.principal, report=report, **save.cleaned_data)
        except AssayError as error:
            save.add_error("note" if error.param == "note" else "score", error.message)
            return self.render_to_response(self.get_context_data(save_form=save), status=422)
        messages.success(request, f"The cut-off is kept as advice on “{model.name}”. Nothing applies it by itself.")
        return redirect("web:model_thresholds", name=model.name)

    def _measured(self, form: MeasureForm) -> tuple[ThresholdReport | None, str]:
        if not (form.is_bound and form.is_valid()):
            return None, ""
        fields = form.cleaned_data
        asked = Asked(principal=self.principal, endpoint="page thresholds", caller=caller_of(self.request))
        try:
            return thresholds_measure(asked=asked, **fields), ""
        except AssayError as refusal:
            return None, refusal.message

    def _score(self) -> float | None:
        field = forms.FloatField(required=False)
        try:
            found: float | None = field.clean(self.request.GET.get("score", ""))
        except forms.ValidationError:
            return None
        return found

    def _address(self) -> str:
        """Of what is measured, without the cut-off that is looked at."""
        query = self.request.GET.copy()
        query.pop("score", None)
        return f"?{query.urlencode()}"


def curve(report: ThresholdReport) -> Chart:
    series: dict[str, list[float | None]] = {
        "precision": [each.precision.value if each.precision else None for each in report.cut_offs],
        "recall": [each.recall.value for each in report.cut_offs],
        "F1": [each.f1.value for each in report.cut_offs],
    }
    return Chart("line", [f"{each.score:.4g}" for each in report.cut_offs], series)


class AdviceDeleteView(ActionView):
    required_scope: ClassVar[str] = Scope.JOBS

    def act(self) -> str:
        advice = advice_of(self.principal).filter(pk=self.kwargs["pk"]).first()
        if advice is None:
            raise Http404
        self.model_name = advice.model.name
        advice_delete(principal=self.principal, advice=advice)
        return f"The cut-off {advice} for “{self.model_name}” is withdrawn."

    def after(self) -> str:
        return reverse("web:model_thresholds", args=[self.model_name])
