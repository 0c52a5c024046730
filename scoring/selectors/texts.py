"""Texts whose deletion was ordered are shown no more, whether or not their rows have been emptied yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.db.models.query import ModelIterable

from scoring.models import Document, Query, QueryResult
from scoring.models.base import TextSet

Row = TypeVar("Row", bound=Model)


class _Textless(ModelIterable[Any]):
    def __iter__(self) -> Iterator[Any]:
        for row in super().__iter__():
            _empty(row)
            yield row


def texts_gone(uploaded: TextSet) -> bool:
    return uploaded.texts_delete_requested_at is not None


def texts_shown(rows: QuerySet[Row], uploaded: TextSet) -> QuerySet[Row]:
    """``rows`` of ``uploaded``: with their texts for as long as these may be shown."""
    shown = rows.all()
    if texts_gone(uploaded):
        shown._iterable_class = _Textless
    return shown


def query_texts_shown(results: Iterable[QueryResult], uploaded: TextSet) -> None:
    """The same for the queries that came with ``results``."""
    for result in results if texts_gone(uploaded) else ():
        _empty(result.query)


def _empty(row: Document | Query) -> None:
    row.text, row.metadata = "", {}
    if isinstance(row, Document):
        row.title = ""
