"""Parts of arrays that are packed into a column: only the bytes asked for leave the database."""

from __future__ import annotations

from typing import Any

from django.db.models import BinaryField
from django.db.models.functions import Substr


def packed_part(column: str, itemsize: int, *, start: Any = 0, count: Any = None) -> Any:
    """Elements [start, start + count) of ``itemsize`` bytes each, to the end for None; both may be expressions."""
    length = None if count is None else count * itemsize
    return Substr(column, start * itemsize + 1, length, output_field=BinaryField())
