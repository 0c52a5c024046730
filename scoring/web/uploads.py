"""Upload in three steps: the file, its columns, the check and import."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.generic import FormView
from django.views.generic.base import View

from accounts.scopes import Scope
from assay.api.principal import Principal
from assay.errors import AssayError
from assay.web.errors import not_here
from assay.web.mixins import PrincipalMixin, reload_page
from scoring.ingest.conflicts import ConflictRule
from scoring.ingest.formats import FORMAT_NAMES, Format
from scoring.ingest.items import NO_CHECKS, ImportChecks
from scoring.ingest.rows import readable
from scoring.models import DocumentSet, JudgementSet, QuerySet, Upload
from scoring.services.import_presets import preset_keep, preset_of
from scoring.services.imports import Preview, bad_rows_csv, columns_found, import_kind, set_import, upload_preview
from scoring.services.uploads import upload_discard, upload_known, upload_open, upload_stage
from scoring.web.actions import ActionView
from scoring.web.forms import FileForm, ready_sets
from scoring.web.htmx import wants_fragment
from scoring.web.set_kinds import SetKind

ROWS_SHOWN = 50
# Sets that a file of pairs may be checked against, and the one that it may be the next version of.
CHECKED: dict[str, Any] = {"query_set": QuerySet, "document_set": DocumentSet, "base": JudgementSet}
PROBLEMS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class RoleChoice:
    """One field to be filled from a column, and ``reason``: why this one, while nobody has chosen."""

    name: str
    required: bool
    column: str | None
    reason: str = ""

    @property
    def label(self) -> str:
        return self.name.replace("_", " ").capitalize()


@dataclass(frozen=True, slots=True)
class ImportPage:
    """Everything the second and third step show."""

    kind: SetKind
    upload: Upload
    preview: Preview
    roles: list[RoleChoice]
    name: str
    checks: ImportChecks = NO_CHECKS
    offered: dict[str, Any] = field(default_factory=dict)  # sets to check ids against, by field
    error: str = ""

    rules = ConflictRule.choices

    @property
    def asks_sets(self) -> bool:
        return import_kind(self.kind.import_name).names_pairs

    @property
    def is_graded(self) -> bool:
        return import_kind(self.kind.import_name).graded

    @property
    def columns(self) -> list[str]:
        """Without names that no page can show: rows that have one are problems, so nothing is lost."""
        return [column for column in self.preview.columns if readable(column) == column]

    @property
    def format_name(self) -> str:
        return FORMAT_NAMES[self.preview.file_format]

    @property
    def rows(self) -> list[Any]:
        return [
            (row, [readable(row.values.get(column, "")) for column in self.columns])
            for row in self.preview.rows[:ROWS_SHOWN]
        ]

    @property
    def problems(self) -> list[Any]:
        return self.preview.report.problems[:PROBLEMS_SHOWN]

    @property
    def more_problems(self) -> int:
        return self.preview.report.bad - len(self.problems)

    @property
    def role_of(self) -> dict[str, str]:
        return {role.column: role.label for role in self.roles if role.column}

    @property
    def importable(self) -> bool:
        report = self.preview.report
        return not self.preview.mapping_error and report.kept > 0 and not report.ids.too_few


class UploadView(PrincipalMixin, FormView[FileForm]):
    required_scope: ClassVar[str] = Scope.JOBS
    form_class = FileForm
    template_name = "sets/upload.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(kind=self.kwargs["kind"], **kwargs)

    def form_valid(self, form: FileForm) -> HttpResponse:
        kind, file = self.kwargs["kind"], form.cleaned_data["file"] or form.cleaned_data["typed"]
        existing = upload_known(principal=self.principal, kind_name=kind.import_name, file=file.file)
        if existing is not None:
            return self.render_to_response(self.get_context_data(form=form, existing=existing, file_name=file.name))
        try:
            upload = upload_stage(principal=self.principal, kind_name=kind.import_name, file=file)
        except AssayError as refusal:
            form.add_error(None if form.cleaned_data["typed"] else "file", refusal.message)
            return self.form_invalid(form)
        url = reverse("web:upload_import", args=[kind, upload.pk])
        # To htmx a redirect would be invisible: it would load the next page into the form's place.
        return reload_page(url) if wants_fragment(self.request) else HttpResponseRedirect(url)


class ImportView(PrincipalMixin, View):
    required_scope: ClassVar[str] = Scope.JOBS

    def get(self, request: HttpRequest, kind: SetKind, pk: Any) -> HttpResponse:
        upload = upload_or_404(self, kind, pk)
        try:
            page = import_page(kind, upload, principal=self.principal, mapping=None)
        except AssayError as refusal:
            upload_discard(upload=upload)
            messages.error(request, f"{upload.file_name}: {refusal.message}")
            return HttpResponseRedirect(reverse("web:upload", args=[kind]))
        return render(request, "sets/import.html", {"page": page, "view": self})

    def post(self, request: HttpRequest, kind: SetKind, pk: Any) -> HttpResponseBase:
        """``do``: ``check`` the mapping, ``import`` all rows, ``keep`` the good ones, or send the ``bad-rows``."""
        upload = upload_or_404(self, kind, pk)
        mapping = mapping_chosen(request, kind)
        checks = checks_chosen(request, kind, self.principal)
        name, error = request.POST.get("name", ""), ""
        do = request.POST.get("do")
        try:
            if do in ("bad-rows", "unmatched"):
                return bad_rows_response(upload, kind, mapping, checks, unmatched=do == "unmatched")
            if do in ("import", "keep"):
                return self._import(upload, kind, name, mapping, checks, keep_good_rows=do == "keep")
        except AssayError as refusal:
            error = refusal.message
        page = import_page(
            kind, upload, principal=self.principal, mapping=mapping, name=name, checks=checks, error=error
        )
        template = "sets/_import.html" if wants_fragment(request) else "sets/import.html"
        return render(request, template, {"page": page, "view": self})

    def _import(
        self,
        upload: Upload,
        kind: SetKind,
        name: str,
        mapping: dict[str, Any],
        checks: ImportChecks,
        *,
        keep_good_rows: bool,
    ) -> HttpResponse:
        with upload_open(upload) as file:
            uploaded, _ = set_import(
                principal=self.principal,
                kind_name=kind.import_name,
                name=name,
                file=file,
                file_name=upload.file_name,
                mapping=mapping,
                keep_good_rows=keep_good_rows,
                checks=checks,
            )
            columns = columns_found(file, Format(uploaded.file_format))
        preset_keep(principal=self.principal, kind_name=kind.import_name, columns=columns, mapping=mapping)
        upload_discard(upload=upload)
        messages.success(self.request, f"{uploaded.counts['kept']:,} {kind.rows} are in the new {kind.noun}.")
        return HttpResponseRedirect(reverse("web:set_detail", args=[kind, uploaded.pk]))


class DiscardView(ActionView):
    required_scope: ClassVar[str] = Scope.JOBS

    def act(self) -> str:
        upload = upload_or_404(self, self.kwargs["kind"], self.kwargs["pk"])
        upload_discard(upload=upload)
        return f"{upload.file_name} was removed; nothing was imported."

    def after(self) -> str:
        return reverse("web:set_list", args=[self.kwargs["kind"]])


def mapping_chosen(request: HttpRequest, kind: SetKind) -> dict[str, Any]:
    return {role.name: request.POST.get(role.name) or None for role in import_kind(kind.import_name).roles}


def checks_chosen(request: HttpRequest, kind: SetKind, principal: Principal) -> ImportChecks:
    """Raises Http404 for a set that the page does not offer."""
    chosen = {}
    for name, model in CHECKED.items():
        if given := request.POST.get(name):
            try:
                chosen[name] = ready_sets(model, principal).get(pk=forms.UUIDField().clean(given))
            except (forms.ValidationError, model.DoesNotExist) as error:
                raise Http404 from error
    rule = request.POST.get("conflicts", "")
    return ImportChecks(conflicts=ConflictRule(rule) if rule in ConflictRule.values else NO_CHECKS.conflicts, **chosen)


def bad_rows_response(
    upload: Upload, kind: SetKind, mapping: dict[str, Any], checks: ImportChecks, *, unmatched: bool
) -> StreamingHttpResponse:
    """Raises AssayError 422 for a mapping that no row can be read by, before anything is sent."""
    asked: dict[str, Any] = {
        "kind_name": kind.import_name,
        "mapping": mapping,
        "checks": checks,
        "unmatched": unmatched,
    }
    with upload_open(upload) as file:
        bad_rows_csv(file=file, **asked)

    def lines() -> Iterator[str]:
        with upload_open(upload) as file:
            yield from bad_rows_csv(file=file, **asked)

    response = StreamingHttpResponse(lines(), content_type="text/csv; charset=utf-8")
    file_name = "unmatched-rows.csv" if unmatched else "bad-rows.csv"
    response["Content-Disposition"] = f'attachment; filename="{file_name}"'
    return response


def upload_or_404(view: PrincipalMixin, kind: SetKind, pk: Any) -> Upload:
    upload = Upload.objects.for_team(view.principal.team).filter(pk=pk, kind=kind.import_name).first()
    if upload is None:
        raise not_here("upload", pk)
    return upload


def import_page(
    kind: SetKind,
    upload: Upload,
    *,
    principal: Principal,
    mapping: dict[str, Any] | None,
    name: str | None = None,
    checks: ImportChecks = NO_CHECKS,
    error: str = "",
) -> ImportPage:
    """Read the file under ``mapping``, or under a guessed one. Raises AssayError 422 for a file that cannot be read."""
    reason = "Guessed from the name of the column." if mapping is None else ""
    with upload_open(upload) as file:
        preview = upload_preview(kind_name=kind.import_name, file=file, mapping=mapping, checks=checks)
        remembered = preset_of(principal=principal, kind_name=kind.import_name, columns=preview.columns)
        if mapping is None and remembered is not None:
            preview = upload_preview(kind_name=kind.import_name, file=file, mapping=remembered, checks=checks)
            reason = "As your team chose for the last file with these columns."
    roles = [
        RoleChoice(role.name, role.required, preview.mapping.get(role.name), reason)
        for role in import_kind(kind.import_name).roles
    ]
    return ImportPage(
        kind,
        upload,
        preview,
        roles,
        _name_from(upload) if name is None else name,
        checks,
        {name: ready_sets(model, principal) for name, model in CHECKED.items()},
        error,
    )


def _name_from(upload: Upload) -> str:
    words = PurePath(upload.file_name).stem.replace("_", " ").replace("-", " ").strip()
    return (words[:1].upper() + words[1:])[:200] or "Upload"
