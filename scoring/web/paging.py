"""Pages of long lists: the count is an estimate where an exact one would take long, and the pager says so."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.core.paginator import EmptyPage, Page, PageNotAnInteger, Paginator

from assay.api.sentences import shortened
from scoring.selectors.counting import RowCount, rows_count


class SayingPaginator(Paginator[Any]):
    """``note`` says so where a page was asked for that is not there, and another one is shown."""

    note = ""

    def validate_number(self, number: Any) -> int:
        try:
            return super().validate_number(number)
        except PageNotAnInteger:
            if number is not None:  # else none was asked for
                self.note = f"'{shortened(str(number))}' is no number of a page; this is the first page."
            raise
        except EmptyPage:
            self.note = f"There is no page {shortened(str(number))}; this is the last one, page {self.num_pages:,}."
            raise


class LongPaginator(SayingPaginator):
    """``exact``: whether ``count`` is one; the pager writes "about" otherwise."""

    @cached_property
    def counted(self) -> RowCount:
        return rows_count(self.object_list)  # type: ignore[arg-type]

    @cached_property
    def count(self) -> int:
        return self.counted.rows

    @property
    def exact(self) -> bool:
        return self.counted.exact


class TablePaginator(LongPaginator):
    """Pages of a table's rows, which its queryset counts."""

    @cached_property
    def counted(self) -> RowCount:
        return rows_count(self.object_list.data.data)  # type: ignore[attr-defined]


class PositionPaginator(LongPaginator):
    """Pages of rows whose ``position`` counts from 0 without gaps: the last page costs what the first does."""

    def __init__(self, object_list: Any, per_page: int, *, count: int) -> None:
        super().__init__(object_list, per_page)
        self._count = count

    @cached_property
    def counted(self) -> RowCount:
        return RowCount(self._count)

    def page(self, number: int | str) -> Page[Any]:
        number = self.validate_number(number)
        start = (number - 1) * self.per_page
        rows = self.object_list.filter(position__gte=start, position__lt=start + self.per_page)  # type: ignore[attr-defined]
        return Page(rows, number, self)
