"""Tables as files: the menu beside each, what is streamed at once, and what is made in the background."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django.conf import settings
from django.contrib import messages
from django.contrib.humanize.templatetags.humanize import intcomma
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.generic.base import View

from assay.errors import AssayError
from assay.web.errors import not_here
from assay.web.mixins import PrincipalMixin
from audit.services import audit_record
from scoring.export.formats import FORMATS, ExportTable, file_name, format_check, table_parts
from scoring.export.sources import SOURCES, export_table
from scoring.models import Export
from scoring.selectors.counting import RowCount
from scoring.services.exports import export_ask, export_delete, exports_of
from scoring.states import ExportState
from scoring.web.actions import ActionView
from scoring.web.filtered import BESIDE
from scoring.web.htmx import polled

GIVEN_BY_PAGES: Final = (*BESIDE, "format", "figure")  # no filters of the table
SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Choice:
    """One format in a menu. ``background``: the file is made while one does something else."""

    url: str
    format: str
    detail: str
    background: bool


def export_choices(
    source: str, *, parameters: Mapping[str, Any], count: RowCount, trec: str = "", columns: str = "all columns"
) -> list[Choice]:
    """What the menu beside a table says before the click. ``trec``: what the table is in that format, if it can be."""
    if not count.rows:
        return []
    about = "" if count.exact else "about "
    rows = f"{about}{intcomma(count.rows)} row{'' if count.rows == 1 else 's'}"
    background = count.rows > settings.EXPORT_ROWS
    later = ", made in the background" if background else ""
    names = [name for name in FORMATS if name != "trec" or trec]
    return [
        Choice(
            url=f"{reverse('web:export', args=[source])}?{urlencode({**parameters, 'format': name}, doseq=True)}",
            format=trec if name == "trec" else FORMATS[name].title,
            detail=f"{rows}, {FORMATS[name].about if name in ('csv', 'trec') else columns}{later}",
            background=background,
        )
        for name in names
    ]


def parameters_of(request: HttpRequest) -> dict[str, Any]:
    """The filters in a list's address; several values of one name as a list."""
    given = {name: values for name, values in request.GET.lists() if name not in GIVEN_BY_PAGES}
    return {name: values[0] if len(values) == 1 else values for name, values in given.items()}


class ExportsMixin:
    """A list with a menu of exports. ``export_source`` names its table in ``scoring.export.sources``."""

    request: HttpRequest
    faults: list[str]
    export_source: ClassVar[str]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**kwargs)  # type: ignore[misc]
        paginator = context["table"].paginator
        count = getattr(paginator, "counted", None) or RowCount(paginator.count)
        exports = export_choices(self.export_source, parameters=parameters_of(self.request), count=count)
        return {**context, "exports": [] if self.faults else exports}


class ExportView(PrincipalMixin, View):
    """GET streams a table of at most EXPORT_ROWS rows; POST has a larger one made in the background."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if kwargs["table"] not in SOURCES:
            raise Http404
        self.required_scope = SOURCES[kwargs["table"]].scope  # type: ignore[misc]  # of this request alone
        try:
            return super().dispatch(request, *args, **kwargs)
        except AssayError as refusal:
            context = {"status": refusal.status, "message": refusal.message}
            return render(request, "error.html", context, status=refusal.status)

    def get(self, request: HttpRequest, table: str) -> StreamingHttpResponse:
        name = request.GET.get("format", "csv")
        opened = export_table(table, principal=self.principal, parameters=parameters_of(request))
        chosen = format_check(opened, name)
        if opened.count.rows > settings.EXPORT_ROWS:
            raise AssayError("too_many_rows", _too_many(opened), status=409)
        audit_record(
            verb=SOURCES[table].verb, principal=self.principal, target=opened.subject,
            detail={"table": table, "format": name},
        )  # fmt: skip
        place = {"Content-Disposition": f'attachment; filename="{file_name(opened, name)}"'}
        return StreamingHttpResponse(table_parts(opened, name), content_type=chosen.content_type, headers=place)

    def post(self, request: HttpRequest, table: str) -> HttpResponse:
        name, parameters = request.GET.get("format", "csv"), parameters_of(request)
        export_ask(principal=self.principal, table=table, file_format=name, parameters=parameters)
        messages.success(request, "The file is being made. Its link appears here; you can leave this page meanwhile.")
        return HttpResponseRedirect(reverse("web:export_list"))


def _too_many(table: ExportTable) -> str:
    return (
        f"The table has {table.count.rows:,} rows, and more than {settings.EXPORT_ROWS:,} are made in the background: "
        "choose the format in the table's menu again."
    )


def export_or_404(view: PrincipalMixin) -> Export:
    export: Export | None = exports_of(view.principal).filter(pk=view.kwargs["pk"]).first()
    if export is None:
        raise not_here("export", view.kwargs["pk"])
    return export


class ExportListView(PrincipalMixin, View):
    """One's own exports; the list renews itself while one of them is being made."""

    def get(self, request: HttpRequest) -> HttpResponse:
        rows = list(exports_of(self.principal)[:SHOWN])
        working = any(not ExportState(row.state).is_final for row in rows)
        context = {"exports": rows, "working": working, "sources": SOURCES, "formats": FORMATS, "view": self,
                   "keep_hours": settings.EXPORT_KEEP_HOURS, "most_rows": settings.EXPORT_ROWS}  # fmt: skip
        if "renew" in request.GET:
            return polled(request, "exports/_list.html", context, ended=not working)
        return render(request, "exports/list.html", context)


class ExportFileView(PrincipalMixin, View):
    def get(self, request: HttpRequest, pk: Any) -> FileResponse:
        export = export_or_404(self)
        if export.state != ExportState.DONE:
            raise Http404
        content_type = FORMATS[export.file_format].content_type
        return FileResponse(
            export.file.open("rb"), as_attachment=True, filename=export.file_name, content_type=content_type
        )


class ExportDeleteView(ActionView):
    def act(self) -> str:
        export_delete(export=export_or_404(self))
        return "The export is deleted."

    def after(self) -> str:
        return reverse("web:export_list")
