"""TREC collections: documents between <DOC> and </DOC>, with their number in <DOCNO>."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from scoring.ingest.rows import Row, values_problem

NUMBER: Final = re.compile(r"<DOCNO>(.*?)</DOCNO>", re.IGNORECASE | re.DOTALL)
TITLE: Final = re.compile(r"<(TITLE|HEADLINE|HL)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
TAG: Final = re.compile(r"</?[A-Za-z][^<>]{0,200}>")
MAX_CHARACTERS: Final = 16_777_216


def trec_documents(lines: Iterable[str]) -> Iterator[Row]:
    """One row per document, with the line where it begins; what stands between documents is passed over."""
    held: list[str] | None = None  # the lines of the document that is open
    start = size = 0
    for number, line in enumerate(lines, start=1):
        mark = line.strip().upper()
        if mark == "<DOC>":
            if held is not None:
                yield Row(start, problem=f"is not closed by </DOC> before the next document, in line {number}")
            start, held, size = number, [], 0
        elif mark == "</DOC>" and held is not None:
            yield _document(start, "".join(held))
            held = None
        elif held is not None:
            size += len(line)
            if size > MAX_CHARACTERS:
                yield Row(start, problem=f"has over {MAX_CHARACTERS:,} characters")
                held = None
            else:
                held.append(line)
    if held is not None:
        yield Row(start, problem="is not closed by </DOC>")


def _document(line: int, content: str) -> Row:
    number = NUMBER.search(content)
    if number is None:
        return Row(line, problem="has no <DOCNO>")
    title = TITLE.search(content)
    text = content
    for found in (number, title):
        text = text.replace(found[0], "", 1) if found else text
    values: dict[str, Any] = {
        "docno": number[1].strip(),
        "title": TAG.sub("", title[2]).strip() if title else "",
        "text": TAG.sub("", text).strip(),
    }
    return Row(line, values, values_problem(values))
