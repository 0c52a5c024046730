"""The form of a new job: which documents are candidates, who scores them first, and who goes on from there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.db.models import TextChoices

from assay.api.principal import Principal
from scoring.models import DocumentSet, QuerySet, RunSet, ScoringModel, StageMethod
from scoring.selectors.models import rerankers_served
from scoring.services.stage_plan import MAX_KEPT, MAX_RETRIEVED, MAX_STAGES, StagePlan
from scoring.web.forms import SetChoice, ready_sets

MAX_FURTHER: Final = MAX_STAGES - 2  # beside the candidates and the first model
DEFAULT_BM25: Final = 1000
WHEN: Final = ("start_at", "complete_within", "max_error_rate")
SETTINGS: Final = ("priority", *WHEN)


class Candidates(TextChoices):
    ALL = "all", "All documents"
    BM25 = "bm25", "The best by BM25"
    RUN = "run", "An uploaded run"


class Source(TextChoices):
    KEPT = "kept", "what the model above kept"
    SAME = "same", "the same as the first model, to compare"


def _kept(**options: Any) -> forms.IntegerField:
    return forms.IntegerField(
        label="Documents kept per query", required=False, min_value=1, max_value=MAX_KEPT, **options
    )


class JobForm(forms.Form):
    document_set = SetChoice(DocumentSet.objects.none(), empty_label="Choose a document set")
    query_set = SetChoice(QuerySet.objects.none(), empty_label="Choose a query set")
    candidates = forms.ChoiceField(choices=Candidates, initial=Candidates.ALL, required=False)
    bm25_top_k = forms.IntegerField(
        label="Documents found per query",
        required=False,
        initial=DEFAULT_BM25,
        min_value=1,
        max_value=MAX_RETRIEVED,
    )
    run_set = SetChoice(
        RunSet.objects.none(),
        label="Run",
        required=False,
        empty_label="Choose a run",
        help_text="Its query and document ids must be those of the sets.",
    )
    model = forms.ModelChoiceField(ScoringModel.objects.none(), widget=forms.RadioSelect, empty_label=None)
    top_k = _kept(help_text="Empty keeps the whole ranking.")
    priority = forms.IntegerField(min_value=-100, max_value=100, help_text="From -100 to 100; higher runs first.")
    name = forms.CharField(required=False, max_length=200, help_text="Empty: made from the sets and the models.")
    start_at = forms.DateTimeField(
        label="Starts at", required=False, help_text="In UTC. Empty: as soon as there is room.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )  # fmt: skip
    complete_within = forms.IntegerField(
        label="Seconds to be done in", required=False, min_value=1,
        help_text="From joining the queue on; what is scored by then is ranked. Empty: no limit.",
    )  # fmt: skip
    max_error_rate = forms.FloatField(
        label="Share of failed pairs that stops it", required=False, min_value=0, max_value=1, step_size=0.01,
        help_text="From 0 (the first failed pairs) to 1 (none). Empty: 0.5.",
    )  # fmt: skip
    try_query = forms.CharField(
        label="Query to try", required=False, max_length=200, help_text="Its id. Empty: the first of the set.",
        widget=forms.Textarea(attrs={"rows": 1}),  # in a field of one line the Enter key would start the job
    )  # fmt: skip
    form_key = forms.CharField(widget=forms.HiddenInput, max_length=64)

    def __init__(self, *args: Any, principal: Principal, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices: dict[str, Any] = {
            "document_set": ready_sets(DocumentSet, principal),
            "query_set": ready_sets(QuerySet, principal),
            "run_set": ready_sets(RunSet, principal),
            "model": rerankers_served(),
        }
        for name, rows in choices.items():
            self.fields[name].queryset = rows  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if fields.get("candidates") == Candidates.RUN and not fields.get("run_set") and "run_set" not in self.errors:
            self.add_error("run_set", "Choose the run, or other candidates.")
        if fields.get("candidates") == Candidates.BM25 and not fields.get("bm25_top_k"):
            self.add_error("bm25_top_k", "Say how many documents BM25 is to find for each query.")
        return fields

    def has_settings(self) -> bool:
        """Whether any of the settings is not as at first: their section is open then."""
        return any(self.errors.get(name) or self[name].value() not in (None, "", 0, "0") for name in SETTINGS)


class FurtherForm(forms.Form):
    """A stage after the first model's."""

    model = forms.ModelChoiceField(ScoringModel.objects.none(), empty_label="Choose a model")
    source = forms.ChoiceField(label="It scores", choices=Source, initial=Source.KEPT)
    top_k = _kept(help_text="Empty keeps the whole ranking.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].queryset = rerankers_served()  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class JobForms:
    """The form and those of its further stages, together valid or not."""

    job: JobForm
    further: list[FurtherForm]

    @property
    def may_grow(self) -> bool:
        return len(self.further) < MAX_FURTHER

    def is_valid(self) -> bool:
        return all([form.is_valid() for form in (self.job, *self.further)])

    def plans(self) -> list[StagePlan]:
        """The stages so far as they are filled in; all of them once the forms are valid."""
        fields = cleaned(self.job)
        plans = _candidates(fields)
        first = len(plans)
        plans.append(
            StagePlan(model=fields.get("model"), source=first - 1 if first else None, top_k=fields.get("top_k"))
        )
        for form in self.further:
            own = cleaned(form)
            source = plans[first].source if own.get("source") == Source.SAME else len(plans) - 1
            plans.append(StagePlan(model=own.get("model"), source=source, top_k=own.get("top_k")))
        return plans

    def place_of(self, param: str | None) -> tuple[forms.Form, str | None]:
        """Where a refusal of ``stages[2].top_k`` and the like is shown: a form and its field, if it has that one."""
        where, _, field = (param or "").rpartition(".")
        form: forms.Form = self.job
        if where.startswith("stages["):
            first = len(_candidates(cleaned(self.job)))
            index = int(where.removeprefix("stages[").removesuffix("]")) - first - 1
            if index >= 0:
                form = self.further[index]
            elif index == -2 and field == "top_k":
                field = "bm25_top_k"
        return form, field if field in form.fields else None


def job_forms(principal: Principal, *, data: Mapping[str, Any], bound: bool) -> JobForms:
    """``data`` are the request's parameters; ``rows`` of them says how many further stages there are."""
    rows = min(rows_of(data), MAX_FURTHER)
    if bound:
        further = [FurtherForm(data, prefix=f"stage{row}") for row in range(rows)]
        return JobForms(JobForm(data, principal=principal), further)
    return JobForms(
        JobForm(initial=dict(data.items()), principal=principal),
        [FurtherForm(prefix=f"stage{row}", initial=_own(data, f"stage{row}-")) for row in range(rows)],
    )


def rows_of(data: Mapping[str, Any]) -> int:
    given = str(data.get("rows", "0"))
    return int(given) if given.isdecimal() and len(given) < 3 else 0


def _candidates(fields: Mapping[str, Any]) -> list[StagePlan]:
    match fields.get("candidates"):
        case Candidates.BM25 if fields.get("bm25_top_k"):
            return [StagePlan(method=StageMethod.BM25, top_k=fields["bm25_top_k"])]
        case Candidates.RUN if fields.get("run_set"):
            return [StagePlan(method=StageMethod.RUN, run_set=fields["run_set"])]
        case _:
            return []


def cleaned(form: forms.Form) -> Mapping[str, Any]:
    """What is right in it so far."""
    return form.cleaned_data if form.is_bound and hasattr(form, "cleaned_data") else {}


def _own(data: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in data.items() if name.startswith(prefix)}
