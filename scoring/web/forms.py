"""What people type in."""

from __future__ import annotations

import json
from typing import Any, Final

from django import forms
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile, UploadedFile
from django.db.models import Q
from django.template.defaultfilters import filesizeformat

from assay.api.principal import Principal
from assay.errors import AssayError
from assay.uploads import UnnamedUploadedFile
from scoring.models import JudgementSet
from scoring.models.base import TextSet, UploadedSet
from scoring.states import SetState

TYPED_CHARACTERS: Final = 200_000


class FileForm(forms.Form):
    file = forms.FileField(
        label="File",
        required=False,
        allow_empty_file=True,  # the import says more about an empty one
    )
    typed = forms.CharField(
        label="Or type or paste them here, one per line",
        required=False,
        strip=False,
        max_length=TYPED_CHARACTERS,
        widget=forms.Textarea(attrs={"rows": 6}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields[
            "file"
        ].help_text = (
            f"CSV, TSV, JSON lines, Parquet, plain text or TREC, up to {filesizeformat(settings.UPLOAD_MAX_BYTES)}."
        )

    def clean_typed(self) -> UploadedFile | None:
        """As a file of JSON lines: no comma or quotation mark in it means anything."""
        lines = [line.strip() for line in self.cleaned_data["typed"].splitlines() if line.strip()]
        content = "".join(json.dumps({"text": line}, ensure_ascii=False) + "\n" for line in lines)
        return SimpleUploadedFile("Typed in.jsonl", content.encode()) if lines else None

    def clean(self) -> None:
        file, typed = self.cleaned_data.get("file"), self.cleaned_data.get("typed")
        if self.errors:
            return
        if file is None and typed is None:
            self.add_error("file", "No file was chosen. Choose one, or drop it here.")
        elif file is not None and typed is not None:
            self.add_error("typed", "A file was chosen as well. Give one of both: take the file away, or these lines.")

    def clean_file(self) -> UnnamedUploadedFile | None:
        file: UnnamedUploadedFile | None = self.cleaned_data["file"]
        if file is None:
            return None
        try:
            file.check()
        except AssayError as refusal:
            raise forms.ValidationError(refusal.message) from refusal
        return file


class SetChoice(forms.ModelChoiceField):
    """A ready set of the team, shown with its size."""

    def label_from_instance(self, obj: Any) -> str:
        return f"{obj} — {obj.counts.get('kept', 0):,} rows"


def ready_sets(model: type[UploadedSet], principal: Principal) -> Any:
    ready = Q(state=SetState.READY)
    if issubclass(model, TextSet):
        ready &= Q(texts_delete_requested_at=None)
    fields = ("name", "counts", "version") if model is JudgementSet else ("name", "counts")
    return model.objects.for_team(principal.team).filter(ready).only(*fields)
