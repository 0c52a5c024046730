"""Synchronous requests as they were answered."""

from __future__ import annotations

from typing import Any, ClassVar

from django.views.generic import DetailView

from accounts.scopes import Scope
from assay.web.errors import not_here
from assay.web.mixins import PrincipalMixin
from scoring.filters import ScoreRequestFilter
from scoring.models import ScoreRequest
from scoring.selectors.explanations import kept_items
from scoring.web.columns import ColumnsMixin
from scoring.web.exports import ExportsMixin
from scoring.web.filtered import FilteredListView


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
            raise not_here("score request", self.kwargs["pk"])
        return row

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(results=kept_items(self.object), **kwargs)
