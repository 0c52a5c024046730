"""Tables as CSV that a spreadsheet opens without running anything in it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

# A spreadsheet takes a cell that begins so for a formula. Numbers of ours are exempt by type.
FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


class _Echo:
    """csv.writer wants a file; this hands the line back instead."""

    def write(self, line: str) -> str:
        return line


def csv_table(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """UTF-8 CSV, line by line, with a byte order mark, so that spreadsheets read it as such."""
    writer = csv.writer(_Echo(), quoting=csv.QUOTE_NONNUMERIC)
    yield "\ufeff" + str(writer.writerow(map(cell_safe, header)))
    for row in rows:
        yield str(writer.writerow(map(cell_safe, row)))


def cell_safe(value: Any) -> Any:
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value
