"""A list with a filter: where the filter cannot be, the page says so and lists nothing."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django.http import HttpRequest, HttpResponse
from django_filters import FilterSet
from django_filters.views import FilterView
from django_tables2 import SingleTableMixin, Table

from assay.api.sentences import shortened
from assay.web.mixins import PrincipalMixin
from scoring.filters import faults_of
from scoring.web.columns import PARAMETER
from scoring.web.paging import TablePaginator

BESIDE: Final = ("page", "per_page", "sort", PARAMETER)


class PagedTableMixin(SingleTableMixin):
    """A table in pages, which says so where its address names a page that is not there."""

    request: HttpRequest
    # Only the table makes pages: the list below it would count once more, and refuse a page that is not there.
    table_pagination: ClassVar[dict[str, Any]] = {"paginator_class": TablePaginator, "per_page": 25}

    def get_paginate_by(self, table_data: Any) -> None:
        return None

    def get_table(self, **kwargs: Any) -> Table:
        table = super().get_table(**kwargs)
        # Again, with what was given: the table itself passes over a page that is no number.
        table.page = table.paginator.get_page(self.request.GET.get(table.prefixed_page_field))
        return table


class FilteredListView(PrincipalMixin, PagedTableMixin, FilterView):
    filterset_class: type[FilterSet]

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        self.filterset = self.get_filterset(self.filterset_class)
        known = sorted(self.filterset.filters)
        self.faults = [
            f"There is no filter '{shortened(name)}'; the filters are: {', '.join(known)}."
            for name in request.GET
            if name not in known and name not in BESIDE
        ]
        self.faults += [message for _, message, _ in faults_of(self.filterset)]
        rows = self.filterset.qs
        self.object_list = rows.none() if self.faults else rows
        return self.render_to_response(self.get_context_data(filter=self.filterset, object_list=self.object_list))

    def get_table_kwargs(self) -> dict[str, Any]:
        return {"empty_text": " ".join(self.faults)} if self.faults else {}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        is_empty = not self.request.GET and not self.object_list.exists()
        return super().get_context_data(is_empty=is_empty, **kwargs)
