"""The nouns of an import: a row with its line number, a file that cannot be read at all."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Any, Final

MAX_CELL_CHARACTERS: Final = 1_048_576
SHOWN_CHARACTERS: Final = 500
UNSHOWABLE: Final = re.compile("[\0\ud800-\udfff]")


class FileProblem(Exception):
    """The whole file cannot be read. The message says what it seems to be and what to give instead."""


@dataclass(slots=True)  # not frozen: that would triple the cost of making one, and an import makes millions
class Row:
    """One record. ``line`` is the 1-based line where it starts; with ``problem`` set, ``values`` may be partial."""

    line: int
    values: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None


def text_problem(name: str, text: str) -> str | None:
    """Why ``text`` can neither be stored nor scored, or None."""
    if len(text) > MAX_CELL_CHARACTERS:
        return f"'{name}' has {len(text):,} characters; the limit is {MAX_CELL_CHARACTERS:,}"
    if (position := text.find("\x00")) >= 0:
        return f"'{name}' holds a NUL character at position {position}; remove it"
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        if 0xDC80 <= code <= 0xDCFF:  # how the reader marks a byte that is not UTF-8
            return (
                f"'{name}' is not UTF-8 (byte 0x{code - 0xDC00:02X} at position {error.start}; "
                "the file looks like Latin-1 or Windows-1252): save it as UTF-8"
            )
        return f"'{name}' holds half of a surrogate pair (U+{code:04X}) at position {error.start}; remove it"
    return None


def readable(value: Any) -> Any:
    """Cells of a file that may be broken, as a page or JSON can carry them: what is no character becomes U+FFFD."""
    if isinstance(value, str):
        return UNSHOWABLE.sub("\ufffd", value[:SHOWN_CHARACTERS])
    if isinstance(value, dict):
        return {readable(name): readable(item) for name, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, list) else value


def values_problem(values: dict[str, Any]) -> str | None:
    """The first problem among the names and the texts of a row, or None."""
    texts = [value for value in values.values() if isinstance(value, str)]
    # All at once, since nearly every row is sound; only for one that is not, the culprit is looked for.
    if text_problem("", "".join((*values, *texts))) is None:
        return None
    names = (("a name", name) for name in values)
    named = itertools.chain(names, ((name, value) for name, value in values.items() if isinstance(value, str)))
    return next((problem for name, text in named if (problem := text_problem(name, text))), None)
