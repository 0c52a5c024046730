"""What administrators type in about a model. The rules are the registry's, said beside the field they are about."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django import forms

from assay.errors import AssayError
from scoring.models import Errand, ScoringModel
from scoring.models.scoring_model import ColdPolicy, ModelKind
from scoring.services import errands
from scoring.services.registry import model_check

# Of a model that is registered: those that change its scores, and so send it back to its self-test, come first.
CHANGED_HERE: Final[tuple[str, ...]] = (
    "dtype",
    "device",
    "max_length",
    "template",
    "labels",
    "positive_class",
    "weights",
    "is_default",
)
OF_ONE_KIND: Final = {
    "template": ModelKind.GENERATIVE,
    "labels": ModelKind.GENERATIVE,
    "positive_class": ModelKind.CROSS_ENCODER,
    "weights": ModelKind.HYBRID,
}
REMOTE: Final = ("engine", "endpoint", "remote_model", "credential")


class ModelForm(forms.ModelForm[ScoringModel]):
    """Takes the row's values and writes nothing: the services do."""

    class Meta:
        model = ScoringModel
        fields: ClassVar[tuple[str, ...]] = CHANGED_HERE
        labels: ClassVar = {
            "max_length": "Text limit, in tokens", "is_default": "Default of its kind",
            "document_cache_bytes": "Document cache, at most",
        }  # fmt: skip
        help_texts: ClassVar = {"source": "a folder below one of MODEL_ROOTS, or package:DISTRIBUTION/FOLDER-IN-IT"}
        widgets: ClassVar = {
            "template": forms.Textarea(attrs={"rows": 3}),
            "labels": forms.TextInput(),
            "weights": forms.TextInput(),
        }

    def clean_labels(self) -> Any:
        return self.cleaned_data["labels"] or []  # an emptied box is no list to the field

    def clean_weights(self) -> Any:
        return self.cleaned_data["weights"] or []

    def _post_clean(self) -> None:
        """The row stays as it is."""

    def refused(self, refusal: AssayError) -> None:
        self.add_error(refusal.param if refusal.param in self.fields else None, refusal.message)


class SettingsForm(ModelForm):
    """Of a registered model: without what belongs to other kinds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, kind in OF_ONE_KIND.items():
            if self.instance.kind != kind:
                del self.fields[name]


class RegisterForm(ModelForm):
    class Meta(ModelForm.Meta):
        fields: ClassVar[tuple[str, ...]] = (
            "name", "kind", "source", "gguf_file", *CHANGED_HERE, "self_test_mode", "gpu_maxsim",
            "document_cache_bytes", *REMOTE,
        )  # fmt: skip

    def clean(self) -> dict[str, Any] | None:
        data = super().clean()
        if not self.errors:
            try:
                model_check(ScoringModel(**self.cleaned_data))
            except AssayError as refusal:
                self.refused(refusal)
        return data

    @property
    def main(self) -> list[forms.BoundField]:
        return [self[name] for name in ("name", "kind", "source", "dtype", "device", "max_length")]

    @property
    def of_kinds(self) -> list[forms.BoundField]:
        names = ("template", "labels", "positive_class", "weights", "document_cache_bytes", "gguf_file")
        return [self[name] for name in names]

    @property
    def remote(self) -> list[forms.BoundField]:
        return [self[name] for name in REMOTE]

    @property
    def ticks(self) -> list[forms.BoundField]:
        return [self["gpu_maxsim"], self["is_default"]]


class InspectForm(forms.Form):
    source = forms.CharField(
        label="Where the model is", max_length=500,
        help_text="A folder below one of MODEL_ROOTS, package:<distribution>/<folder in it>, or "
        "hub:<owner>/<name>@<revision>, which a worker downloads first.",
    )  # fmt: skip
    gguf_file = forms.CharField(
        label="GGUF file in it", max_length=200, required=False, help_text="If it holds several."
    )


class BenchmarkForm(forms.Form):
    documents = forms.IntegerField(min_value=1, max_value=errands.MOST_DOCUMENTS, initial=64)
    words = forms.IntegerField(label="Words of each", min_value=1, max_value=errands.MOST_WORDS, initial=100)
    rounds = forms.IntegerField(min_value=1, max_value=errands.MOST_ROUNDS, initial=5)


class PlacingForm(forms.ModelForm[ScoringModel]):
    """Where and how often a model is loaded."""

    class Meta:
        model = ScoringModel
        fields = (
            "pinned", "min_replicas", "max_replicas", "memory_bytes", "min_residency", "max_concurrency",
            "document_cache_bytes", "cold_policy",
        )  # fmt: skip
        labels: ClassVar[dict[str, str]] = {
            "min_replicas": "Replicas, at least",
            "max_replicas": "Replicas, at most",
            "memory_bytes": "Memory of a replica",
            "min_residency": "Stays loaded for",
            "max_concurrency": "Requests at once",
            "document_cache_bytes": "Document cache, at most",
            "cold_policy": "While on no worker",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["cold_policy"].choices = [("", "Default"), *ColdPolicy.choices]  # type: ignore[attr-defined]
        if not self.instance.keeps_encodings:
            del self.fields["document_cache_bytes"]

    def _post_clean(self) -> None:
        """The row stays as it is: the service writes it."""


def filled_in(errand: Errand) -> dict[str, Any]:
    """A registration's first values, from what a worker found in the checkpoint."""
    found = errand.found
    kind = found.get("kind", ModelKind.CROSS_ENCODER)
    values = {"kind": kind, "source": found.get("source"), "gguf_file": found.get("gguf_file", ""), "gpu_maxsim": True}
    values["name"] = "".join(c if c.isalnum() or c in "-_" else "-" for c in found.get("name", "").lower())[:64]
    values["labels"] = ["yes", "no"] if kind == ModelKind.GENERATIVE else []
    return values
