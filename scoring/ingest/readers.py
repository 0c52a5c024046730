"""One generator per format: an open binary file in, ``Row``s out, a row at a time."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final

from scoring.ingest.formats import TREC_NAMES, Format, text_encoding
from scoring.ingest.parquet import parquet_rows
from scoring.ingest.rows import FileProblem, Row, values_problem
from scoring.ingest.trec_text import trec_documents

MAX_RECORD_CHARACTERS: Final = 16_777_216
MAX_DEPTH: Final = 32
TREC_COLUMNS: Final = {
    Format.TREC_QRELS: ("query_id", "iteration", "document_id", "grade"),
    Format.TREC_RUN: ("query_id", "iteration", "document_id", "rank", "score", "tag"),
}

# The csv module's own limit is process-wide. Ours is per cell and reported per row, so this only bounds memory.
csv.field_size_limit(MAX_RECORD_CHARACTERS)


def rows_read(file: BinaryIO, file_format: Format) -> Iterator[Row]:
    """Every record of ``file`` from its start, in order. Raises FileProblem when the structure itself is lost."""
    file.seek(0)
    if file_format is Format.PARQUET:
        yield from parquet_rows(file)
        return
    encoding = text_encoding(file)
    # A byte that is not UTF-8 becomes a lone surrogate, which `values_problem` then reports with its row.
    errors = "strict" if encoding == "utf-16" else "surrogateescape"
    text = io.TextIOWrapper(file, encoding=encoding, errors=errors, newline="")
    try:
        match file_format:
            case Format.CSV | Format.TSV:
                yield from _delimited(text, file_format)
            case Format.JSONL:
                yield from _json_lines(text)
            case Format.TEXT:
                yield from _plain_lines(text)
            case Format.TREC_TEXT:
                yield from trec_documents(_lines(text))
            case Format.TREC_QRELS | Format.TREC_RUN:
                yield from _trec(text, file_format)
    except UnicodeDecodeError as error:
        raise FileProblem(f"The file begins as UTF-16 and is none ({error.reason}). Save it as UTF-8.") from error
    finally:
        text.detach()


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Lines of bounded length: a file that is one endless line must not fill the memory."""
    number = 0
    while line := text.readline(MAX_RECORD_CHARACTERS):
        number += 1
        if len(line) == MAX_RECORD_CHARACTERS and not line.endswith("\n"):
            raise FileProblem(f"Line {number} has over {MAX_RECORD_CHARACTERS:,} characters. Split the file into rows.")
        yield line


def _delimited(text: io.TextIOWrapper, file_format: Format) -> Iterator[Row]:
    lines = _lines(text)
    # The delimiter shows in the header, not in blank lines before it.
    before, first = next(((n, line) for n, line in enumerate(lines) if line.strip("\r\n")), (0, ""))
    delimiter = "\t" if file_format is Format.TSV else max(",;", key=first.count)
    reader = csv.reader(itertools.chain((first,), lines), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    start = before + 1
    try:
        for cells in reader:
            line, start = start, before + reader.line_num + 1
            if len(cells) <= 1 and not any(cell.strip() for cell in cells):
                continue  # a blank line
            if header is None:
                header = _header(cells)
                continue
            values: dict[str, Any] = dict(zip(header, cells, strict=False))
            if len(cells) != len(header):
                values = dict.fromkeys(header, "") | values
                yield Row(
                    line, values, f"has {len(cells)} column{'s' * (len(cells) != 1)}, the header has {len(header)}"
                )
            else:
                yield Row(line, values, values_problem(values))
    except csv.Error as error:
        raise FileProblem(
            f"From line {start} on the file is not valid CSV ({error}): a quotation mark is opened and not closed, "
            'or stands inside an unquoted cell. Double it ("") or quote the cell.'
        ) from error


def _header(cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    if problem := values_problem({name: name for name in names}):
        raise FileProblem(f"The header cannot be read: column {problem}.")
    if twice := {name for name in names if names.count(name) > 1}:
        names_twice = ", ".join(map(repr, sorted(twice)))
        raise FileProblem(f"The header names {names_twice} more than once. Give each column its own name.")
    return names


def _json_lines(text: io.TextIOWrapper) -> Iterator[Row]:
    decode = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_once_each).decode
    for number, line in enumerate(_lines(text), start=1):
        if not line.strip():
            continue
        try:
            values = decode(line)
        except (ValueError, RecursionError) as error:
            yield Row(number, problem=f"is not valid JSON ({error})"[:300])
            continue
        if _depth(values) > MAX_DEPTH:
            yield Row(number, problem=f"nests lists and objects more than {MAX_DEPTH} deep")
            continue
        if not isinstance(values, dict):
            found = f"is a JSON {type(values).__name__}"
            yield Row(number, problem=f'{found}, not an object such as {{"id": …, "text": …}}')
            continue
        yield Row(number, values, values_problem(values))


def _plain_lines(text: io.TextIOWrapper) -> Iterator[Row]:
    for number, line in enumerate(_lines(text), start=1):
        if line.strip():
            values: dict[str, Any] = {"text": line.rstrip("\r\n")}
            yield Row(number, values, values_problem(values))


def _depth(value: Any) -> int:
    """How deep lists and objects nest; by levels, so that depth costs no recursion."""
    level, depth = _nested([value]), 0
    while level:
        level, depth = _nested(member for outer in level for member in _members(outer)), depth + 1
    return depth


def _nested(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list) and value]


def _members(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError(f"the number {digits[:40]} is larger than a 64-bit float can hold")
    return number


def _once_each(members: list[tuple[str, Any]]) -> dict[str, Any]:
    given = dict(members)
    if len(given) < len(members):
        name = next(name for name, count in Counter(name for name, _ in members).items() if count > 1)
        raise ValueError(f"{name[:80]!r} is given twice")
    return given


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _trec(text: io.TextIOWrapper, file_format: Format) -> Iterator[Row]:
    columns = TREC_COLUMNS[file_format]
    for number, line in enumerate(_lines(text), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != len(columns):
            yield Row(number, problem=f"has {len(fields)} fields; {TREC_NAMES[file_format]} has {len(columns)}")
            continue
        values: dict[str, Any] = dict(zip(columns, fields, strict=True))
        yield Row(number, values, values_problem(values))
