"""What people type in."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.db.models import Q
from django.template.defaultfilters import filesizeformat

from assay.api.principal import Principal
from scoring.models import DocumentSet, JudgementSet, QuerySet, ScoringModel
from scoring.models.base import TextSet, UploadedSet
from scoring.selectors.models import models_served
from scoring.states import SetState


class FileForm(forms.Form):
    file = forms.FileField(
        label="File",
        allow_empty_file=True,  # the import says more about an empty one
        error_messages={"required": "No file was chosen. Choose one, or drop it here."},
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields[
            "file"
        ].help_text = f"CSV, TSV or JSON lines in UTF-8, up to {filesizeformat(settings.UPLOAD_MAX_BYTES)}."


class SetChoice(forms.ModelChoiceField):
    """A ready set of the team, shown with its size."""

    def label_from_instance(self, obj: Any) -> str:
        return f"{obj.name} — {obj.counts.get('kept', 0):,} rows"


class JobForm(forms.Form):
    document_set = SetChoice(DocumentSet.objects.none(), empty_label="Choose a document set")
    query_set = SetChoice(QuerySet.objects.none(), empty_label="Choose a query set")
    model = forms.ModelChoiceField(ScoringModel.objects.none(), widget=forms.RadioSelect, empty_label=None)
    top_k = forms.IntegerField(
        label="Documents kept per query",
        required=False,
        min_value=1,
        max_value=2**31 - 1,
        help_text="Empty keeps the whole ranking.",
    )
    priority = forms.IntegerField(min_value=-100, max_value=100, help_text="From -100 to 100; higher runs first.")
    name = forms.CharField(required=False, max_length=200, help_text="Empty: made from the sets and the model.")
    form_key = forms.CharField(widget=forms.HiddenInput, max_length=64)

    def __init__(self, *args: Any, principal: Principal, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["document_set"].queryset = ready_sets(DocumentSet, principal)  # type: ignore[attr-defined]
        self.fields["query_set"].queryset = ready_sets(QuerySet, principal)  # type: ignore[attr-defined]
        self.fields["model"].queryset = models_served()  # type: ignore[attr-defined]


class EvaluationForm(forms.Form):
    judgement_set = SetChoice(JudgementSet.objects.none(), empty_label="Choose a judgement set")

    def __init__(self, *args: Any, principal: Principal, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["judgement_set"].queryset = ready_sets(JudgementSet, principal)  # type: ignore[attr-defined]


class TryForm(forms.Form):
    model = forms.ModelChoiceField(ScoringModel.objects.none(), to_field_name="name", empty_label="Choose a model")
    query = forms.CharField(strip=False, widget=forms.Textarea(attrs={"rows": 2}))
    documents = forms.CharField(
        strip=False,
        widget=forms.Textarea(attrs={"rows": 8}),
        help_text="One per line.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].queryset = models_served()  # type: ignore[attr-defined]

    def clean_documents(self) -> list[str]:
        lines = [line for line in self.cleaned_data["documents"].splitlines() if line.strip()]
        if not lines:
            raise forms.ValidationError("Give at least one document.")
        return lines


def ready_sets(model: type[UploadedSet], principal: Principal) -> Any:
    ready = Q(state=SetState.READY)
    if issubclass(model, TextSet):
        ready &= Q(texts_delete_requested_at=None)
    return model.objects.for_team(principal.team).filter(ready).only("name", "counts")
