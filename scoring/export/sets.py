"""The rows of uploaded sets as tables, in the order of their files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from django.db.models import QuerySet

from assay.api.principal import Principal
from scoring.export.formats import ExportTable
from scoring.export.parameters import Parameters, parameters_check, row_named
from scoring.export.results import trec_word
from scoring.models import DocumentSet, JudgementSet, RunSet
from scoring.models import QuerySet as QueriesSet
from scoring.models.base import UploadedSet
from scoring.selectors.counting import RowCount, rows_count
from scoring.selectors.sets import set_rows

ROWS_AT_ONCE: Final = 2_000
NAMES: Final = ("set", "search", "tag")

COLUMNS: Final[dict[type[UploadedSet], dict[str, tuple[str, str]]]] = {
    DocumentSet: {
        "id": ("string", "external_id"), "title": ("string", "title"), "text": ("string", "text"),
        "metadata": ("json", "metadata"),
    },
    QueriesSet: {"id": ("string", "external_id"), "text": ("string", "text"), "metadata": ("json", "metadata")},
    JudgementSet: {
        "query_id": ("string", "query_id"), "document_id": ("string", "document_id"), "grade": ("int32", "grade"),
    },
    RunSet: {
        "query_id": ("string", "query_id"), "document_id": ("string", "document_id"), "rank": ("int64", "rank"),
        "score": ("double", "score"),
    },
}  # fmt: skip


def table_of(model: type[UploadedSet]) -> Callable[[Principal, Parameters], ExportTable]:
    def opened(principal: Principal, parameters: Parameters) -> ExportTable:
        parameters_check(parameters, NAMES, needed="set")
        uploaded = row_named(model.objects.for_team(principal.team), parameters, "set")
        asked = {name: str(parameters.get(name, "")).strip() for name in ("search", "tag")}
        return set_table(uploaded, **asked)

    return opened


def set_table(uploaded: UploadedSet, *, search: str = "", tag: str = "") -> ExportTable:
    """``search`` and ``tag``: as on the set's page."""
    columns, found = COLUMNS[type(uploaded)], set_rows(uploaded, search=search, tag=tag)
    lines = _qrels if isinstance(uploaded, JudgementSet) else _run if isinstance(uploaded, RunSet) else None
    return ExportTable(
        name=f"assay-{str(uploaded._meta.verbose_name).replace(' ', '-')}-{uploaded.pk}",
        columns={name: kind for name, (kind, _) in columns.items()},
        rows=lambda: (
            {name: getattr(row, field) for name, (_, field) in columns.items()} for row in _by_position(found)
        ),
        count=rows_count(found) if search or tag else RowCount(uploaded.counts.get("kept", 0)),
        trec=(lambda: lines(_by_position(found))) if lines else None,
        subject=uploaded,
        trec_suffix="qrels" if isinstance(uploaded, JudgementSet) else "run",
    )


def _by_position(rows: QuerySet[Any]) -> Iterator[Any]:
    """Part by part: where the database keeps no cursor for us, one query would hold all rows in memory."""
    last = -1
    while part := list(rows.filter(position__gt=last).order_by("position")[:ROWS_AT_ONCE]):
        yield from part
        last = part[-1].position


def _qrels(rows: Iterator[Any]) -> Iterator[str]:
    for row in rows:
        yield f"{trec_word(row.query_id)} 0 {trec_word(row.document_id)} {row.grade}\n"


def _run(rows: Iterator[Any]) -> Iterator[str]:
    """As uploaded: a score where there is one, else one that falls with the rank."""
    for row in rows:
        rank = 0 if row.rank is None else row.rank
        score = -rank if row.score is None else row.score
        yield f"{trec_word(row.query_id)} Q0 {trec_word(row.document_id)} {rank} {score} assay\n"
