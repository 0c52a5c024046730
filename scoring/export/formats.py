"""A table in each format that it can be taken away in, written out in parts as its rows are read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

from django.db.models import Model

from assay.errors import AssayError
from scoring.export.parquet import parquet_parts
from scoring.export.tables import csv_table
from scoring.selectors.counting import RowCount

LINES_PER_PART: Final = 200  # every part costs the server a hand-over, whatever its size

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Format:
    """``about`` is said before it is chosen."""

    title: str
    content_type: str
    about: str


FORMATS: Final = {
    "csv": Format("CSV", "text/csv; charset=utf-8", "safe for spreadsheets"),
    "jsonl": Format("JSON lines", "application/jsonl; charset=utf-8", "values as they are"),
    "parquet": Format("Parquet", "application/vnd.apache.parquet", "typed columns"),
    "trec": Format("TREC", "text/plain; charset=utf-8", "for evaluation tools"),
}


@dataclass(frozen=True, slots=True)
class ExportTable:
    """``columns``: the type of each by pyarrow's name, "moment", or "json" for values of any shape. ``rows`` reads
    them anew. ``trec``: a line per row, where the table is a run or holds judgements. ``subject``: the job or
    set that the rows are of, which the record of an export names."""

    name: str
    columns: Mapping[str, str]
    rows: Callable[[], Iterator[Row]]
    count: RowCount
    trec: Callable[[], Iterator[str]] | None = None
    trec_suffix: str = "run"
    subject: Model | None = None

    @property
    def formats(self) -> list[str]:
        return [name for name in FORMATS if name != "trec" or self.trec is not None]


def format_check(table: ExportTable, name: str) -> Format:
    """Raises AssayError 422 ``unknown_format``."""
    if name not in table.formats:
        given = f"'{name[:40]}' is no export format"
        where = "" if name not in FORMATS else f" of {table.name}"
        message = f"{given}{where}; give one of {', '.join(table.formats)}."
        raise AssayError("unknown_format", message, status=422, param="format")
    return FORMATS[name]


def file_name(table: ExportTable, name: str) -> str:
    return f"{table.name}.{table.trec_suffix if name == 'trec' else name}"


def table_parts(table: ExportTable, name: str) -> Iterator[bytes]:
    """The bytes of the file, as they come into being."""
    if name == "parquet":
        written = {column: "string" if kind == "json" else kind for column, kind in table.columns.items()}
        return parquet_parts((_as_text(row, table.columns) for row in table.rows()), written)
    return _joined(_lines(table, name))


def _lines(table: ExportTable, name: str) -> Iterator[str]:
    if name == "csv":
        return csv_lines(table)
    if name == "jsonl":
        return jsonl_lines(table)
    assert table.trec is not None, "checked by format_check"
    return table.trec()


def csv_lines(table: ExportTable) -> Iterator[str]:
    texts = (_as_text(row, table.columns) for row in table.rows())
    return csv_table(list(table.columns), ([_cell(row[name]) for name in table.columns] for row in texts))


def jsonl_lines(table: ExportTable) -> Iterator[str]:
    """Values as they are: JSON needs no guard against spreadsheets."""
    for row in table.rows():
        yield json.dumps(row, ensure_ascii=False, allow_nan=False, default=_cell) + "\n"


def _cell(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date | datetime) else value


def _as_text(row: Row, columns: Mapping[str, str]) -> Row:
    """Values of any shape as JSON: a column of a table has one type."""
    loose = {name: json.dumps(row[name], ensure_ascii=False) for name, kind in columns.items() if kind == "json"}
    return {**row, **loose}


def _joined(lines: Iterator[str]) -> Iterator[bytes]:
    while part := "".join(itertools.islice(lines, LINES_PER_PART)):
        yield part.encode()
