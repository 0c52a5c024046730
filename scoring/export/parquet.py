"""Tables as Parquet: typed columns, written out row group by row group."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

ROWS_PER_GROUP: Final = 10_000  # held in memory together with their texts


def parquet_parts(rows: Iterator[Mapping[str, Any]], columns: Mapping[str, str]) -> Iterator[bytes]:
    """The bytes of one Parquet file, as they come into being. ``columns``: the type of each, by pyarrow's name, or
    "moment"; null stands for none. Of a float32 column every value is exactly the stored one."""
    import pyarrow  # 40 MB of memory that only a process which exports Parquet needs
    from pyarrow import parquet

    moment = pyarrow.timestamp("us", tz="UTC")
    types = {name: moment if kind == "moment" else pyarrow.type_for_alias(kind) for name, kind in columns.items()}
    schema = pyarrow.schema(list(types.items()))
    written = io.BytesIO()
    sink = pyarrow.output_stream(_Appended(written))
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        while group := list(itertools.islice(rows, ROWS_PER_GROUP)):
            writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))
            yield _taken(written)
    yield _taken(written)


class _Appended(io.RawIOBase):
    """A file that keeps its place while what it holds is taken away."""

    def __init__(self, target: io.BytesIO) -> None:
        self._target, self._place = target, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        size = self._target.write(data)
        self._place += size
        return size

    def tell(self) -> int:
        return self._place


def _taken(written: io.BytesIO) -> bytes:
    part = written.getvalue()
    written.seek(0)
    written.truncate()
    return part
