"""What the playground is given: typed in, from a saved example, or from a request that was kept."""

from __future__ import annotations

from typing import Any, Final

from django import forms

from assay.api.principal import Principal
from scoring.models import PlaygroundExample, ScoreRequest, ScoringModel
from scoring.models.scoring_model import ModelKind
from scoring.selectors.models import models_served, rerankers_served

MOST_MODELS: Final = 4
SEPARATOR: Final = "---"
SAMPLE: Final = {
    "query": "How do I get limescale out of my kettle?",
    "documents": "\n".join(
        [
            "Fill the kettle half with water, stir in two spoonfuls of citric acid and let it stand for half an hour.",
            "A kettle of fish was a Scottish picnic: salmon, boiled in the river's own water.",
            "Vinegar takes the lime off taps and shower heads; wrap them in a soaked cloth over night.",
            "Water boils at a lower temperature the higher up the mountain you are.",
        ]
    ),
}


class PlaygroundForm(forms.Form):
    model = forms.MultipleChoiceField(
        label="Models", widget=forms.CheckboxSelectMultiple,
        error_messages={"required": f"Choose one model, or up to {MOST_MODELS} to see side by side."},
    )  # fmt: skip
    query = forms.CharField(strip=False, widget=forms.Textarea(attrs={"rows": 2}))
    documents = forms.CharField(
        strip=False, widget=forms.Textarea(attrs={"rows": 8}),
        help_text=f"One per line; or, of several lines each, with a line {SEPARATOR} between them.",
    )  # fmt: skip
    instruction = forms.CharField(
        required=False, help_text="What counts as relevant, for rerankers that take an instruction."
    )
    labels = forms.CharField(
        required=False,
        help_text="Of generative models, separated by commas, the one that counts first; else their own.",
    )
    template = forms.CharField(
        required=False, strip=False, widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Of generative models: Jinja with {{ query }} and {{ item }}; else their own.",
    )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        served: dict[str, ScoringModel] = {model.name: model for model in rerankers_served().order_by("name")}
        self.served = served
        choices = [(name, f"{name} — {model.get_kind_display()}") for name, model in served.items()]
        self.fields["model"].choices = choices  # type: ignore[attr-defined]
        self.generative_served = any(model.kind == ModelKind.GENERATIVE for model in served.values())

    def clean_model(self) -> list[ScoringModel]:
        names = self.cleaned_data["model"]
        if len(names) > MOST_MODELS:
            raise forms.ValidationError(f"{len(names)} models were chosen; choose at most {MOST_MODELS}.")
        return [self.served[name] for name in names]

    def clean_documents(self) -> list[str]:
        documents = documents_of(self.cleaned_data["documents"])
        if not documents:
            raise forms.ValidationError("Give at least one document.")
        return documents

    def clean_labels(self) -> list[str]:
        labels = [label.strip() for label in self.cleaned_data["labels"].split(",") if label.strip()]
        if len(labels) == 1:
            raise forms.ValidationError("One label alone always has the probability 1; give two.")
        if len(set(labels)) < len(labels):
            raise forms.ValidationError("A label is given more than once; give each one once.")
        return labels

    def given_options(self) -> dict[str, Any]:
        """Those that were given."""
        given = {name: self.cleaned_data[name] for name in ("instruction", "labels", "template")}
        return {name: value for name, value in given.items() if value}


def documents_of(text: str) -> list[str]:
    """The documents typed into one field. Blank ones are none."""
    lines = text.splitlines()
    if SEPARATOR not in (line.strip() for line in lines):
        return [line for line in lines if line.strip()]
    documents: list[list[str]] = [[]]
    for line in lines:
        if line.strip() == SEPARATOR:
            documents.append([])
        else:
            documents[-1].append(line)
    return [joined for each in documents if (joined := "\n".join(each).strip("\n")).strip()]


def typed(documents: list[str]) -> str:
    """As one types them: ``documents_of`` reads the same ones off it."""
    if not any(len(document.splitlines()) > 1 for document in documents):
        return "\n".join(documents)
    return "\n".join(f"{document}\n{SEPARATOR}" for document in documents)


def default_models() -> list[str]:
    default = models_served().filter(is_default=True, kind=ModelKind.LATE_INTERACTION).first()
    return [default.name] if default else []


def example_initial(example: PlaygroundExample) -> dict[str, Any]:
    options = {**example.options, "labels": ", ".join(example.options.get("labels", []))}
    return {"model": example.model_names, "query": example.query, "documents": typed(example.documents), **options}


def request_initial(row: ScoreRequest) -> tuple[dict[str, Any], str]:
    """What the form is filled with, and the sentence about what is missing."""
    if not row.queries or not row.documents:
        note = (
            "The texts of this request are not kept, or no longer (settings KEEP_REQUEST_TEXTS and TEXT_KEEP_DAYS); "
            "its model is chosen."
        )
        return {"model": [row.model_name]}, note
    query, documents = row.queries[0], row.documents
    if row.report.get("pairing") == "pairwise" and len(row.queries) > 1:
        documents = [text for own, text in zip(row.queries, documents, strict=False) if own == query]
    first = f" It had {len(set(row.queries)):,} queries; this is the first one." if len(set(row.queries)) > 1 else ""
    note = f"The texts of a request to {row.endpoint}; its options are not kept, and the model's own apply.{first}"
    return {"model": [row.model_name], "query": query, "documents": typed(documents)}, note


def request_of(principal: Principal, pk: str) -> ScoreRequest | None:
    rows = ScoreRequest.objects.for_team(principal.team)
    return rows.filter(pk=pk).first()
