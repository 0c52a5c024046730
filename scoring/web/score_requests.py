"""Synchronous requests as they were answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from django.http import Http404
from django.views.generic import DetailView

from accounts.scopes import Scope
from assay.web.mixins import PrincipalMixin
from scoring.filters import ScoreRequestFilter
from scoring.models import ScoreRequest
from scoring.web.columns import ColumnsMixin
from scoring.web.exports import ExportsMixin
from scoring.web.filtered import FilteredListView


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One pair. Texts are None unless the installation keeps them."""

    index: int
    score: float | None
    raw_score: float | None
    status: str
    query: str | None
    document: str | None


class ScoreRequestListView(ExportsMixin, ColumnsMixin, FilteredListView):
    required_scope: ClassVar[str] = Scope.SCORE
    table_name = "score-requests"
    export_source = "score-requests"
    filterset_class = ScoreRequestFilter
    template_name = "requests/list.html"

    def get_queryset(self) -> Any:
        requests = ScoreRequest.objects.for_team(self.principal.team).select_related("token", "created_by")
        return requests.defer("queries", "documents", "results")


class ScoreRequestDetailView(PrincipalMixin, DetailView[ScoreRequest]):
    required_scope: ClassVar[str] = Scope.SCORE
    template_name = "requests/detail.html"
    context_object_name = "row"

    def get_object(self, queryset: Any = None) -> ScoreRequest:
        rows = ScoreRequest.objects.for_team(self.principal.team).select_related("token", "created_by")
        row = rows.filter(pk=self.kwargs["pk"]).first()
        if row is None:
            raise Http404
        return row

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(results=result_rows(self.object), **kwargs)


def result_rows(row: ScoreRequest) -> list[ResultRow]:
    """In the order submitted; a matrix is query-major."""
    matrix = row.report.get("pairing") == "matrix"
    rows = []
    for result in row.results:
        index = result["index"]
        query, document = divmod(index, row.document_count) if matrix and row.document_count else (index, index)
        rows.append(
            ResultRow(
                index=index,
                score=result["score"],
                raw_score=result["raw_score"],
                status=result["status"],
                query=_text(row.queries, query),
                document=_text(row.documents, document),
            )
        )
    return rows


def _text(texts: list[str] | None, index: int) -> str | None:
    """One query for many documents is given once."""
    if not texts:
        return None
    return texts[index] if index < len(texts) else texts[0]
