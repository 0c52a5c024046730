"""Document, query, judgement and run sets: list, detail, delete."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import Http404
from django.urls import reverse
from django.views.generic import DetailView

from accounts.scopes import Scope
from assay.web.errors import not_here
from assay.web.mixins import PrincipalMixin
from scoring.filters import UploadedSetFilter
from scoring.ingest.lengths import length_labels
from scoring.models import DocumentSet, QuerySet
from scoring.models.base import TextSet, UploadedSet
from scoring.selectors.counting import RowCount
from scoring.selectors.sets import set_jobs, set_rows, set_versions, sets_of
from scoring.services.retention import texts_delete
from scoring.services.sets import set_delete
from scoring.web.actions import ActionView
from scoring.web.columns import ColumnsMixin
from scoring.web.encodings import encodings_shown
from scoring.web.exports import Choice, export_choices
from scoring.web.figures import Histogram, histogram
from scoring.web.filtered import FilteredListView
from scoring.web.paging import LongPaginator, PositionPaginator
from scoring.web.set_kinds import SetKind

ROWS_PER_PAGE = 25
JOBS_SHOWN = 20


def set_or_404(view: PrincipalMixin, kind: SetKind, pk: Any) -> UploadedSet:
    uploaded = kind.model.objects.for_team(view.principal.team).select_related("created_by").filter(pk=pk).first()
    if uploaded is None:
        raise not_here(kind.noun, pk)
    return uploaded


def rows_paged(uploaded: UploadedSet, search: str, tag: str) -> LongPaginator:
    rows = set_rows(uploaded, search=search, tag=tag)
    if search or tag:
        return LongPaginator(rows, ROWS_PER_PAGE)
    return PositionPaginator(rows, ROWS_PER_PAGE, count=uploaded.counts.get("kept", 0))


def lengths_of(uploaded: UploadedSet) -> Histogram | None:
    """How long the set's texts are; None for rows without texts, and for sets older than these figures."""
    columns = uploaded.statistics.get("histogram", []) if isinstance(uploaded, TextSet) else []
    counts = list(zip(length_labels(), columns, strict=False))
    while counts and not counts[-1][1]:
        counts.pop()
    return histogram(counts, caption="words in a text", unit="texts")


class SetListView(ColumnsMixin, FilteredListView):
    required_scope: ClassVar[str] = Scope.JOBS
    table_name = "sets"
    filterset_class = UploadedSetFilter
    template_name = "sets/list.html"

    def get_queryset(self) -> Any:
        return sets_of(self.principal, self.kwargs["kind"].model)

    def hidden_columns(self) -> tuple[str, ...]:
        return () if self.kwargs["kind"].job_field else ("job_count",)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(kind=self.kwargs["kind"], **kwargs)


class SetDetailView(PrincipalMixin, DetailView[UploadedSet]):
    required_scope: ClassVar[str] = Scope.JOBS
    template_name = "sets/detail.html"
    context_object_name = "uploaded"

    def get_object(self, queryset: Any = None) -> UploadedSet:
        return set_or_404(self, self.kwargs["kind"], self.kwargs["pk"])

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        search = self.request.GET.get("search", "").strip()
        kind: SetKind = self.kwargs["kind"]
        tag = self.request.GET.get("tag", "").strip() if kind.model is QuerySet else ""
        page = rows_paged(self.object, search, tag).get_page(self.request.GET.get("page"))
        jobs = set_jobs(self.object)
        return super().get_context_data(
            kind=kind,
            search=search,
            tag=tag,
            page=page,
            exports=self._exports(kind, {"search": search, "tag": tag}, page.paginator),
            lengths=lengths_of(self.object),
            versions=set_versions(self.object),
            table=[[getattr(row, column) for column in kind.columns] for row in page] if kind.columns else None,
            jobs=jobs[:JOBS_SHOWN],
            job_count=jobs.count(),
            roles={role: column for role, column in self.object.mapping.items() if role != "metadata"},
            **self._encodings(),
            **kwargs,
        )

    def _encodings(self) -> dict[str, Any]:
        if not isinstance(self.object, DocumentSet):
            return {"encoders": None}
        return encodings_shown(self.principal, self.object, self.request.GET.get("encoder", ""))

    def _exports(self, kind: SetKind, narrowed: dict[str, str], paginator: Any) -> list[Choice]:
        parameters = {"set": self.object.pk} | {name: value for name, value in narrowed.items() if value}
        counted: RowCount = paginator.counted
        return export_choices(kind.import_name, parameters=parameters, count=counted, trec=kind.trec)


class SetDeleteView(ActionView):
    required_scope: ClassVar[str] = Scope.JOBS
    deleted = False

    def act(self) -> str:
        kind: SetKind = self.kwargs["kind"]
        uploaded = set_or_404(self, kind, self.kwargs["pk"])
        set_delete(principal=self.principal, uploaded=uploaded)
        self.deleted = True
        return f"The {kind.noun} “{uploaded.name}” is deleted."

    def after(self) -> str:
        kind, pk = self.kwargs["kind"], self.kwargs["pk"]
        return reverse("web:set_list", args=[kind]) if self.deleted else reverse("web:set_detail", args=[kind, pk])


class TextsDeleteView(ActionView):
    required_scope: ClassVar[str] = Scope.JOBS

    def act(self) -> str:
        uploaded = set_or_404(self, self.kwargs["kind"], self.kwargs["pk"])
        if not isinstance(uploaded, TextSet):
            raise Http404
        texts_delete(principal=self.principal, uploaded=uploaded)
        return f"The texts of “{uploaded.name}” are being deleted; its scores and rankings stay."

    def after(self) -> str:
        return reverse("web:set_detail", args=[self.kwargs["kind"], self.kwargs["pk"]])
