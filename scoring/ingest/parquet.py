"""Parquet files: rows in order, a few at a time, with values as JSON could hold them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, BinaryIO, Final

from scoring.ingest.rows import FileProblem, Row, values_problem

ROWS_AT_ONCE: Final = 256
# Compressed columns may be far larger than their file: what one row group may take in memory.
GROUP_BYTES: Final = 1 << 30


def parquet_rows(file: BinaryIO) -> Iterator[Row]:
    """``line`` is the row's number, from 1. Raises FileProblem for a file that cannot be read to its end."""
    import pyarrow  # 40 MB of memory that only a process which reads Parquet needs
    from pyarrow import parquet

    try:
        opened = parquet.ParquetFile(file)
        for group in range(opened.num_row_groups):
            if (size := opened.metadata.row_group(group).total_byte_size) > GROUP_BYTES:
                raise FileProblem(
                    f"Row group {group + 1} of the Parquet file holds {size:,} bytes; the limit is {GROUP_BYTES:,}. "
                    "Write it with smaller row groups."
                )
        if twice := {name for name in opened.schema_arrow.names if opened.schema_arrow.names.count(name) > 1}:
            raise FileProblem(f"The Parquet file names {', '.join(sorted(twice))} more than once.")
        number = 0
        for batch in opened.iter_batches(batch_size=ROWS_AT_ONCE):
            for record in batch.to_pylist():
                number += 1
                yield _row(number, record)
    except (pyarrow.ArrowException, OSError) as error:
        raise FileProblem(
            f"The Parquet file cannot be read ({error}). Write it anew, or give CSV or JSON lines."
        ) from error


def _row(number: int, record: dict[str, Any]) -> Row:
    try:
        values = {name: _plain(value) for name, value in record.items()}
    except ValueError as error:
        return Row(number, {}, str(error))
    return Row(number, values, values_problem(values))


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise ValueError("holds bytes that are not UTF-8 text") from None
        case dict():
            return {str(name): _plain(member) for name, member in value.items()}
        case list():
            return [_plain(member) for member in value]
        case datetime() | date() | time() | Decimal():
            return str(value)
    raise ValueError(f"holds a {type(value).__name__}, which is neither text nor a number")
