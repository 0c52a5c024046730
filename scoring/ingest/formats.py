"""What a file is, told from its first bytes and never from its name alone."""

from __future__ import annotations

import codecs
import re
from enum import StrEnum
from typing import BinaryIO, Final

from scoring.ingest.rows import FileProblem

SNIFF_BYTES: Final = 65_536
SIGNATURES: Final = {
    b"PK\x03\x04": "a ZIP archive (or an Excel file)",
    b"\x1f\x8b": "a gzip file",
    b"%PDF": "a PDF",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"\xd0\xcf\x11\xe0": "an old Microsoft Office file",
    b"\x7fELF": "a program",
    b"SQLite format 3": "an SQLite database",
}
PARQUET_SIGNATURE: Final = b"PAR1"
HEADER_CHARACTERS: Final = 60  # a longer cell is no column's name
LINES_LOOKED_AT: Final = 40
UTF16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Format(StrEnum):
    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    TEXT = "text"
    TREC_TEXT = "trec-text"
    TREC_QRELS = "trec-qrels"
    TREC_RUN = "trec-run"


# As pages say what was recognised.
FORMAT_NAMES: Final = {
    Format.CSV: "CSV, a table with commas or semicolons",
    Format.TSV: "TSV, a table with tabs",
    Format.JSONL: "JSON lines, one object per line",
    Format.PARQUET: "Parquet, a table with types",
    Format.TEXT: "plain text, one entry per line",
    Format.TREC_TEXT: "a TREC collection, documents between <DOC> and </DOC>",
    Format.TREC_QRELS: "TREC judgements, four fields per line",
    Format.TREC_RUN: "a TREC run, six fields per line",
}
GRADE: Final = re.compile(rb"-?\d+(\.\d+)?")  # what is no whole number is refused as a grade, with its line
TREC_NAMES: Final = {
    Format.TREC_QRELS: "TREC judgements (query, 0, document, grade)",
    Format.TREC_RUN: "a TREC run (query, Q0, document, rank, score, tag)",
}


def sniff(file: BinaryIO, *, trec: Format | None = None) -> Format:
    """The format of ``file``, which is rewound; ``trec`` is the TREC format that is expected, if one is.

    Raises FileProblem for what is not text, holds nothing, or is in the other TREC format.
    """
    file.seek(0)
    head = file.read(SNIFF_BYTES)
    file.seek(0)
    if head.startswith(UTF16_MARKS):
        head = head.decode("utf-16", "ignore").encode("utf-8", "ignore")
    if not head.removeprefix(b"\xef\xbb\xbf").strip():
        raise FileProblem("The file is empty. Give a CSV, TSV, JSON-lines, Parquet or text file with at least one row.")
    if head.startswith(PARQUET_SIGNATURE):
        return Format.PARQUET
    for signature, name in SIGNATURES.items():
        if head.startswith(signature):
            raise FileProblem(
                f"The file is {name}, not text. Give a CSV, TSV, JSON-lines, Parquet or text file in UTF-8."
            )
    # Text has hardly any control characters; one stray NUL in a cell is a row's problem, not the file's.
    controls = sum(byte < 9 or 13 < byte < 32 for byte in head)
    if controls > max(8, len(head) // 20):
        raise FileProblem(
            f"The file is binary ({controls:,} control characters in its first {len(head):,} bytes). "
            "Give a CSV, TSV, JSON-lines, Parquet or text file in UTF-8."
        )
    lines = [line for line in head.removeprefix(b"\xef\xbb\xbf").splitlines() if line.strip()]
    first = lines[0]
    if first.lstrip().startswith(b"{"):
        return Format.JSONL
    if (found := _trec_format(first)) is not None:
        if found is not trec and (trec is not None or all(map(_trec_format, lines[:2]))):
            instead = TREC_NAMES[trec] if trec is not None else "a CSV, TSV, JSON-lines, Parquet or text file"
            raise FileProblem(f"The file is {TREC_NAMES[found]}; give {instead}, or upload it as what it is.")
        return found if trec is not None else _table_or_text(head, lines)
    return _table_or_text(head, lines)


def text_encoding(file: BinaryIO) -> str:
    """UTF-16 if ``file``, which is rewound, begins with its mark; else UTF-8."""
    file.seek(0)
    mark = file.read(2)
    file.seek(0)
    return "utf-16" if mark in UTF16_MARKS else "utf-8-sig"


def _table_or_text(head: bytes, lines: list[bytes]) -> Format:
    first = lines[0]
    if first.strip().upper() == b"<DOC>":
        return Format.TREC_TEXT
    if first.count(b"\t") >= max(1, first.count(b","), first.count(b";")):
        return Format.TSV
    return Format.TEXT if b'"' not in head and _is_prose(lines[:LINES_LOOKED_AT]) else Format.CSV


def _is_prose(lines: list[bytes]) -> bool:
    """Whether the first line is no header: longer than any column's name, ending as a sentence does, or several words
    that are the only cell; and if it has delimiters, followed by lines of which most have fewer or more of them."""
    first, rest = lines[0].strip(), lines[1:]
    delimiter = max((b",", b";"), key=first.count)
    cells = first.split(delimiter)
    sentence = first.endswith((b".", b"?", b"!")) or max(map(len, cells)) > HEADER_CHARACTERS
    sentence |= len(cells) == 1 and len(first.split()) > 1
    different = sum(line.count(delimiter) != len(cells) - 1 for line in rest)
    return sentence and (len(cells) == 1 or not rest or 2 * different > len(rest))


def _trec_format(line: bytes) -> Format | None:
    fields = line.split()
    if len(fields) == 4 and GRADE.fullmatch(fields[3]):
        return Format.TREC_QRELS
    if len(fields) == 6 and (fields[1].upper() == b"Q0" or (fields[3].isdigit() and _is_number(fields[4]))):
        return Format.TREC_RUN
    return None


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
